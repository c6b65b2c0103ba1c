"""Attention over sequences that lie one after another without padding, for GPUs.

Shape legend: N rows of all sequences together, S sequences, A attention heads, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bertine.models.fast.torch_private import flash_attention, has_flash_forward

#: What flash attention takes, of the shapes a BERT may have.
_HEAD_SIZES = range(8, 257, 8)


def has_flash_attention(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Tell whether PyTorch's flash attention runs there: a GPU of NVIDIA's Ampere generation or
    newer, 16-bit numbers, a head size that is a multiple of 8 and at most 256."""
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and head_size in _HEAD_SIZES
        and torch.version.cuda is not None
        and has_flash_forward()
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ends: Tensor,
    longest: int,
    p: float = 0.0,
    window: int | None = None,
) -> Tensor:
    """Compute softmax(q k' / sqrt(D)) v of each sequence by itself, with dropout on the
    probabilities.

    On a GPU, flash attention; ask :func:`has_flash_attention` before. PyTorch's public
    ``varlen_attn`` (2.13) has no dropout, but the operator that it calls has, and draws the mask
    inside the kernel from the GPU's generator, so that neither mask nor probabilities ever lie in
    memory; it is therefore called directly. In its backward pass sums are added in no fixed
    order, unless ``torch.use_deterministic_algorithms(True)`` asks for one.

    On a CPU, :func:`reference`.

    Args:
        q, k, v: [N, A, D].
        ends: int32 [S + 1], where each sequence begins and the last ends: 0, …, N. Sequences may
            be empty.
        longest: at least as long as each of them.
        p: dropout rate of the probabilities.
        window: how many rows to either side of its own a row looks at; None: at the whole sequence.

    Returns:
        [N, A, D].
    """
    if q.device.type == "cpu":
        return reference(q, k, v, ends, p, window)
    return flash_attention(q, k, v, ends, longest, p, window)


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ends: Tensor,
    p: float = 0.0,
    window: int | None = None,
) -> Tensor:
    """Return what :func:`varlen_attention` computes, as plain products over all N x N pairs with
    those of different sequences, or beyond the window, left out: what tests compare with."""
    row = torch.arange(q.shape[0], device=q.device)
    sequence = torch.searchsorted(ends[1:].contiguous(), row, right=True)
    other = sequence[:, None] != sequence[None, :]
    if window is not None:
        other = other | ((row[:, None] - row[None, :]).abs() > window)
    scores = torch.einsum("iad,jad->aij", q, k).float() * q.shape[-1] ** -0.5
    probs = torch.softmax(scores.masked_fill(other, float("-inf")), -1).to(v.dtype)
    if p > 0.0:
        probs = torch.nn.functional.dropout(probs, p)
    return torch.einsum("aij,jad->iad", probs, v)
