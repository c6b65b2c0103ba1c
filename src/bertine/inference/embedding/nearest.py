"""The nearest rows of many vectors, by their cosines: exact, in bounded memory, a block at a time.

Shape legend: Q queries, N rows of a block, D numbers of a vector, T nearest rows of a query.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bertine.cores.launch import cores
from bertine.errors import BertineError
from bertine.inference.files.rows import unused
from bertine.options.names import option
from bertine.scores import ROUNDING, ranking
from bertine.terminal.shown import Shown

#: Vectors that are compared at once: few enough to stay in the cache of a core between the two
#: times that they are read (measured: 16,384 take four times as long).
BLOCK_ROWS = 1 << 10
#: Fewer vectors are not divided among threads.
_LEAST_SPAN = 1 << 14
#: Rows that are kept besides twice those that are asked for.
_SPARE = 16
#: No numbers of rows.
NO_ROWS = np.empty(0, dtype=np.int64)
#: The columns of a table of nearest rows, before those of the texts and of the queries.
COLUMNS = ("query_row", "query", "rank", "row", "score", "text")
#: The usual names of a column that says which row is meant, in lower case.
_IDS = ("id", "_id", "doc_id", "docid", "document_id", "uid", "uuid", "key")


class TextRow(NamedTuple):
    """A text and the other columns of its row, by name."""

    text: str
    columns: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Neighbour:
    """A row of the file.

    Attributes:
        row: its number among the texts, from 1 on.
        score: the cosine of its vector and the query's, at most 1.
        text: None where only vectors were given.
        columns: the other columns of its row, by name.
    """

    row: int
    score: float
    text: str | None
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(repr=False)
class Neighbours(Shown):
    """The nearest rows, best first; of equals (:func:`~bertine.scores.ranking`) the earlier one.

    Attributes:
        query: the text that was asked for.
        rows: compared.
        found: the best of them.
        notes: what was cut, or mended in the input.
        columns: the other columns of the query's row, by name.
    """

    query: str
    rows: int
    found: list[Neighbour]
    notes: list[str] = field(default_factory=list)
    columns: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self.found)

    def __getitem__(self, at: int) -> Neighbour:
        return self.found[at]

    def records(self, number: int = 1) -> list[dict[str, Any]]:
        """Return the nearest rows of the query of this number as ``pandas.DataFrame`` takes them:
        ``query_row``, ``query``, ``rank``, ``row``, ``score``, ``text``, then the columns of their
        rows (``found_`` before a name that is taken) and, each with ``query_`` before its name,
        those of the query's."""
        asked = {
            name: self.columns[column]
            for column, name in query_column_names([*self.columns]).items()
        }
        records = []
        for rank, each in enumerate(self.found, 1):
            values = (number, self.query, rank, each.row, round(each.score, 6), each.text)
            names = found_column_names([*each.columns], [*asked])
            own = {name: each.columns[column] for column, name in names.items()}
            records.append(dict(zip(COLUMNS, values, strict=True)) | own | asked)
        return records

    def lines(self) -> list[str]:
        """Return a line for each: score, row, what the table calls it, text."""
        return [
            f"{row.score:7.4f}  {row.row:>{len(str(self.rows))}}"
            + id_before(row.columns, "" if row.text is None else f"  {' '.join(row.text.split())}")
            for row in self.found
        ] + self.notes


def query_column_names(columns: Sequence[str]) -> dict[str, str]:
    """Return what the columns of the queries are called beside :data:`COLUMNS`."""
    names: dict[str, str] = {}
    for column in columns:
        names[column] = unused(f"query_{column}", {*COLUMNS, *names.values()}, "query_")
    return names


def found_column_names(columns: Sequence[str], asked: Sequence[str]) -> dict[str, str]:
    """Return what the columns of the texts are called beside :data:`COLUMNS` and those `asked`, of
    the queries: as they are, unless that is taken."""
    taken = {*COLUMNS, *asked}
    names = {column: column for column in columns if column not in taken}
    for column in columns:
        if column in taken:
            names[column] = unused(f"found_{column}", taken | {*names.values()}, "found_")
    return {column: names[column] for column in columns}


