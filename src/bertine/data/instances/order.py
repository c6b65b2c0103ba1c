"""Order the instances of each epoch, and number the things that record batches hold."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable

from bertine.data.store import Chunk, TokenStore
from bertine.rng import Permutation


class Epochs:
    """The order of the instances of each epoch, and one number that is drawn for it.

    Args:
        size: instances of an epoch.
        seed: of the order.
        name: of the order, so that different ones differ under the same seed.
        draw: the number of an epoch, a pure function of it; a method, so that instances can be
            sent to other processes.
    """

    def __init__(self, size: int, seed: int, name: str, draw: Callable[[int], int]) -> None:
        self.size, self._seed, self._name, self._draw = size, seed, name, draw
        #: At most two: those on both sides of the end of an epoch.
        self._made: dict[int, tuple[Permutation, int]] = {}

    def locate(self, index: int) -> tuple[int, int]:
        """Find which of an epoch's instances, from 0 to ``size - 1``, has the number `index` in
        the whole sequence, and the number that was drawn for its epoch."""
        epoch, number = divmod(index, self.size)
        if epoch not in self._made:
            if len(self._made) > 1:
                self._made.clear()
            permutation = Permutation(self.size, self._seed, self._name, epoch)
            self._made[epoch] = permutation, self._draw(epoch)
        permutation, drawn = self._made[epoch]
        return permutation[number], drawn


class Counted:
    """The things of a store, numbered through, by a table of one number a record batch.

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
        """Find thing `number`: its record batch, its number within it."""
        batch = bisect_right(self._starts, number) - 1
        return batch, number - self._starts[batch]
