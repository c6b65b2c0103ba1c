"""Search for the nearest vectors by cosine: exactly a block at a time, or by an index of faiss.

The exact search reads all vectors in bounded memory. The approximate search reads a part of them
and reports its measured recall; ``index_vectors`` makes its index.

Shape legend: Q queries, N rows of a block, D numbers of a vector, T nearest rows of a query.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bertine.core.console import Report, ReportOf, human_time, plural, progress
from bertine.core.cpu import cores
from bertine.core.errors import BertineError, require_packages
from bertine.core.files import (
    atomic_dir,
    check_replaceable,
    read_json_object,
    sha256_file,
    write_json,
)
from bertine.core.foreign_files import reading_outside
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.scores import ROUNDING, ranking
from bertine.core.strict_json import Readable
from bertine.core.text import cut
from bertine.inference.embedding.vector_files import open_vectors
from bertine.inference.rows import unused
from bertine.options.vectors import IndexOptions
from bertine.options.verbs import takes_options

#: Vectors that are compared at once: few enough to stay in the cache of a core between the two
#: times that they are read (measured: 16,384 take four times as long).
BLOCK_ROWS = 1 << 10
#: Fewer vectors are not divided among threads.
_LEAST_SPAN = 1 << 14
#: Rows that are kept in addition to twice the number asked for.
_SPARE = 16
#: Characters of a text that are shown.
_SHOWN = 200
#: An empty array of row numbers.
NO_ROWS = np.empty(0, dtype=np.int64)
#: The columns of a table of nearest rows, before those of the texts and of the queries.
COLUMNS = ("query_row", "query", "rank", "row", "score", "text")
#: Usual names of a column that identifies a row, in lower case.
_IDS = ("id", "_id", "doc_id", "docid", "document_id", "uid", "uuid", "key")


class TextRow(NamedTuple):
    """A text and the other columns of its row, by name; of a passage also the number of its
    document, from 1."""

    text: str
    columns: Mapping[str, Any] = {}
    document: int | None = None


@dataclass(frozen=True)
class Neighbour:
    """A row of the file with its score.

    Attributes:
        row: its number among the texts, from 1; that of its document for a passage.
        index: the same from 0, for texts in memory.
        score: the cosine of its vector and the query's, at most 1; or with words the sum of the
            reciprocal ranks.
        text: None where only vectors were given.
        columns: the other columns of its row, by name.
    """

    row: int
    score: float
    text: str | None
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def index(self) -> int:
        return self.row - 1


@dataclass(repr=False)
class Neighbours(ReportOf[Neighbour]):
    """The nearest rows, best first; the earlier of equals (:func:`~bertine.core.scores.ranking`).

    Attributes:
        query: the text that was searched for.
        rows: the number of rows that were compared.
        found: the best rows.
        notes: notes on what was cut, or repaired in the input.
        columns: the other columns of the query's row, by name.
        in_memory: whether the texts are in memory, so that rows are shown by their index.
    """

    query: str
    rows: int
    found: list[Neighbour]
    notes: list[str] = field(default_factory=list)
    columns: Mapping[str, Any] = field(default_factory=dict)
    in_memory: bool = False

    holds = "found"

    def records(self, number: int = 1) -> list[dict[str, Any]]:
        """Return the nearest rows of query number `number` in a form for ``pandas.DataFrame``:
        ``query_row``, ``query``, ``rank``, ``row``, ``score``, ``text``, then the columns of their
        rows (``found_`` before a name that is taken) and, each with ``query_`` before its name,
        those of the query's."""
        asked = {
            name: self.columns[column]
            for column, name in query_column_names([*self.columns]).items()
        }
        records = []
        for rank, item in enumerate(self.found, 1):
            values = (number, self.query, rank, item.row, round(item.score, 6), item.text)
            names = found_column_names([*item.columns], [*asked])
            own = {name: item.columns[column] for column, name in names.items()}
            records.append(dict(zip(COLUMNS, values, strict=True)) | own | asked)
        return records

    def lines(self) -> list[str]:
        """Return a line for each row: score, row number (in memory its index, in brackets), its id
        in the table, the beginning of its text."""
        width = len(str(self.rows))
        return [
            f"{row.score:7.4f}  "
            + (f"[{row.index}]".rjust(width + 2) if self.in_memory else f"{row.row:>{width}}")
            + id_before(
                row.columns,
                "" if row.text is None else "  " + cut(" ".join(row.text.split()), _SHOWN),
            )
            for row in self.found
        ] + self.notes


