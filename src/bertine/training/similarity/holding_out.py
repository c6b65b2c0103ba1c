"""Which rows of pairs are held out: none has a text in common with a row that is trained on.

Rows with a text in common belong together, and so do those that others join (the connected parts of
the graph whose points are texts and whose edges are rows). Whole groups are held out. Choosing
them takes some 100 bytes a row for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bertine.rng import generator


@dataclass(frozen=True)
class HeldOut:
    """The rows of a table that are not trained on, and those that are.

    Attributes:
        rows: int64, those held out, ascending.
        apart: whether no text of theirs is trained on.
    """

    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    apart: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    def trained(self, numbers: Sequence[int]) -> np.ndarray:
        """Return the rows, int64, of some numbers among those that are trained on."""
        given = np.asarray(numbers, np.int64)
        # Before the k-th row held out there are as many trained ones as its number less k.
        before = self.rows - np.arange(len(self.rows))
        return given + np.searchsorted(before, given, side="right")


def hold_out(texts: np.ndarray, count: int, least: int, seed: int) -> HeldOut:
    """Choose rows to hold out.

    Args:
        texts: int64 [N, 2], a number for each text of a row, equal for equal texts.
        count: rows to hold out, at most.
        least: where fewer than this can be held out with all rows of their texts, `count` rows are
            drawn one by one: their texts may be trained on too.
        seed: of the draw.
    """
    total = len(texts)
    if count <= 0:
        return HeldOut()
    draw = generator(seed, "rows held out")
    numbers = np.unique(texts, return_inverse=True)[1].reshape(total, 2)
    points = int(numbers.max()) + 1
    edges = coo_array((np.ones(total, np.int8), (numbers[:, 0], numbers[:, 1])), (points, points))
    groups = connected_components(edges, directed=False)[1][numbers[:, 0]]
    sizes = np.bincount(groups)
    left, chosen = count, np.zeros(len(sizes), bool)
    for group in draw.permutation(len(sizes)):
        # One group that is most of the table would be all that there is to judge by.
        if sizes[group] <= left:
            chosen[group] = True
            left -= int(sizes[group])
            if left == 0:
                break
    if count - left >= least:
        return HeldOut(np.flatnonzero(chosen[groups]))
    return HeldOut(np.sort(draw.permutation(total)[:count]), apart=False)
