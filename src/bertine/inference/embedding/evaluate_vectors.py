"""Score the vectors of a model on pairs of texts: by the order of cosines, or by search.

Pairs with a score are judged by the correlation of their cosines with the scores; pairs of a text
and its match by what a search for the first text finds among all second texts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bertine.core.console import logger, plural
from bertine.core.contrib import kind_of_model, registered
from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.model_folders import locate
from bertine.core.names import PairKind, option
from bertine.core.scores import correlation_interval
from bertine.data.examples import find_splits
from bertine.data.in_memory import Data, InMemoryTable, Source
from bertine.data.text_pairs import KINDS, USUAL_PAIRS, PairRow, PairRows
from bertine.inference.embedding.embedder import Embedder, unknown_text
from bertine.inference.embedding.index import NearestRows, search_all
from bertine.inference.embedding.vectors import unit
from bertine.inference.embedding.words import WordIndex, joined
from bertine.inference.rows import text_progress
from bertine.models.config_file import MODULES
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import EvaluateOptions
from bertine.tasks.base import Features, text_number
from bertine.tasks.metrics import regression_scores
from bertine.tasks.report import BY_WORDS, HYBRID, BaselineScore, EvaluationReport, baseline_lines

# Report: the scores of vectors on pairs of texts.

#: Metrics that are not shares of 1.
_PLAIN = ("pearson", "spearman")


@dataclass(repr=False, kw_only=True)
class SimilarityReport(EvaluationReport):
    """The scores of a model's vectors.

    Attributes:
        num_examples: pairs with a score, or queries.
        num_texts: the texts that are searched; 0 for pairs with a score.
        metrics: ``spearman`` and ``pearson`` of cosines and scores; or ``ndcg@10``, ``mrr@10`` and
            ``recall@1``, ``@10`` and ``@100``.
    """

    json_keys = ("source", "num_examples", "num_texts", "metrics", "notes")
    collapsed = False  # a search never has the same result for all queries

    num_examples: int = 0
    num_texts: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        size = plural(self.num_examples, "pair")
        if self.num_texts:
            size = f"{self.num_examples:,} queries, {plural(self.num_texts, 'text')} to find"
        lines = [self.headline(size, self.metrics, _PLAIN)]
        if "spearman" in self.metrics and self.num_examples > 3:
            low, high = correlation_interval(self.metrics["spearman"], self.num_examples)
            lines.append(f"95% interval of spearman: {low:.4f} to {high:.4f}")
        return [*lines, *self.notes]


# Scoring: the order of cosines, and the results of a search.
#
# Both take chunks of pairs of texts, so memory holds only some numbers of each pair; vectors are on
# disk.
#
# Shape legend: N texts, D numbers of a vector, Q queries.

#: Chunks of pairs: the first texts, the second ones, and the scores (empty: none).
Chunks = Iterable[tuple[list[Features], list[Features], list[float]]]
#: The number of results of a search, and the ranks that are scored.
_TOP, _PLACES = 100, 10
#: Queries that are searched at once.
_QUERIES = 256


def score_order(embedder: Embedder, chunks: Chunks) -> SimilarityReport:
    """Compute the correlations of the cosines of pairs with their scores.

    Raises:
        BertineError: there are no pairs.
    """
    cosines: list[np.ndarray] = []
    truth: list[np.ndarray] = []
    for firsts, seconds, scores in chunks:
        vectors = unit(embedder.run([*firsts, *seconds]))
        cosines.append((vectors[: len(firsts)] * vectors[len(firsts) :]).sum(1))
        truth.append(np.array(scores))
    if not cosines:
        raise BertineError("there are no pairs to evaluate on")
    result = regression_scores(np.concatenate(truth).tolist(), np.concatenate(cosines).tolist())
    metrics = {name: result[name] for name in ("spearman", "pearson")}
    return SimilarityReport(num_examples=sum(map(len, truth)), metrics=metrics)


def score_search(
    embedder: Embedder, chunks: Chunks, baselines: Iterable[PairRow] | None = None
) -> SimilarityReport:
    """Score how well a search for each first text finds its second texts among all distinct second
    texts.

    nDCG@10 with one grade (Järvelin and Kekäläinen 2002), the mean of 1 over the place of the first
    right one among ten (MRR@10), and the share of the right ones among the first 1, 10 and 100
    (recall). A query never finds its own text.

    Args:
        baselines: the pairs of the chunks as texts; then a search by words (BM25), and one by words
            and vectors, are scored beside, in the notes.

    Raises:
        BertineError: there are no pairs; the package of the search by words is missing.
    """
    width = embedder.dimensions
    with (
        os_errors(tempfile.gettempdir(), "writing vectors there"),
        tempfile.TemporaryFile() as asked,
        tempfile.TemporaryFile() as searched,
    ):
        queries, texts = _Distinct(asked), _Distinct(searched)
        right: list[tuple[int, int]] = []
        for firsts, seconds, _ in chunks:
            ours, theirs = queries.add(firsts, embedder), texts.add(seconds, embedder)
            right += zip(ours, theirs, strict=True)
        if not right:
            raise BertineError("there are no queries to evaluate on")
        wanted: list[set[int]] = [set() for _ in queries.numbers]
        for query, text in right:
            wanted[query].add(text)
        by_words = None if baselines is None else _WordSearch(right, baselines)
        # Of the vectors, of the words, and of both.
        corpus, totals = texts.vectors(width), np.zeros((3, 5))
        own = [texts.numbers.get(number, -1) for number in queries.numbers]
        asking = queries.vectors(width)
        for start in range(0, len(wanted), _QUERIES):
            part = asking[start : start + _QUERIES]
            nearest = NearestRows(len(part), _TOP + 1)
            search_all(nearest, np.ascontiguousarray(part), corpus)
            for at, rows in enumerate(nearest.rows, start):
                orders = [rows.tolist()]
                if by_words is not None:
                    orders.append(by_words.search(at))
                    orders.append(joined(*orders)[0].tolist())
                # A query that is among the texts would find itself first, unless that is wanted.
                skipped = {own[at]} - wanted[at]
                for total, order in zip(totals, orders, strict=False):
                    hits = [row in wanted[at] for row in order if row not in skipped][:_TOP]
                    total += _scores(hits, len(wanted[at]))
    names = ("ndcg@10", "mrr@10", "recall@1", "recall@10", "recall@100")
    means, *others = (
        dict(zip(names, total.tolist(), strict=True)) for total in totals / len(wanted)
    )
    report = SimilarityReport(num_examples=len(wanted), num_texts=len(corpus), metrics=means)
    if by_words is not None:
        scores = [
            BaselineScore(name, metrics, by_words.seconds, 0, len(wanted))
            for name, metrics in zip((BY_WORDS, HYBRID), others, strict=True)
        ]
        report.notes += baseline_lines(means, names[:1], scores, len(names))
    return report


class _WordSearch:
    """A search by words for the queries of `pairs`, whose texts `right` numbers, from 0."""

    def __init__(self, right: Sequence[tuple[int, int]], pairs: Iterable[PairRow]) -> None:
        begun = time.perf_counter()
        self._queries: dict[int, str] = {}
        texts: dict[int, str] = {}
        for (query, text), row in zip(right, pairs, strict=True):
            self._queries.setdefault(query, row.texts[0])
            texts.setdefault(text, row.texts[1])
        self._index = WordIndex(texts.values())
        self.seconds = time.perf_counter() - begun

    def search(self, query: int) -> list[int]:
        """Return the best rows of a query."""
        begun = time.perf_counter()
        best = self._index.search(self._queries[query], _TOP + 1)
        self.seconds += time.perf_counter() - begun
        return [row for row, _ in best]


def _scores(hits: list[bool], wanted: int) -> np.ndarray:
    """Compute nDCG, reciprocal rank and three recalls of a query. `hits` marks the right results by
    rank, `wanted` is the number of right texts."""
    places = 1 / np.log2(np.arange(2, _PLACES + 2))
    first = np.array(hits[:_PLACES], dtype=bool)
    gain = places[: len(first)][first].sum() / places[:wanted].sum()
    ranks = np.flatnonzero(first)
    reciprocal = 1 / (ranks[0] + 1) if len(ranks) else 0.0
    return np.array([gain, reciprocal, *(sum(hits[:n]) / wanted for n in (1, 10, _TOP))])


class _Distinct:
    """Distinct texts and their vectors, which are appended to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.numbers: dict[int, int] = {}

    def add(self, texts: list[Features], embedder: Embedder) -> list[int]:
        """Return the index of each text among the distinct ones."""
        places, new = [], []
        for text in texts:
            number = text_number(text)
            if number not in self.numbers:
                self.numbers[number] = len(self.numbers)
                new.append(text)
            places.append(self.numbers[number])
        if new:
            self._file.write(unit(embedder.run(new)).tobytes())
        return places

    def vectors(self, width: int) -> np.ndarray:
        """Return all vectors of the file, fp32 [N, width]."""
        self._file.flush()
        return np.memmap(self._file, np.float32, "r", shape=(len(self.numbers), width))


