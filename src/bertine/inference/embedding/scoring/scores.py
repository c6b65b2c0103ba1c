"""Score vectors: by the order of cosines, and by what a search finds.

Both take chunks of pairs of texts, so that of any number of them only vectors on disk and some
numbers for each are kept.

Shape legend: N texts, D numbers of a vector, Q queries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np

from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.inference.embedding.embedder import Embedder, unit
from bertine.inference.embedding.nearest import NearestRows, search_all
from bertine.inference.embedding.scoring.report import SimilarityReport
from bertine.tasks.features import Features, text_number
from bertine.tasks.metrics import regression_scores

#: Chunks of pairs: the first texts, the second ones, and the scores (empty: none).
Chunks = Iterable[tuple[list[Features], list[Features], list[float]]]
#: How far a search goes, and the places that are scored.
_TOP, _PLACES = 100, 10
#: Queries that are searched for at once.
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
    found = regression_scores(np.concatenate(truth).tolist(), np.concatenate(cosines).tolist())
    metrics = {name: found[name] for name in ("spearman", "pearson")}
    return SimilarityReport(num_examples=sum(map(len, truth)), metrics=metrics)


def score_search(embedder: Embedder, chunks: Chunks) -> SimilarityReport:
    """Compute how well each first text finds its second ones among all different second texts.

    nDCG@10 with one grade (Järvelin and Kekäläinen 2002), the mean of 1 over the place of the first
    right one among ten (MRR@10), and the share of the right ones among the first 1, 10 and 100
    (recall). The query's own text is not found by itself.

    Raises:
        BertineError: there are no pairs.
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
        corpus, total = texts.vectors(width), np.zeros(5)
        own = [texts.numbers.get(number, -1) for number in queries.numbers]
        asking = queries.vectors(width)
        for start in range(0, len(wanted), _QUERIES):
            part = asking[start : start + _QUERIES]
            nearest = NearestRows(len(part), _TOP + 1)
            search_all(nearest, np.ascontiguousarray(part), corpus)
            for at, rows in enumerate(nearest.rows):
                needed = wanted[start + at]
                # A query that stands among the texts finds itself first, unless that is wanted.
                itself = own[start + at]
                skipped = {itself} - needed
                hits = [row in needed for row in rows.tolist() if row not in skipped][:_TOP]
                total += _scores(hits, len(needed))
    names = ("ndcg@10", "mrr@10", "recall@1", "recall@10", "recall@100")
    means = dict(zip(names, (total / len(wanted)).tolist(), strict=True))
    return SimilarityReport(num_examples=len(wanted), num_texts=len(texts.numbers), metrics=means)


def _scores(hits: list[bool], wanted: int) -> np.ndarray:
    """Return nDCG, reciprocal rank and three recalls of a query; `hits` says of each place whether
    what is found there is right, `wanted` how many right ones there are."""
    places = 1 / np.log2(np.arange(2, _PLACES + 2))
    first = np.array(hits[:_PLACES], dtype=bool)
    gain = places[: len(first)][first].sum() / places[:wanted].sum()
    ranks = np.flatnonzero(first)
    reciprocal = 1 / (ranks[0] + 1) if len(ranks) else 0.0
    return np.array([gain, reciprocal, *(sum(hits[:n]) / wanted for n in (1, 10, _TOP))])


class _Distinct:
    """Different texts and their vectors, which go into a file as they come."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.numbers: dict[int, int] = {}

    def add(self, texts: list[Features], embedder: Embedder) -> list[int]:
        """Return the place of each text among the different ones."""
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
        """Return all vectors, fp32 [N, width], of the file."""
        self._file.flush()
        return np.memmap(self._file, np.float32, "r", shape=(len(self.numbers), width))
