"""Numbering things that record batches hold different numbers of: sentences, sequences."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable

from bertine.data.store import Chunk, TokenStore


class Counted:
    """Things of a store numbered through, a table of one number a record batch.

    Making it looks once at every record batch (about a million tokens each), at what `count`
    reads of it and no more.

    Args:
        store: the documents.
        count: how many of them a record batch holds.

    Attributes:
        total: how many there are.
    """

    def __init__(self, store: TokenStore, count: Callable[[Chunk], int]) -> None:
        ends = list(itertools.accumulate(map(count, store.chunks()), initial=0))
        self.total = ends.pop()
        self._starts = ends

    def locate(self, number: int) -> tuple[int, int]:
        """(record batch, number within it) of thing `number`."""
        found = bisect_right(self._starts, number) - 1
        return found, number - self._starts[found]
