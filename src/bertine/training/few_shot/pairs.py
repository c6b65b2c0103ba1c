"""Count the pairs that labelled examples make: alike, with a label in common, or not.

Nothing here holds pairs: their number is worked out from how often each label, or set of labels,
occurs.

Shape legend: N examples, K labels, U different sets of labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertine.terminal.console import counted

#: Sets of labels that are compared with all others at once.
_AT_ONCE = 1_024


@dataclass(frozen=True)
class PairCounts:
    """How many different pairs there are.

    Attributes:
        alike: pairs of examples with a label in common, or both without any.
        different: all others.
    """

    alike: int
    different: int

    @property
    def total(self) -> int:
        """All pairs."""
        return self.alike + self.different

    def line(self) -> str:
        """Return the numbers in words."""
        return (
            f"{counted(self.total, 'possible pair')}: {self.alike:,} with a label in common, "
            f"{self.different:,} without; drawn as they are needed"
        )


def count_pairs(chosen: np.ndarray) -> PairCounts:
    """Count the pairs of examples.

    Args:
        chosen: bool [N, K], the labels of each example; of one label each row has one.

    Returns:
        The counts, in time N + U^2 and memory N + U.
    """
    kinds, counts = _different_rows(chosen.astype(bool))
    numbers = counts.astype(np.float64)
    of_kinds = kinds.astype(np.float32)
    unlabelled = of_kinds.sum(1) == 0
    alike = 0.0
    for start in range(0, len(kinds), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        shared = of_kinds[part] @ of_kinds.T > 0
        shared |= unlabelled[part, None] & unlabelled[None, :]
        alike += float(numbers[part] @ (shared @ numbers))
    count = len(chosen)
    # Each pair was met from both sides, and each example with itself.
    same = (round(alike) - count) // 2
    return PairCounts(same, count * (count - 1) // 2 - same)


def _different_rows(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different rows of a table, bool [U, K], and how often each is there, [U]."""
    packed = np.packbits(chosen, axis=1)
    width = -(-packed.shape[1] // 8)
    # Rows of whole numbers, which are sorted fast.
    numbers = np.zeros((len(packed), 8 * width), dtype=np.uint8)
    numbers[:, : packed.shape[1]] = packed
    keys = numbers.view(np.uint64)
    found = np.unique(
        keys[:, 0] if width == 1 else keys, axis=0, return_index=True, return_counts=True
    )
    return chosen[found[1]], found[2]