def query_column_names(columns: Sequence[str]) -> dict[str, str]:
    """Return the names of the queries' columns in a table with :data:`COLUMNS`."""
    names: dict[str, str] = {}
    for column in columns:
        names[column] = unused(f"query_{column}", {*COLUMNS, *names.values()}, "query_")
    return names


def found_column_names(columns: Sequence[str], asked: Sequence[str]) -> dict[str, str]:
    """Return the names of the texts' columns in a table with :data:`COLUMNS` and those `asked`, of
    the queries: unchanged, unless the name is taken."""
    taken = {*COLUMNS, *asked}
    names = {column: column for column in columns if column not in taken}
    for column in columns:
        if column in taken:
            names[column] = unused(f"found_{column}", taken | {*names.values()}, "found_")
    return {column: names[column] for column in columns}


def id_before(columns: Mapping[str, Any], line: str) -> str:
    """Return a line with the value of an id column before it, if there is one."""
    names = {str(column).strip().lower(): column for column in columns}
    result = next((names[usual] for usual in _IDS if usual in names), None)
    value = "" if result is None or columns[result] is None else str(columns[result]).strip()
    return f"  {value}{line}" if value else line


class NearestRows:
    """The T rows with the highest scores so far, for each of Q queries, best first; of scores that
    differ by rounding only the earlier row first. A score that is NaN or minus infinity is ignored.

    Args:
        queries: the number of queries, Q.
        top: the number of rows to keep, T.
        tolerance: the tolerance of :func:`~bertine.core.scores.ranking`.

    Attributes:
        top, tolerance: as given.
        documents: the rows that may be among the best of any query, by number from 0, where they
            are given.
        seen: the number of rows so far.
    """

    def __init__(self, queries: int, top: int, tolerance: float = ROUNDING) -> None:
        self.top, self.tolerance = top, tolerance
        self.documents: dict[int, TextRow] = {}
        self.seen = 0
        #: Rows that may be among the best, in any order. More than T, as a later row can link two
        #: scores (they differ by rounding only), and so decide which of them comes first.
        self._scores = [np.empty(0, dtype=np.float32) for _ in range(queries)]
        self._rows = [np.empty(0, dtype=np.int64) for _ in range(queries)]
        self._kept = 2 * top + _SPARE
        #: Rows and scores in order, until more are added.
        self._found: tuple[list[np.ndarray], list[np.ndarray]] | None = None
        #: The score that a new row must exceed; a row with an equal score came earlier.
        self._bar = np.full(queries, -np.inf, dtype=np.float32)

    def add(self, scores: np.ndarray, documents: Sequence[TextRow] | None = None) -> None:
        """Add the `scores` fp32 [Q, N] of the next N rows, and the rows themselves."""
        better = scores > self._bar[:, None]
        for query in np.flatnonzero(better.any(1)).tolist():
            at = np.flatnonzero(better[query])
            self._merge(query, scores[query, at], self.seen + at)
        if documents is not None:
            self._keep(documents)
        self.seen += scores.shape[1]

    def add_rows(self, query: int, rows: np.ndarray, scores: np.ndarray) -> None:
        """Add `scores` fp32 [N] of arbitrary rows, numbered `rows` [N], to one query."""
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
        """Return the `count` best of the rows kept for a query, and their scores."""
        by_row = np.argsort(self._rows[query])
        rows, scores = self._rows[query][by_row], self._scores[query][by_row]
        order = ranking(scores, count, tolerance=self.tolerance)
        return rows[order], scores[order]

    @property
    def rows(self) -> list[np.ndarray]:
        """The row numbers of each query's best rows, from 0, int64 [at most T]."""
        return self._ranked()[0]

    @property
    def scores(self) -> list[np.ndarray]:
        """The scores of each query's best rows, fp32 [at most T]."""
        return self._ranked()[1]

    def _ranked(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        if self._found is None:
            best = [self._best(query, self.top) for query in range(len(self._rows))]
            self._found = [rows for rows, _ in best], [scores for _, scores in best]
        return self._found

    def add_all(self, later: NearestRows) -> None:
        """Add the results of another search, over the rows that follow those so far."""
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
        result = []
        for row, score in zip(self.rows[query].tolist(), self.scores[query].tolist(), strict=True):
            text, columns, document = self.documents.get(row, (None, {}, None))
            result.append(Neighbour(document or row + 1, min(1.0, score), text, columns))
        return result


def lengths(vectors: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """Compute the lengths fp32 [N] of `vectors` fp32 [N, D]; that of a zero vector is given as 1,
    so that it can be a divisor.

    Args:
        rows: their row numbers from 0, int64 [N], for messages.
        name: the name of the table of vectors, for messages.

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
        rows: the row numbers of the vectors from 0, int64 [N], for messages.
        name: the name of their table, for messages.

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
        nearest: collects the rows, for Q queries.
        advance: called with the number of further rows done, by one thread at a time.
        name: the name of the table of vectors, for messages.
        left_out: the numbers of rows that are not compared, from 0, in order.

    Raises:
        BertineError: a number is NaN or infinite.
    """
    lock, stop = Lock(), Event()

    def search(bounds: tuple[int, int]) -> NearestRows:
        """Search one part of the vectors."""
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

    # A thread for each part: the threads of the matrix library would wait for one another at each
    # block, which takes several times as long where other work has a core.
    spans = min(cores(), max(1, len(vectors) // _LEAST_SPAN))
    bounds = [len(vectors) * at // spans for at in range(spans + 1)]
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(spans) as pool:
        try:
            for result in pool.map(search, itertools.pairwise(bounds)):
                nearest.add_all(result)
        finally:
            stop.set()  # Ctrl-C while waiting for the parts


def search_rows(
    nearest: NearestRows,
    asked: np.ndarray,
    vectors: np.ndarray,
    rows: Iterable[np.ndarray],
    name: str,
) -> None:
    """Compare each of `asked` fp32 [Q, D], of length 1, with some rows of `vectors` [rows, D].

    Args:
        nearest: collects the rows, for Q queries.
        rows: the row numbers of each query, int64 [N].
        name: the name of the table of vectors, for messages.

    Raises:
        BertineError: a number is NaN or infinite.
    """
    for query, chosen in enumerate(rows):
        ordered = np.sort(chosen)
        scores = cosines_with(asked[query : query + 1], vectors[ordered], ordered, name)
        nearest.add_rows(query, ordered, scores[0])
    nearest.seen = len(vectors)


# Index: approximate search by faiss, with a measured recall.
#
# The vectors are divided into lists around centroids, each number in 8 bits ("IVF", "SQ8": Jégou et
# al. 2011; Douze et al. 2024, arXiv 2401.08281). A search reads the lists nearest to the query, and
# compares the best candidates with the exact vectors in their file, so scores are exact, and only
# rows can be missed. The number of lists to read is chosen when the index is made, so that enough
# of the nearest rows are found (`recall`).
#
# Shape legend: N vectors, D numbers of each, Q queries.

#: The advice where an index cannot be used.
_AGAIN = "make the index again"
#: Files of an index's folder.
DESCRIPTION, LISTS = "index.json", "lists.faiss"
#: Version of the layout of the folder; a reader refuses other versions.
_FORMAT = 1
#: The number of lists as a multiple of the square root of N; and the vectors of each from which the
#: centroids are learned (faiss wants at least 39).
_LISTS, _LEARNED = 2.0, 64
#: Fewer vectors than this are compared one by one as fast.
LEAST_ROWS = 10_000
#: Vectors that are added at once.
_PART = 1 << 14
#: Queries that the recall is measured with, and nearest rows of each.
_QUERIES, _NEAREST = 200, 10
#: Candidates for each of the nearest rows, whose exact vectors are compared; and the minimum.
_CANDIDATES, _LEAST_CANDIDATES = 4, 64


@dataclass(frozen=True)
class IndexDescription(Readable):
    """The description of an index, in ``index.json``.

    Attributes:
        rows, dimensions: N and D.
        lists: the number of lists into which the vectors are divided.
        read: the number of lists that a search reads.
        recall: the share of the ten nearest vectors that a search finds, over 200 of the vectors as
            queries, each without itself.
        wanted: the recall that was asked for.
        vectors: SHA-256 of the shape and the numbers of the vectors, as hex digits.
        sha256: the SHA-256 of the file of lists.
    """

    rows: int
    dimensions: int
    lists: int
    read: int
    recall: float
    wanted: float
    vectors: str
    sha256: str


class VectorIndex:
    """An open index and its file of vectors. Several threads may search.

    Attributes:
        description: the description of the index.
    """

    def __init__(
        self, description: IndexDescription, lists: Any, vectors: np.ndarray, name: str
    ) -> None:
        self.description, self._lists = description, lists
        self._vectors, self._name = vectors, name

    @classmethod
    def build(
        cls,
        vectors: np.ndarray,
        *,
        recall: float,
        seed: int = 0,
        name: str = "vectors",
        advance: Callable[[int], None] = lambda count: None,
    ) -> VectorIndex:
        """Build an index of `vectors` [N, D], which may be on disk; memory holds a byte for each of
        their numbers, and the vectors from which the centroids are learned.

        Args:
            recall: the share of the nearest rows that a search should find.
            seed: the random seed.
            name: the name of the vectors, for messages.
            advance: called with the number of vectors added.

        Raises:
            BertineError: there are fewer than 10,000 vectors; a number is NaN or infinite; faiss is
                missing.
        """
        faiss = _faiss()
        rows, dimensions = vectors.shape
        if rows < LEAST_ROWS:
            raise BertineError(
                f"{name}: has {rows:,} vectors; fewer than {LEAST_ROWS:,} are compared one by one "
                "as fast, so search them without an index"
            )
        count = max(1, round(_LISTS * math.sqrt(rows)))
        lists = faiss.index_factory(dimensions, f"IVF{count},SQ8", faiss.METRIC_INNER_PRODUCT)
        lists.cp.seed = seed + 1
        draw = generator(seed, "vectors of an index")
        learned = np.sort(draw.choice(rows, min(rows, _LEARNED * count), replace=False))
        lists.train(_unit(vectors[learned], name, learned))
        digest = _begin_digest(vectors)
        for start in range(0, rows, _PART):
            # A copy, so that the digest is that of the added vectors even while the file is written
            # to.
            part = np.array(vectors[start : start + _PART], order="C")
            digest.update(part.data)
            lists.add(_unit(part, name, np.arange(start, start + len(part))))
            advance(len(part))
        unread = IndexDescription(
            rows, dimensions, count, 1, 0.0, recall, digest.hexdigest(), sha256=""
        )
        index = cls(unread, lists, vectors, name)
        index._choose_read(np.sort(draw.choice(rows, min(rows, _QUERIES), replace=False)))
        return index

    def _choose_read(self, queries: np.ndarray) -> None:
        """Double the number of lists to read until the recall over the rows `queries` reaches
        `wanted`."""
        asked = _unit(self._vectors[queries], self._name, queries)
        exact = NearestRows(len(queries), _NEAREST + 1)
        search_all(exact, asked, self._vectors, name=self._name)
        truth = [_without(rows, own) for rows, own in zip(exact.rows, queries, strict=True)]
        read, result = 1, 0.0
        while True:
            self.description = dataclasses.replace(self.description, read=read)
            near = self.search(asked, _NEAREST + 1)
            hits = sum(
                len(np.intersect1d(_without(rows, own), right))
                for rows, own, right in zip(near.rows, queries, truth, strict=True)
            )
            result = hits / sum(map(len, truth))
            if result >= self.description.wanted or read == self.description.lists:
                break
            read = min(2 * read, self.description.lists)
        self.description = dataclasses.replace(self.description, recall=result)

    def search(
        self,
        asked: np.ndarray,
        top: int,
        tolerance: float = ROUNDING,
        left_out: np.ndarray = NO_ROWS,
    ) -> NearestRows:
        """Return the `top` nearest rows of `asked` fp32 [Q, D], of length 1, with their exact
        cosines. Some of the nearest may be missing, but there are `top` rows, or all rows but those
        `left_out`. Among cosines within the `tolerance` of :func:`~bertine.core.scores.ranking` the
        earlier row is first."""
        there = self.description.rows - len(left_out)
        wanted = min(top, there)
        candidates = min(max(_CANDIDATES * top, _LEAST_CANDIDATES), there)
        nearest = NearestRows(len(asked), top, tolerance)
        if not there:
            nearest.seen = self.description.rows
            return nearest
        queries = np.ascontiguousarray(asked, dtype=np.float32)
        read = self.description.read
        rows = self._candidates(queries, candidates, read, left_out)
        # -1: the lists that were read have fewer vectors. Where they have too few, read more.
        while len(short := np.flatnonzero((rows >= 0).sum(1) < wanted)):
            if read == self.description.lists:
                raise BertineError(f"the index of {self._name} is damaged; {_AGAIN}")
            read = min(2 * read, self.description.lists)
            rows[short] = self._candidates(queries[short], candidates, read, left_out)
        chosen = (row[row >= 0] for row in rows)
        search_rows(nearest, asked, self._vectors, chosen, self._name)
        return nearest

    def _candidates(
        self, queries: np.ndarray, count: int, read: int, left_out: np.ndarray
    ) -> np.ndarray:
        """Return the rows int64 [Q, `count`] that are nearest by `read` lists, without those
        `left_out`; -1 where there are no more."""
        faiss = _faiss()
        chosen = faiss.IDSelectorNot(faiss.IDSelectorBatch(left_out)) if len(left_out) else None
        reading = faiss.SearchParametersIVF(nprobe=read, sel=chosen)
        rows: np.ndarray
        _, rows = self._lists.search(queries, count, params=reading)
        return rows

    def notes(self, top: int) -> list[str]:
        """Return notes on a search for `top` rows."""
        note = (
            f"searched by an index, which finds {100 * self.description.recall:.1f}% of the ten "
            "nearest rows"
        )
        return [note + (f"; how many of {top:,} was not measured" if top > _NEAREST else "")]

    def write(self, folder: Path) -> None:
        """Write the index into `folder`."""
        _faiss().write_index(self._lists, str(folder / LISTS))
        self.description = dataclasses.replace(self.description, sha256=sha256_file(folder / LISTS))
        write_json(folder / DESCRIPTION, {"format": _FORMAT} | self.description.to_dict())

    @classmethod
    def read(cls, folder: Path | str, vectors: np.ndarray, name: Path | str) -> VectorIndex:
        """Open the index in `folder`, made from `vectors` [N, D].

        Args:
            name: the name of the file of vectors, for messages.

        Raises:
            BertineError: there is no index; it is damaged, of another version, or of other vectors;
                faiss is missing.
        """
        description = read_description(folder)
        lists = Path(folder) / LISTS
        if not lists.is_file():
            raise BertineError(f"{folder}: has no {LISTS}; {_AGAIN}")
        # The file's time and size are no proof: writing through a mapping may change neither.
        if vectors.shape != (description.rows, description.dimensions) or (
            fingerprint(vectors) != description.vectors
        ):
            raise BertineError(
                f"{folder}: was made of other vectors than those of {name}; {_AGAIN}"
            )
        # Faiss trusts what it reads, so only files written here are given to it.
        if sha256_file(lists) != description.sha256:
            raise BertineError(f"{lists}: is damaged; {_AGAIN}")
        return cls(description, _read_lists(lists, description), vectors, str(name))


def _read_lists(path: Path, description: IndexDescription) -> Any:
    """Read the lists, which must hold each row once.

    Raises:
        BertineError: the lists are damaged, or ask for more memory than the file has bytes.
    """
    faiss = _faiss()
    with reading_outside(path, _AGAIN):
        if hasattr(faiss, "set_deserialization_vector_byte_limit"):  # from 1.15 on
            faiss.set_deserialization_vector_byte_limit(path.stat().st_size)
            faiss.set_deserialization_loop_limit(description.lists)
        opened = faiss.read_index(str(path))
        sizes = (opened.ntotal, opened.d, opened.nlist)
        if sizes != (description.rows, description.dimensions, description.lists):
            raise ValueError("other sizes")
        counts = np.zeros(description.rows, dtype=np.int64)
        for number in range(opened.nlist):
            if size := opened.invlists.list_size(number):
                counts[faiss.rev_swig_ptr(opened.invlists.get_ids(number), size)] += 1
        if (counts != 1).any():
            raise ValueError("the lists do not hold each row once")
    return opened


def read_description(folder: Path | str) -> IndexDescription:
    """Read the description of the index in `folder`.

    Raises:
        BertineError: there is no description, or it is damaged or of another version.
    """
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise BertineError(
            f"{folder}: is no index of vectors; make one with 'bertine index-vectors'"
        )
    values = read_json_object(path)
    if values.get("format") != _FORMAT:
        raise BertineError(f"{path}: is of another version; {_AGAIN}")
    try:
        index = IndexDescription.from_dict(values)
        if min(index.rows, index.dimensions, index.lists, index.read) < 1:
            raise ValueError("a size is below 1")
    except ValueError as error:
        raise BertineError(f"{path}: does not describe an index ({error}); {_AGAIN}") from error
    return index


def fingerprint(vectors: np.ndarray) -> str:
    """Compute the SHA-256 of the shape and of all numbers of `vectors` [N, D], as hex digits; takes
    about a second for each gigabyte."""
    digest = _begin_digest(vectors)
    for start in range(0, len(vectors), _PART):
        digest.update(np.ascontiguousarray(vectors[start : start + _PART]).data)
    return digest.hexdigest()


def _begin_digest(vectors: np.ndarray) -> Any:
    """Start the SHA-256 of `vectors` with their shape and type, to be updated with their
    numbers."""
    return hashlib.sha256(repr((vectors.shape, vectors.dtype.str)).encode())


def _without(rows: np.ndarray, own: int) -> np.ndarray:
    """Return the nearest `rows` except `own`, at most :data:`_NEAREST`."""
    return rows[rows != own][:_NEAREST]


def _unit(vectors: np.ndarray, name: str, rows: np.ndarray) -> np.ndarray:
    """Return vectors, scaled to length 1, fp32 [N, D], of the rows numbered `rows` [N].

    Raises:
        BertineError: a number is NaN or infinite.
    """
    part = np.ascontiguousarray(vectors, dtype=np.float32)
    unit: np.ndarray = part / lengths(part, rows, name)[:, None]
    return unit


def _faiss() -> Any:
    require_packages("an index of vectors", ("faiss",), "search without an index, which is exact")
    import faiss

    faiss.omp_set_num_threads(min(faiss.omp_get_max_threads(), cores()))
    return faiss


# ``index_vectors``: make an index of a file of vectors, for many searches.


@dataclass(frozen=True, repr=False)
class IndexReport(Report):
    """The report of making an index.

    Attributes:
        folder: the folder of the index.
        vectors: the file of vectors.
        description: the description of the index, with the measured recall.
        megabytes: the size on disk.
        seconds: the time that it took.
    """

    folder: Path
    vectors: Path
    description: IndexDescription
    megabytes: float
    seconds: float

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        index = self.description
        lines = [
            f"indexed {plural(index.rows, 'vector')} of {index.dimensions} numbers in "
            f"{human_time(self.seconds)}; {self.megabytes:,.0f} MB",
            f"a search reads {index.read:,} of {index.lists:,} lists, and finds "
            f"{100 * index.recall:.1f}% of the ten nearest rows (measured with rows of the "
            "file; queries unlike them find fewer)",
        ]
        if index.recall < index.wanted:
            lines.append(
                f"this is less than {100 * index.wanted:.1f}% although all lists are read: 8 bits "
                "are too few to tell these vectors apart; search without an index"
            )
        return [*lines, f"index: {self.folder}"]


@takes_options()
def index_vectors(
    vectors: Path | str, *, out: Path | str, show_progress: bool = True, options: IndexOptions
) -> IndexReport:
    """Make an index of a file of vectors, with which :func:`~bertine.similar` searches among
    millions without reading all of them. Needs the package faiss-cpu.

    The index has a byte for each number. The vectors' file is still needed: the best candidates are
    compared with it, so scores are exact, and only rows can be missed.

    Args:
        vectors: a ``.npy`` as :func:`~bertine.embed` writes it.
        out: the folder of the index, written completely or not at all.
        show_progress: on stderr.
        options: the options described below.

    Raises:
        BertineError: `vectors` is not a ``.npy`` of vectors, or has fewer than 10,000, or a NaN or
            infinite number; `out` holds something else; faiss is missing.
    """
    table = open_vectors(vectors)
    check_replaceable(out, "index of vectors", lambda folder: (folder / DESCRIPTION).is_file())
    started = time.monotonic()
    with progress(show=show_progress) as bar, atomic_dir(out) as folder:
        job = bar.add_task("index", total=len(table))
        index = VectorIndex.build(
            table,
            recall=options.recall,
            seed=options.seed,
            name=str(vectors),
            advance=lambda count: bar.update(job, advance=count),
        )
        index.write(folder)
        megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    seconds = time.monotonic() - started
    return IndexReport(Path(out), Path(vectors), index.description, megabytes, seconds)
