"""Relative positions as waves, and scores by offset put where the pairs stand.

Shape legend: T tokens that look, K that are looked at (those of the memory, then the T), R the
T + K - 1 offsets between them, H hidden size.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

#: The least of the rows that are computed to either side; more are a power of two.
_LEAST = 512


def waves(queries: int, keys: int, width: int, clamp: int, *, like: Tensor) -> Tensor:
    """Return the encoding of each offset of a looking token from the one that it looks at: the
    sines of all frequencies, then the cosines (Dai et al. 2019, arXiv 1901.02860, section 3.3;
    zihangdai/xlnet, ``positional_embedding``).

    Args:
        queries: T, the last of the K tokens.
        keys: K.
        width: H, an even number.
        clamp: offsets beyond it count as this one; below 1: all are told apart.
        like: says the device.

    Returns:
        fp32 [R, H], of the offsets K - 1, K - 2, … 1 - T.
    """
    longest = max(keys, _LEAST)
    reach = 1 << (longest - 1).bit_length()
    table = _table(reach, width, clamp, str(like.device))
    return table.narrow(0, reach - (keys - 1), queries + keys - 1)


@functools.lru_cache(maxsize=8)
def _table(reach: int, width: int, clamp: int, device: str) -> Tensor:
    """Return the encodings of the offsets `reach` down to -`reach`, [2 reach + 1, H]."""
    # Kept beyond this call: not a tensor of inference, which training could not use.
    with torch.inference_mode(False), torch.device("cpu"):
        offsets = torch.arange(reach, -reach - 1, -1, dtype=torch.float32)
        if clamp > 0:
            offsets = offsets.clamp(-clamp, clamp)
        frequencies = 1 / torch.pow(10000, torch.arange(0, width, 2).float() / width)
        angles = offsets[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], -1).to(device)


def by_pairs(scores: Tensor, keys: int) -> Tensor:
    """Return [..., T, K] out of `scores` [..., T, R], of which each row holds a score for every
    offset from K - 1 down to 1 - T. Nothing is moved: each row begins one place earlier than the
    one before."""
    queries, offsets = scores.shape[-2:]
    if queries == 1:
        return scores
    flat = scores.flatten(-2)[..., queries - 1 : queries - 1 + queries * (offsets - 1)]
    return flat.unflatten(-1, (queries, offsets - 1))[..., :keys]


def rows_of_pairs(places: Tensor, queries: int, keys: int) -> Tensor:
    """Return which row of the R offsets belongs to each pair of a looking token and one that it
    looks at.

    Args:
        places: int64 [...], where the looking tokens stand among the T.
        queries: T.
        keys: K.

    Returns:
        int64 [..., K].
    """
    return (queries - 1 - places)[..., None] + torch.arange(keys, device=places.device)
