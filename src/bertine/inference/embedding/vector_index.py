"""An index of vectors, for many searches among many: approximate, by faiss, with its recall.

The vectors are divided into lists around centroids, each number in 8 bits ("IVF", "SQ8":
Jégou et al. 2011; Douze et al. 2024, arXiv 2401.08281). A search reads the lists nearest to the
query, and compares the best of them with the exact vectors in their file, so the scores are exact,
and only rows can be missed. How many lists are read is chosen when the index is made, so that
enough of the nearest rows are found (`recall`).

Shape legend: N vectors, D numbers of each, Q queries.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertine.cores.launch import cores
from bertine.errors import BertineError
from bertine.files import read_json_object, sha256_file, write_json
from bertine.inference.embedding.nearest import (
    NO_ROWS,
    NearestRows,
    lengths,
    search_all,
    search_rows,
)
from bertine.outside import reading_outside
from bertine.packages import require_packages
from bertine.rng import generator
from bertine.scores import ROUNDING

#: What is advised where an index cannot be used.
_AGAIN = "make the index again"
#: Files of an index's folder.
DESCRIPTION, LISTS = "index.json", "lists.faiss"
#: Version of the layout of the folder; a reader refuses another one.
_FORMAT = 1
#: Lists: this often the square root of N; and vectors of each that the centroids are learned from
#: (faiss wants at least 39).
_LISTS, _LEARNED = 2.0, 64
#: Fewer vectors than that are compared one by one as fast.
LEAST_ROWS = 10_000
#: Vectors that are added at once.
_PART = 1 << 14
#: Queries that the recall is measured with, and nearest rows of each.
_QUERIES, _NEAREST = 200, 10
#: Candidates for each of the nearest rows, whose exact vectors are compared, and at least.
_CANDIDATES, _LEAST_CANDIDATES = 4, 64


@dataclass(frozen=True)
class IndexDescription:
    """The description of an index, in ``index.json``.

    Attributes:
        rows, dimensions: N and D.
        lists: into which the vectors are divided.
        read: lists that a search reads.
        recall: the share of the ten nearest vectors that were found, over 200 of the vectors as
            queries, each without itself.
        wanted: the recall that was asked for.
        vectors: SHA-256 of the shape and the numbers of the vectors, as hex digits.
        sha256: of the file of lists.
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
    """An index, opened beside its file of vectors. Several threads may search.

    Attributes:
        description: of the index.
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
        """Make an index of `vectors` [N, D], which may be on disk; memory holds a byte for each of
        their numbers, and the vectors that the centroids are learned from.

        Args:
            recall: the share of the nearest rows that is to be found.
            seed: of what is drawn.
            name: of the vectors, for messages.
            advance: called with how many more vectors are in it.

        Raises:
            BertineError: there are fewer than 10,000 vectors; a number is none; faiss is missing.
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
            # A copy, so that the digest is of what is added even while the file is written to.
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
        """Read twice as many lists until the recall over the rows `queries` is what is wanted."""
        asked = _unit(self._vectors[queries], self._name, queries)
        exact = NearestRows(len(queries), _NEAREST + 1)
        search_all(exact, asked, self._vectors, name=self._name)
        truth = [_without(rows, own) for rows, own in zip(exact.rows, queries, strict=True)]
        read, found = 1, 0.0
        while True:
            self.description = dataclasses.replace(self.description, read=read)
            near = self.search(asked, _NEAREST + 1)
            hits = sum(
                len(np.intersect1d(_without(rows, own), right))
                for rows, own, right in zip(near.rows, queries, truth, strict=True)
            )
            found = hits / sum(map(len, truth))
            if found >= self.description.wanted or read == self.description.lists:
                break
            read = min(2 * read, self.description.lists)
        self.description = dataclasses.replace(self.description, recall=found)

    def search(
        self,
        asked: np.ndarray,
        top: int,
        tolerance: float = ROUNDING,
        left_out: np.ndarray = NO_ROWS,
    ) -> NearestRows:
        """Return the `top` nearest rows of `asked` fp32 [Q, D], of length 1, with their exact
        cosines; some of the nearest may be missing, but there are `top` of them, or all rows but
        those `left_out`. Of cosines within the `tolerance` of :func:`~bertine.scores.ranking` the
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
        """Return the rows int64 [Q, `count`] that are nearest by the lists, of which `read` are
        read, without those `left_out`; -1 where there are no more."""
        faiss = _faiss()
        chosen = faiss.IDSelectorNot(faiss.IDSelectorBatch(left_out)) if len(left_out) else None
        reading = faiss.SearchParametersIVF(nprobe=read, sel=chosen)
        rows: np.ndarray
        _, rows = self._lists.search(queries, count, params=reading)
        return rows

    def notes(self, top: int) -> list[str]:
        """Return what a person should know of a search for `top` rows."""
        note = (
            f"searched by an index, which finds {100 * self.description.recall:.1f}% of the ten "
            "nearest rows"
        )
        return [note + (f"; how many of {top:,} was not measured" if top > _NEAREST else "")]

    def write(self, folder: Path) -> None:
        """Write the index into `folder`."""
        _faiss().write_index(self._lists, str(folder / LISTS))
        self.description = dataclasses.replace(self.description, sha256=sha256_file(folder / LISTS))
        write_json(folder / DESCRIPTION, {"format": _FORMAT} | dataclasses.asdict(self.description))

    @classmethod
    def read(cls, folder: Path | str, vectors: np.ndarray, name: Path | str) -> VectorIndex:
        """Open the index in `folder`, which was made of `vectors` [N, D].

        Args:
            name: of the file of vectors, for messages.

        Raises:
            BertineError: there is none; it is damaged, of another version, or of other vectors;
                faiss is missing.
        """
        description = read_description(folder)
        lists = Path(folder) / LISTS
        if not lists.is_file():
            raise BertineError(f"{folder}: has no {LISTS}; {_AGAIN}")
        # The file's time and size do not tell: writing through a mapping may change neither.
        if vectors.shape != (description.rows, description.dimensions) or (
            fingerprint(vectors) != description.vectors
        ):
            raise BertineError(
                f"{folder}: was made of other vectors than those of {name}; {_AGAIN}"
            )
        # Faiss trusts what it reads, so only what was written here is given to it.
        if sha256_file(lists) != description.sha256:
            raise BertineError(f"{lists}: is damaged; {_AGAIN}")
        return cls(description, _read_lists(lists, description), vectors, str(name))


def _read_lists(path: Path, description: IndexDescription) -> Any:
    """Read the lists, which must hold each row once.

    Raises:
        BertineError: they are damaged; they ask for more memory than the file has bytes.
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
    """Read what the index in `folder` is.

    Raises:
        BertineError: there is none, or it is damaged or of another version.
    """
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise BertineError(
            f"{folder}: is no index of vectors; make one with 'bertine index-vectors'"
        )
    values = read_json_object(path)
    if values.get("format") != _FORMAT:
        raise BertineError(f"{path}: is of another version; {_AGAIN}")
    fields = {field.name: values.get(field.name) for field in dataclasses.fields(IndexDescription)}
    whole = ("rows", "dimensions", "lists", "read")
    if not (
        all(_is_count(fields[name]) for name in whole)
        and all(isinstance(fields[name], int | float) for name in ("recall", "wanted"))
        and all(isinstance(fields[name], str) for name in ("vectors", "sha256"))
    ):
        raise BertineError(f"{path}: does not describe an index; {_AGAIN}")
    return IndexDescription(**fields)  # type: ignore[arg-type]


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def fingerprint(vectors: np.ndarray) -> str:
    """Return the SHA-256 of the shape and of all numbers of `vectors` [N, D], as hex digits; a
    second for each gigabyte or so."""
    digest = _begin_digest(vectors)
    for start in range(0, len(vectors), _PART):
        digest.update(np.ascontiguousarray(vectors[start : start + _PART]).data)
    return digest.hexdigest()


def _begin_digest(vectors: np.ndarray) -> Any:
    """Return the SHA-256 of the shape and type of `vectors`, to be updated with their numbers."""
    return hashlib.sha256(repr((vectors.shape, vectors.dtype.str)).encode())


def _without(rows: np.ndarray, own: int) -> np.ndarray:
    """Return the nearest `rows` but `own`, at most :data:`_NEAREST`."""
    return rows[rows != own][:_NEAREST]


def _unit(vectors: np.ndarray, name: str, rows: np.ndarray) -> np.ndarray:
    """Return vectors of length 1, fp32 [N, D], of the rows numbered `rows` [N].

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
