"""What vectors are judged by while they are trained: rows of a file, or pairs held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertine.errors import BertineError
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.scoring.evaluate_vectors import (
    JUDGED,
    evaluated_part,
    score_rows,
)
from bertine.inference.embedding.scoring.report import SimilarityReport
from bertine.inference.embedding.scoring.scores import score_order, score_search
from bertine.names import PairKind
from bertine.options.similarity import SimilarityOptions
from bertine.records.text_pairs import KINDS, PairRows
from bertine.tables.given import Source, TableLike, as_data
from bertine.tasks.features import Features
from bertine.terminal.console import quietly, warn
from bertine.training.similarity.pair_file import PairFile

#: Rows whose vectors are computed at once.
_CHUNK = 1024


@dataclass(frozen=True)
class Judge:
    """What a model is judged by.

    Attributes:
        score: what gives its scores.
        metric: the one of them that decides, the higher the better.
        fingerprint: of the file; empty where pairs are held out.
    """

    score: Callable[[Embedder], SimilarityReport]
    metric: str
    fingerprint: str = ""

    @classmethod
    def of_rows(cls, rows: PairRows) -> Judge:
        """Return what judges by the rows of a file.

        Raises:
            BertineError: no row has both texts, and the score where there are scores.
        """
        fingerprint = rows.fingerprint()
        for note in rows.notes():
            warn(note)
        if rows.read == 0:
            raise BertineError(f"{rows.source}: has no row to judge by")

        def score(embedder: Embedder) -> SimilarityReport:
            with quietly():
                return score_rows(embedder, rows, show_progress=False)

        return cls(score, _metric(rows.open_columns().kind), fingerprint)

    @classmethod
    def of_held_out(cls, file: PairFile, rows: list[int], kind: PairKind) -> Judge:
        """Return what judges by some rows of the training file, which is open."""
        scored = score_order if kind == "scores" else score_search
        return cls(lambda embedder: scored(embedder, _chunks(file, rows)), _metric(kind))


def _metric(kind: PairKind) -> str:
    return "spearman" if kind == "scores" else "ndcg@10"


def _chunks(
    file: PairFile, rows: list[int]
) -> Iterator[tuple[list[Features], list[Features], list[float]]]:
    """Yield some rows of a file as what vectors are scored on."""
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        texts = list(file.read(part))
        scores = file.records(part)["score"].tolist()
        yield [found[0] for found in texts], [found[1] for found in texts], scores


def training_rows(source: Source, options: SimilarityOptions) -> PairRows:
    """Return the rows of a file, read as the options say."""
    return PairRows(
        source,
        format=options.format,
        quotes=options.quotes,
        strict=options.strict,
        asked={
            "kind": options.kind,
            "text_columns": options.text_columns,
            "label_column": options.label_column,
            "negative_columns": options.negative_columns,
        },
    )


def validation_rows(
    own: Source | None, given: Path | str | TableLike | None, options: SimilarityOptions
) -> PairRows | None:
    """Return the rows that the model is judged on; None: a part of the training rows.

    Args:
        own: the validation file of the folder of data, read as the training file is.
        given: by the user, in which columns may have other names.

    Raises:
        BertineError: no such file; it has no pairs.
    """
    if given is None:
        if own is None:
            return None
        rows = training_rows(own, options)
        if rows.open_columns().kind not in JUDGED:
            warn(f"{own}: has no pairs, on which vectors are judged; it is left out")
            return None
        return rows
    rows = training_rows(evaluated_part(as_data(given)), options)
    names = rows.names()
    if options.kind not in JUDGED:
        rows.asked["kind"] = None
    for key in ("text_columns", "label_column", "negative_columns"):
        value = rows.asked[key]
        listed = [value] if isinstance(value, str) else [*(value or ())]
        if not {*listed} <= {*names}:
            rows.asked[key] = None
    kind = rows.open_columns().kind
    if kind not in JUDGED:
        raise BertineError(
            f"{rows.source}: vectors are judged on pairs of texts, with a score or without; these "
            f"are {KINDS[kind]}"
        )
    return rows