def id_before(columns: Mapping[str, Any], line: str) -> str:
    """Return a line with what stands in the column of a usual name for it before it, if there is
    one."""
    names = {str(column).strip().lower(): column for column in columns}
    found = next((names[usual] for usual in _IDS if usual in names), None)
    value = "" if found is None or columns[found] is None else str(columns[found]).strip()
    return f"  {value}{line}" if value else line


class NearestRows:
    """The T rows with the highest scores so far, for each of Q queries, best first; of scores that
    differ by rounding only the earlier row first. A score that is NaN or minus infinity is none.

    Args:
        queries: Q.
        top: T.
        tolerance: of :func:`~bertine.scores.ranking`.

    Attributes:
        top, tolerance: as given.
        documents: the rows that may be among the best of any query, by number from 0 on, where
            they are given.
        seen: rows so far.
    """

    def __init__(self, queries: int, top: int, tolerance: float = ROUNDING) -> None:
        self.top, self.tolerance = top, tolerance
        self.documents: dict[int, TextRow] = {}
        self.seen = 0
        #: Those that may be among the best, in any order. More than T, as a later row can link two
        #: scores (they differ by rounding only), and so decide which of them comes first.
        self._scores = [np.empty(0, dtype=np.float32) for _ in range(queries)]
        self._rows = [np.empty(0, dtype=np.int64) for _ in range(queries)]
        self._kept = 2 * top + _SPARE
        #: Rows and scores in order, until more are added.
        self._found: tuple[list[np.ndarray], list[np.ndarray]] | None = None
        #: What a score must be above to be one of those; of equals the earlier row is there.
        self._bar = np.full(queries, -np.inf, dtype=np.float32)

    def add(self, scores: np.ndarray, documents: Sequence[TextRow] | None = None) -> None:
        """Add the `scores` fp32 [Q, N] of the next N rows, and what stands in these."""
        better = scores > self._bar[:, None]
        for query in np.flatnonzero(better.any(1)).tolist():
            at = np.flatnonzero(better[query])
            self._merge(query, scores[query, at], self.seen + at)
        if documents is not None:
            self._keep(documents)
        self.seen += scores.shape[1]

    def add_rows(self, query: int, rows: np.ndarray, scores: np.ndarray) -> None:
        """Add `scores` fp32 [N] of rows that are found in another way than one after the other,
        with their numbers `rows` [N], to one query."""
        known = ~np.isnan(scores)
        self._merge(query, scores[known], rows[known])

    def _merge(self, query: int, scores: np.ndarray, rows: np.ndarray) -> None:
        self._scores[query] = np.concatenate([self._scores[query], scores])
        self._rows[query] = np.concatenate([self._rows[query], rows])
        self._found = None
        if len(self._rows[query]) > 2 * self._kept:  # ordering them at each call would take longer
            self._rows[query], self._scores[query] = self._best(query, self._kept)
            self._bar[query] = self._scores[query].min()

    def _best(self, query: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the `count` best of the rows that are kept of a query, and their scores."""
        by_row = np.argsort(self._rows[query])
        rows, scores = self._rows[query][by_row], self._scores[query][by_row]
        order = ranking(scores, count, tolerance=self.tolerance)
        return rows[order], scores[order]

    @property
    def rows(self) -> list[np.ndarray]:
        """Of each query the numbers of its best rows from 0 on, int64 [at most T]."""
        return self._ranked()[0]

    @property
    def scores(self) -> list[np.ndarray]:
        """Of each query the scores of its best rows, fp32 [at most T]."""
        return self._ranked()[1]

    def _ranked(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        if self._found is None:
            best = [self._best(query, self.top) for query in range(len(self._rows))]
            self._found = [rows for rows, _ in best], [scores for _, scores in best]
        return self._found

    def add_all(self, later: NearestRows) -> None:
        """Add what was found among the rows behind those so far."""
        for query, (scores, rows) in enumerate(zip(later._scores, later._rows, strict=True)):
            self._merge(query, scores, self.seen + rows)
        self.seen += later.seen

    def _keep(self, documents: Sequence[TextRow]) -> None:
        kept = set(np.concatenate(self._rows).tolist()) if self._rows else set()
        self.documents = {
            row: documents[row - self.seen] if row >= self.seen else self.documents[row]
            for row in kept
        }

    def neighbours(self, query: int) -> list[Neighbour]:
        """Return the best rows of a query."""
        return [
            Neighbour(row + 1, min(1.0, score), *self.documents.get(row, (None, {})))
            for row, score in zip(
                self.rows[query].tolist(), self.scores[query].tolist(), strict=True
            )
        ]


def lengths(vectors: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """Compute the lengths fp32 [N] of `vectors` fp32 [N, D]; that of a vector of zeros is given as
    1, so that one can divide by it.

    Args:
        rows: the numbers of their rows from 0 on, int64 [N], for messages.
        name: of the table of vectors, for messages.

    Raises:
        BertineError: a number is NaN or infinite, or too large to be squared.
    """
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    if not np.isfinite(norms).all():
        row = int(rows[np.flatnonzero(~np.isfinite(norms))[0]]) + 1
        raise BertineError(
            f"{name}: the vector of row {row:,} has a number that is NaN, infinite or too large to "
            f"be squared; embed the texts again, in fp32 ({option('precision', 'fp32')})"
        )
    return np.where(norms > 0, norms, np.float32(1.0))


def cosines_with(asked: np.ndarray, vectors: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """Compute the cosines fp32 [Q, N] of `asked` fp32 [Q, D], of length 1, and `vectors` [N, D] of
    any length; that of a vector of zeros is 0.

    Args:
        rows: the numbers of the vectors' rows from 0 on, int64 [N], for messages.
        name: of their table, for messages.

    Raises:
        BertineError: a number is NaN or infinite.
    """
    part = np.asarray(vectors, dtype=np.float32)
    # The scores are divided, not the vectors, which are D times as many numbers.
    scores: np.ndarray = asked @ part.T
    scores /= lengths(part, rows, name)
    return scores


def search_all(
    nearest: NearestRows,
    asked: np.ndarray,
    vectors: np.ndarray,
    advance: Callable[[int], None] = lambda count: None,
    name: str = "vectors",
    left_out: np.ndarray = NO_ROWS,
) -> None:
    """Compare `asked` fp32 [Q, D], of length 1, with all `vectors` [rows, D], which may be on disk.

    Args:
        nearest: of Q queries; gets the rows.
        advance: called with how many more rows are done, by one thread at a time.
        name: of the table of vectors, for messages.
        left_out: the numbers of rows that are not compared, from 0 on, in order.

    Raises:
        BertineError: a number is NaN or infinite.
    """
    lock, stop = Lock(), Event()

    def search(bounds: tuple[int, int]) -> NearestRows:
        """Find the nearest rows of one part."""
        own = NearestRows(len(asked), nearest.top, nearest.tolerance)
        try:
            for start in range(*bounds, BLOCK_ROWS):
                if stop.is_set():
                    break
                rows = np.arange(start, min(start + BLOCK_ROWS, bounds[1]))
                scores = cosines_with(asked, vectors[start : start + len(rows)], rows, name)
                first, last = np.searchsorted(left_out, (start, start + len(rows)))
                scores[:, left_out[first:last] - start] = np.nan
                own.add(scores)
                with lock:
                    advance(len(rows))
        except BaseException:
            stop.set()  # the other parts end at their next block
            raise
        return own

    # A thread for each part: those of the library of matrix products would wait for one another at
    # each block, which takes several times as long where other work has a core.
    spans = min(cores(), max(1, len(vectors) // _LEAST_SPAN))
    bounds = [len(vectors) * at // spans for at in range(spans + 1)]
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(spans) as pool:
        try:
            for found in pool.map(search, itertools.pairwise(bounds)):
                nearest.add_all(found)
        finally:
            stop.set()  # Ctrl-C while the parts are waited for


def search_rows(
    nearest: NearestRows,
    asked: np.ndarray,
    vectors: np.ndarray,
    rows: Iterable[np.ndarray],
    name: str,
) -> None:
    """Compare each of `asked` fp32 [Q, D], of length 1, with some rows of `vectors` [rows, D].

    Args:
        nearest: of Q queries; gets the rows.
        rows: for each query the numbers of its rows, int64 [N].
        name: of the table of vectors, for messages.

    Raises:
        BertineError: a number is NaN or infinite.
    """
    for query, chosen in enumerate(rows):
        ordered = np.sort(chosen)
        scores = cosines_with(asked[query : query + 1], vectors[ordered], ordered, name)
        nearest.add_rows(query, ordered, scores[0])
    nearest.seen = len(vectors)