_CHUNK = 1024
#: Kinds of rows that vectors are scored on.
JUDGED: tuple[PairKind, ...] = ("pairs", "scores")


def gives_vectors(model: object) -> bool:
    """Return whether `model` is an embedder, a directory of sentence-transformers, or a model of
    contrib that gives nothing else."""
    if isinstance(model, Embedder):
        return True
    if not isinstance(model, str | Path):
        return False
    if (kind := kind_of_model(model)) is not None:
        return "evaluate" not in registered("MODELS")[kind]
    return (locate(model) / MODULES).is_file()


def evaluate_vectors(
    model: Embedder | Path | str,
    data: Data,
    options: EvaluateOptions,
    *,
    show_progress: bool = True,
) -> SimilarityReport:
    """Score the vectors of `model`: on pairs with a score by the order of their cosines, on pairs
    of a text and its match by what a search for the first text finds among all second texts.

    Raises:
        BertineError: no such model or file, or one that has no pairs.
    """
    options.refuse_others("vectors", options.changed(), "this model gives vectors")
    rows = rows_to_score(data, options)
    if isinstance(model, Embedder) and options.dimensions is not None:
        raise BertineError(
            "the vectors of a loaded model cannot be shortened; load it with "
            f"{option('dimensions')}"
        )
    how = {"device": options.device, "precision": options.precision}
    embedder = Embedder.opened(model, dimensions=options.dimensions, **how)
    report = score_rows(embedder, rows, show_progress=show_progress, baselines=options.baselines)
    report.notes += rows.notes()
    return report


