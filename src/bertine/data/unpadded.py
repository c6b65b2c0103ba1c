"""Where the real tokens of a padded batch stand, worked out on the host: a GPU would have to be
waited for to learn how many there are.

Shape legend: B sequences, T tokens of the longest, N rows that are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Numbers of rows are multiples of this, so that compiled code and memory are used again.
_ROWS = 128
#: The bound of the lengths is a multiple of this, for the same reason.
_LONGEST = 64


@dataclass(frozen=True)
class Packing:
    """The rows that are computed of a batch, sequence after sequence.

    Attributes:
        real: int64 [N], indices among the B * T positions: the real tokens in their order, then
            as much padding as makes a round number.
        ends: int32 [S + 1], the row where each sequence begins, and N. The rows of padding are
            sequences of their own, so S is B and some more; those not needed are empty.
        longest: at least the length of the longest sequence; a round number.
    """

    real: Tensor
    ends: Tensor
    longest: int


def packing(mask: Tensor) -> Packing:
    """Return the packing of a batch with ``attention_mask`` `mask` (bool [B, T], on the host)."""
    positions = mask.numel()
    longest = -(-mask.shape[1] // _LONGEST) * _LONGEST
    lengths = mask.sum(1)
    count = int(lengths.sum())
    rows = min(positions, -(-count // _ROWS) * _ROWS)
    flat = mask.reshape(-1)
    real = flat.nonzero()[:, 0]
    if rows > count:
        real = torch.cat([real, (~flat).nonzero()[: rows - count, 0]])
    # As many of these for each batch of this width: shapes should come again.
    spare = -(-_ROWS // longest)
    padding = [min(rows, count + longest * (i + 1)) for i in range(spare)]
    ends = torch.cat([torch.zeros(1), lengths.cumsum(0), torch.tensor(padding)])
    return Packing(real, ends.to(torch.int32), longest)
