"""Relative positions in buckets: near ones exactly, far ones by their logarithm.

Shape legend: T tokens of a sequence, R rows of the table of relative positions that are used, H
hidden size, D width of a head.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor


def bucket(offsets: Tensor, buckets: int, longest: int) -> Tensor:
    """Return the bucket of each offset: the offset itself up to half of `buckets` to either side,
    beyond that one that grows with its logarithm (He et al. 2021, arXiv 2111.09543; microsoft/
    DeBERTa, ``make_log_bucket_position``).

    Args:
        offsets: int64 [...].
        buckets: to either side; below 1 there are none, and an offset is its own bucket.
        longest: the offset that is not reached.

    Returns:
        int64 [...], of the sign of the offset.
    """
    if buckets < 1:
        return offsets
    half = buckets // 2
    distance = offsets.abs()
    far = distance.clamp(min=half).float()
    # In fp32, like the published code: rounded up, the last digit decides.
    ratio = torch.log(far / half) / torch.log(torch.tensor((longest - 1) / half))
    grown = torch.ceil(ratio * (half - 1)).long() + half
    return torch.where(distance <= half, offsets, grown * offsets.sign())


@dataclass(frozen=True)
class RelativePositions:
    """Which rows of the table of relative positions the pairs of a sequence's tokens need.

    Attributes:
        first: the first row that is used.
        count: R, how many follow on it.
        falling: int64 [2 T - 1], which of these rows belongs to the offset T - 1, T - 2, … 1 - T
            of the looking token from the one that it looks at.
    """

    first: int
    count: int
    falling: Tensor

    @classmethod
    def of(cls, length: int, span: int, buckets: int, longest: int) -> RelativePositions:
        """Return those of a sequence of `length` tokens, for a table of 2 * `span` rows."""
        return _positions(length, span, buckets, longest)


@functools.lru_cache(maxsize=1024)
def _positions(length: int, span: int, buckets: int, longest: int) -> RelativePositions:
    # Kept beyond this call: not a tensor of inference, which training could not use.
    with torch.inference_mode(False), torch.device("cpu"):
        rows = table_rows(torch.arange(length - 1, -length, -1), span, buckets, longest)
        first, last = int(rows.min()), int(rows.max())
        return RelativePositions(first, last + 1 - first, rows - first)


def table_rows(offsets: Tensor, span: int, buckets: int, longest: int) -> Tensor:
    """Return the rows of the table of 2 * `span` rows for `offsets`, both int64 [...]."""
    return (bucket(offsets, buckets, longest) + span).clamp(0, 2 * span - 1)


def shifted(scores: Tensor) -> Tensor:
    """Return [..., T, T] out of `scores` [..., T, 2 T - 1], of which row i holds a score for each
    offset from T - 1 down to 1 - T: what belongs to i and j stands at the offset i - j. Nothing is
    moved: each row begins one place earlier than the one before."""
    length = scores.shape[-2]
    if length == 1:
        return scores
    width = 2 * length - 2
    flat = scores.flatten(-2)[..., length - 1 : length - 1 + length * width]
    return flat.unflatten(-1, (length, width))[..., :length]
