"""What an endless sequence of instances draws once for each epoch."""

from __future__ import annotations

from collections.abc import Callable

from bertine.rng import Permutation


class Epochs:
    """The order of each epoch, and one number that is drawn for it.

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
        """Which of an epoch's instances, from 0 to ``size - 1``, has the number `index` in the
        whole sequence, and the number that was drawn for its epoch."""
        epoch, number = divmod(index, self.size)
        if epoch not in self._made:
            if len(self._made) > 1:
                self._made.clear()
            permutation = Permutation(self.size, self._seed, self._name, epoch)
            self._made[epoch] = permutation, self._draw(epoch)
        permutation, drawn = self._made[epoch]
        return permutation[number], drawn
