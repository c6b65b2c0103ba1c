"""Find documents that equal or nearly equal an earlier one, by fingerprints and MinHash.

The resemblance of two documents is the share of token 5-grams that they have in common (the Jaccard
similarity of their sets; Broder, "On the resemblance and containment of documents", 1997). A
signature of 128 minima estimates it, with a standard error of 3.5 points at 0.8. Documents whose
signatures agree in a whole band of rows are compared (locality-sensitive hashing; Leskovec,
Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4).

The signatures are computed by `rensa`, in Rust: `datasketch`, the older library, takes a Python
step for every 5-gram, many times the cost of tokenizing. The bands are our own, to save memory: the
indices of both libraries keep every signature and a table for each band, more than a kilobyte a
document; here the signatures stay on disk (1 kB a document, until the store is complete) and one
band at a time is sorted, in about 45 bytes a document.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertine.core.errors import BertineError
from bertine.core.files import os_errors

# Exact copies: documents with the same words as an earlier one, found by a hash of their words.

#: Fingerprints kept in a set before they become a sorted array.
_RECENT = 1 << 14

#: Characters of a document processed at a time: its words as Python texts need about fifteen times
#: their length.
_CHARACTERS_AT_A_TIME = 1 << 16

#: The characters at which `str.split` splits.
_SPACE = re.compile(r"\s")


def fingerprint(text: str) -> int:
    """Return a 64-bit hash of the words of `text`, regardless of white space and case.

    Among ten million different documents, two have the same hash with a probability of three in a
    million.
    """
    digest = hashlib.blake2b(digest_size=8)
    begin, between = 0, ""
    while begin < len(text):
        space = _SPACE.search(text, begin + _CHARACTERS_AT_A_TIME)
        end = space.end() if space else len(text)
        words = " ".join(text[begin:end].casefold().split())
        if words:
            digest.update((between + words).encode("utf-8", "surrogatepass"))
            between = " "
        begin = end
    return int.from_bytes(digest.digest(), "little")


class SeenFingerprints:
    """A set of 64-bit numbers in 8 bytes each (twice that while two arrays are merged).

    The newest are in a set; the others in sorted arrays, each at least twice as long as the next,
    so that there are few arrays and a number is moved few times.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: list[npt.NDArray[np.uint64]] = []

    def add(self, number: int) -> bool:
        """Add `number`; return whether it was new."""
        if number in self._recent:
            return False
        value = np.uint64(number)
        for part in self._sorted:
            place = int(np.searchsorted(part, value))
            if place < len(part) and part[place] == value:
                return False
        self._recent.add(number)
        if len(self._recent) >= _RECENT:
            self._sort_recent()
        return True

    def add_many(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Add `numbers` [N] in order; return which of them were new (bool [N])."""
        self._sort_recent()
        values, first = np.unique(numbers, return_index=True)
        fresh = np.ones(len(values), bool)
        for part in self._sorted:
            places = np.minimum(np.searchsorted(part, values), len(part) - 1)
            fresh &= part[places] != values
        if fresh.any():
            self._add_sorted(values[fresh])
        new = np.zeros(len(numbers), bool)
        new[first[fresh]] = True
        return new

    def _sort_recent(self) -> None:
        if self._recent:
            part = np.sort(np.fromiter(self._recent, np.uint64, len(self._recent)))
            self._recent = set()
            self._add_sorted(part)

    def _add_sorted(self, part: npt.NDArray[np.uint64]) -> None:
        while self._sorted and len(self._sorted[-1]) < 2 * len(part):
            part = np.concatenate([self._sorted.pop(), part])
            part.sort()  # in place
        self._sorted.append(part)

    def __len__(self) -> int:
        return len(self._recent) + sum(len(part) for part in self._sorted)


#: Minima in a signature; each is a uint32.
SIGNATURE_SIZE = 128

#: Tokens in a shingle. Documents with fewer tokens have no signature.
TOKENS_OF_A_SHINGLE = 5

#: The signatures of a part: by document, to compare two of them (uint32 [documents, 128]); and
#: transposed, to read a band of all of them (uint32 [128, documents] for each record batch).
SIGNATURES, BY_ROW = "signatures.bin", "signatures-by-row.bin"

#: A pair of exactly the requested similarity is compared with at least this probability.
_RECALL = 0.99

#: The seed of the hash functions, fixed so that the same documents are found everywhere.
_SEED = 20181011

_NONE = np.uint32(0xFFFFFFFF)

#: Tokens hashed at a time: intermediate arrays (some of 8 bytes a token) fit into the cache, and a
#: document of any length takes no more memory. It also limits the rows of signatures, which are
#: temporarily Python lists.
_TOKENS_AT_A_TIME = 1 << 14

#: Pairs compared at a time, which are temporarily Python numbers.
_PAIRS_AT_A_TIME = 1 << 16


def check_library() -> None:
    """Raise an error if the library is not installed.

    Raises:
        BertineError: it is not installed.
    """
    try:
        import rensa  # noqa: F401
    except ImportError as error:
        raise BertineError(
            "near-duplicate documents are found with rensa, which is not installed; "
            "install it with: pip install rensa"
        ) from error


def bands_for(similarity: float) -> tuple[int, int]:
    """Return (bands, rows in each) for pairs of at least `similarity`: the longest bands, and so
    the fewest useless comparisons, with which 99 of 100 pairs of exactly that similarity are
    compared."""
    for rows in range(SIGNATURE_SIZE, 1, -1):
        bands = SIGNATURE_SIZE // rows
        if 1 - (1 - similarity**rows) ** bands >= _RECALL:
            return bands, rows
    return SIGNATURE_SIZE, 1


def signatures(
    input_ids: npt.NDArray[Any], token_offsets: npt.NDArray[Any]
) -> npt.NDArray[np.uint32]:
    """Compute the signatures of some documents.

    Args:
        input_ids: integers [tokens], one document after the other.
        token_offsets: integers [documents + 1], the start of each.

    Returns:
        uint32 [documents, 128]; all ones for a document of fewer than five tokens.
    """
    import rensa

    offsets = np.asarray(token_offsets, np.int64)
    result = np.full((len(offsets) - 1, SIGNATURE_SIZE), _NONE)
    last_token = int(offsets[-1])
    for begin in range(int(offsets[0]), last_token, _TOKENS_AT_A_TIME):
        end = min(begin + _TOKENS_AT_A_TIME, last_token)
        # The documents with a token between the two, and their 5-grams that begin there.
        first = int(np.searchsorted(offsets, begin, side="right")) - 1
        last = int(np.searchsorted(offsets, end, side="left"))
        starts = np.maximum(offsets[first:last], begin)
        stops = np.minimum(offsets[first + 1 : last + 1] - (TOKENS_OF_A_SHINGLE - 1), end)
        rows = np.flatnonzero(stops > starts)
        if not len(rows):
            continue
        starts, counts = starts[rows], (stops - starts)[rows]
        ends = np.concatenate([[0], np.cumsum(counts)])
        hashes = _shingles(np.asarray(input_ids[begin : end + TOKENS_OF_A_SHINGLE - 1]))
        inside = np.repeat(starts - begin - ends[:-1], counts) + np.arange(ends[-1])
        matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
            hashes[inside], ends.astype(np.uint64), SIGNATURE_SIZE, _SEED
        )
        minima = np.array(matrix.to_rows(), np.uint32).reshape(len(rows), SIGNATURE_SIZE)
        # The minima of a document are the minima over its parts.
        result[first + rows] = np.minimum(result[first + rows], minima)
    return result


def _shingles(ids: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Compute the hash of each 5-gram of `ids` [tokens]: uint64 [tokens - 4]."""
    number = max(len(ids) - (TOKENS_OF_A_SHINGLE - 1), 0)
    wide = ids.astype(np.uint64)
    hashes, spare = np.zeros(number, np.uint64), np.empty(number, np.uint64)
    for place in range(TOKENS_OF_A_SHINGLE):
        hashes += wide[place : place + number]
        _mix(hashes, spare)
    return hashes


def _mix(values: npt.NDArray[np.uint64], spare: npt.NDArray[np.uint64]) -> None:
    """Mix the bits of each number in place (the finalizer of SplitMix64; Steele et al. 2014).
    `spare` is a buffer of the same size."""
    values += np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        np.right_shift(values, np.uint64(shift), out=spare)
        values ^= spare
        values *= np.uint64(factor)
    np.right_shift(values, np.uint64(31), out=spare)
    values ^= spare


def write_signatures(folder: Path, shards: Sequence[str]) -> None:
    """Write the signatures of all documents in `shards` into `folder`, a record batch at a time:
    once by document, once by row."""
    with open(folder / SIGNATURES, "wb") as by_document, open(folder / BY_ROW, "wb") as by_row:
        for shard in shards:
            with pa.memory_map(str(folder / shard)) as source:
                reader = pa.ipc.open_file(source)
                for index in range(reader.num_record_batches):
                    ids = reader.get_batch(index).column("input_ids")
                    rows = signatures(ids.values.to_numpy(), ids.offsets.to_numpy())
                    by_document.write(rows.tobytes())
                    by_row.write(rows.T.tobytes())


@dataclass(frozen=True)
class SignatureFile:
    """The signatures of a part.

    Attributes:
        folder: the folder of the two files.
        blocks: documents in each block of the file by row: those of the record batches.
    """

    folder: Path
    blocks: tuple[int, ...]

    def band(self, first: int, rows: int) -> Iterator[npt.NDArray[np.uint32]]:
        """Yield rows `first` to ``first + rows`` of each block: uint32 [rows, documents]."""
        path = self.folder / BY_ROW
        with os_errors(path, "reading it"), open(path, "rb") as handle:
            begin = 0
            for documents in self.blocks:
                handle.seek(begin + first * documents * 4)
                values = np.fromfile(handle, np.uint32, rows * documents)
                if len(values) < rows * documents:
                    raise BertineError(f"{path}: is cut off; delete {self.folder}")
                yield values.reshape(rows, documents)
                begin += SIGNATURE_SIZE * documents * 4


class _Signatures:
    """Single signatures, by the number of the document among all files."""

    def __init__(self, files: Sequence[SignatureFile]) -> None:
        self._files = files
        self._starts = np.cumsum([0, *(sum(file.blocks) for file in files)])
        self._map = lru_cache(1024)(self._mapped)

    def _mapped(self, number: int) -> npt.NDArray[np.uint32]:
        file = self._files[number]
        path = file.folder / SIGNATURES
        shape = (sum(file.blocks), SIGNATURE_SIZE)
        try:
            with os_errors(path, "reading it"):
                return np.asarray(np.memmap(path, np.uint32, "r", shape=shape))
        except ValueError as error:
            raise BertineError(f"{path}: is cut off; delete {file.folder}") from error

    def of(self, document: int) -> npt.NDArray[np.uint32]:
        """Return the signature of a document, uint32 [128]."""
        number = int(np.searchsorted(self._starts, document, side="right")) - 1
        return self._map(number)[document - self._starts[number]]

    def similarity(self, one: int, other: int) -> float:
        """Return the share of equal minima."""
        return float((self.of(one) == self.of(other)).mean())


def find_near_duplicates(
    files: Sequence[SignatureFile],
    alive: npt.NDArray[np.bool_],
    similarity: float,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> npt.NDArray[np.bool_]:
    """Find the documents that are near-duplicates of an earlier one.

    A document counts if an earlier one that it is compared with has at least the requested
    similarity, even if that one is a near-duplicate itself: in a chain of similar documents the
    first one stays. In each band a document is compared with the first and with the last earlier
    one that agrees with it there. The result depends only on the documents and their order.

    Args:
        files: the signatures of all documents, in order.
        alive: bool [documents], which of them to compare.
        similarity: from 0 to 1.
        report: called with (bands done, bands in all).

    Returns:
        bool [documents].
    """
    near = np.zeros(len(alive), bool)
    known = _Signatures(files)
    bands, rows = bands_for(similarity)
    looked_at = alive.copy()
    for band in range(bands):
        # In place: the largest memory is two arrays of 8 bytes a document and their order.
        keys = np.empty(len(alive), np.uint64)
        begin = 0
        for file in files:
            for block in file.band(band * rows, rows):
                end = begin + block.shape[1]
                value = np.zeros(block.shape[1], np.uint64)
                spare = np.empty_like(value)
                for row in block:
                    value += row
                    _mix(value, spare)
                keys[begin:end] = value
                if band == 0:
                    looked_at[begin:end] &= ~(block == _NONE).all(axis=0)
                begin = end
        order = np.flatnonzero(looked_at)
        keys = keys[order]
        by_key = np.argsort(keys, kind="stable")
        order, keys = order[by_key], keys[by_key]
        del by_key
        same = keys[1:] == keys[:-1]
        starts = np.flatnonzero(np.concatenate([[True], ~same]))
        places = np.flatnonzero(same) + 1
        places = places[~near[order[places]]]
        firsts = starts[np.searchsorted(starts, places, side="right") - 1]
        for begin_of_part in range(0, len(places), _PAIRS_AT_A_TIME):
            part = slice(begin_of_part, begin_of_part + _PAIRS_AT_A_TIME)
            for place, first in zip(places[part].tolist(), firsts[part].tolist(), strict=True):
                document = int(order[place])
                earlier = {int(order[first]), int(order[place - 1])}
                near[document] = any(known.similarity(document, e) >= similarity for e in earlier)
        report(band + 1, bands)
    return near
