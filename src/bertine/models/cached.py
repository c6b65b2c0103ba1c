"""Keys and values of tokens that were read, kept for those that follow.

Shape legend: R rows, A attention heads, D size of a head, T tokens that are read now, K tokens that
are kept, those among them.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Places are made for so many tokens at once, or for a quarter of what is there.
_AHEAD = 32


class KeyValues:
    """The keys and values of one layer's attention, for rows that go on."""

    def __init__(self) -> None:
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._kept = 0

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep more tokens, [R, A, T, D] each; return those of all, [R, A, K, D]."""
        end = self._kept + keys.shape[2]
        self._keys = _placed(self._keys, keys, self._kept)
        self._values = _placed(self._values, values, self._kept)
        self._kept = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def choose(self, rows: Tensor) -> None:
        """Let the rows be those of these numbers, int64 [R]."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)


def _placed(room: Tensor | None, new: Tensor, start: int) -> Tensor:
    """Write `new` [R, A, T, D] behind the `start` tokens in `room`, which is made larger where it
    has no place."""
    r, a, t, d = new.shape
    end = start + t
    if room is None or room.shape[2] < end:
        larger = new.new_empty(r, a, end + max(_AHEAD, end // 4), d)
        if room is not None:
            larger[:, :, :start] = room[:, :, :start]
        room = larger
    room[:, :, start:end] = new
    return room


def same_rows(rows: Tensor, count: int) -> bool:
    """Tell whether `rows` are all of `count` rows in their order, so that nothing has to move."""
    return len(rows) == count and bool((rows == torch.arange(count, device=rows.device)).all())
