"""Documents that say the same as an earlier one, found by a hash of their words."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import numpy.typing as npt

#: Fingerprints that are kept in a set before they become a sorted array.
_RECENT = 1 << 14

#: Characters of a document that are taken at a time: its words as Python texts need some fifteen
#: times their length.
_CHARACTERS_AT_A_TIME = 1 << 16

#: What `str.split` splits at.
_SPACE = re.compile(r"\s")


def fingerprint(text: str) -> int:
    """Return 64 bits of the words of `text`: white space and case do not count.

    Among ten million different documents, one pair is taken for equal with a probability of
    three in a million.
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
    """A set of 64-bit numbers in 8 bytes each (and as much again while two parts are joined).

    The newest are in a set; the others in sorted arrays, each at least twice as long as the next,
    so that there are few of them and a number is moved few times.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: list[npt.NDArray[np.uint64]] = []

    def add(self, number: int) -> bool:
        """Put `number` in; whether it was new."""
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
        """Put `numbers` [N] in, in order; which of them were new (bool [N])."""
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