def rows_to_score(data: Data, options: EvaluateOptions) -> PairRows:
    """Return the rows to score: those of a file or table, or of the validation file of a folder
    (of its test file if it has no other).

    Raises:
        BertineError: no such file.
    """
    return PairRows(evaluated_part(data), DataConfig.of(options, DEFAULTS))


def holds_text_pairs(data: Data, options: EvaluateOptions) -> bool:
    """Return whether `data` holds pairs of texts, by the names of its columns or those in the
    options."""
    try:
        columns = rows_to_score(data, options).open_columns()
    except BertineError:
        return False
    named = columns.texts in USUAL_PAIRS or bool(options.text_columns)
    return columns.kind == "scores" or (columns.kind == "pairs" and named)


def evaluated_part(data: Data) -> Source:
    """Return the validation (else test) file of a folder; a file or a table unchanged."""
    if isinstance(data, InMemoryTable):
        return data
    parts = find_splits(data)
    part = parts.validation or parts.test or parts.train
    if part is None:
        raise BertineError(f"{data}: has no file to evaluate on")
    return part


def score_rows(
    embedder: Embedder, rows: PairRows, *, show_progress: bool = True, baselines: bool = False
) -> SimilarityReport:
    """Score the vectors of `embedder` on the rows of a table, and `baselines` as
    :func:`score_search` does.

    Raises:
        BertineError: the rows are not pairs.
    """
    columns, source = rows.open_columns(), str(rows.source)
    if columns.kind not in JUDGED:
        raise BertineError(
            f"{source}: vectors are scored on pairs of texts, with a score or without; these are "
            f"{KINDS[columns.kind]}"
        )
    logger.info(columns.line(source))
    cut, unknown = 0, unknown_text(embedder)
    with text_progress("evaluate", rows.source, show=show_progress) as advance:

        def chunks() -> Iterator[tuple[list[Features], list[Features], list[float]]]:
            nonlocal cut
            listed = iter(rows)
            while part := list(islice(listed, _CHUNK)):
                texts_of = [[row.texts[n] for row in part] for n in (0, 1)]
                both = [embedder.features(texts) for texts in texts_of]
                if unknown is not None:
                    for features, texts in zip(both, texts_of, strict=True):
                        unknown.count(features, texts)
                cut += sum(text.num_truncated > 0 for texts in both for text in texts)
                yield both[0], both[1], [row.score for row in part if row.score is not None]
                advance(len(part))

        try:
            if columns.kind == "scores":
                report = score_order(embedder, chunks())
            else:
                report = score_search(embedder, chunks(), rows if baselines else None)
        except BertineError as error:
            if rows.read:
                raise
            raise BertineError(f"{source}: has no row to evaluate on") from error
    report.source = source
    if baselines and columns.kind == "scores":
        report.notes.append("no baselines: pairs with a score are not searched")
    if unknown is not None and (line := unknown.note()):
        report.notes.append(line)
    if cut:
        cut_at = f"cut at {embedder.max_length} pieces"
        report.notes.append(f"{plural(cut, 'text', 'was', 'were')} {cut_at}")
    return report
