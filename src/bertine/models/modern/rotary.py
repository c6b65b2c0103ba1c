"""Rotary positions: queries and keys are turned by angles that grow with their place, so that their
products depend on how far apart they are (Su et al. 2021, arXiv 2104.09864, section 3.2.2).

As in published weights, the two numbers of a pair that is turned stand half a head apart.

Shape legend: B sequences, T tokens of the longest, A attention heads, D head size; N rows.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

#: Cosines and sines of the angles.
Angles = tuple[Tensor, Tensor]


def angles(positions: Tensor, size: int, theta: float) -> Angles:
    """Return the cosines and sines of the angles at `positions`.

    Args:
        positions: [P].
        size: D.
        theta: the wavelengths are from 2 pi tokens to nearly so many times as much.

    Returns:
        Two of fp32 [P, D / 2].
    """
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    turned = positions.float()[:, None] * (1.0 / theta ** (steps / size))
    return turned.cos(), turned.sin()


def first_angles(length: int, size: int, theta: float, dtype: torch.dtype) -> Angles:
    """Return the :func:`angles` of the places 0, …, `length` - 1 for a CPU, in `dtype`."""
    rows = 1 << max(6, (length - 1).bit_length())
    cosines, sines = _table(rows, size, theta, dtype)
    return cosines[:length], sines[:length]


@functools.lru_cache(maxsize=16)
def _table(rows: int, size: int, theta: float, dtype: torch.dtype) -> Angles:
    with torch.inference_mode(False):  # what is made in it could not be used in training
        cosines, sines = angles(torch.arange(rows), size, theta)
        return cosines.to(dtype), sines.to(dtype)


def turn(x: Tensor, by: Angles) -> Tensor:
    """Turn x [P, …, D] by its place in the first dimension; `by` are of [P, D / 2]."""
    cosines, sines = (part.view(part.shape[0], *[1] * (x.dim() - 2), -1).to(x.dtype) for part in by)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def turn_into(out: Tensor, x: Tensor, cosines: Tensor, sines: Tensor, sign: int = 1) -> None:
    """Put x [..., T, D], turned by `sign` times the angles of cosines and sines [T, D / 2], into
    `out`, of the same shape and type."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    torch.mul(first, cosines, out=out[..., :half]).addcmul_(second, sines, value=-sign)
    torch.mul(second, cosines, out=out[..., half:]).addcmul_(first, sines, value=sign)


class _TurnedParts(torch.autograd.Function):
    """Queries, keys and values laid out for batched products, the first two turned: in the one pass
    over memory that laying them out takes anyway."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, ...]:
        # qkv [B, T, 3, A, D]; cosines, sines [T, D/2]
        ctx.save_for_backward(cosines, sines)
        b, t, _, a, d = qkv.shape
        ctx.heads = a
        parts = qkv.new_empty(3, b, a, t, d)
        laid = qkv.permute(2, 0, 3, 1, 4)
        turn_into(parts[:2], laid[:2], cosines, sines, 1)
        parts[2].copy_(laid[2])
        q, k, v = parts.view(3, b * a, t, d).unbind()
        return q, k, v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cosines, sines = ctx.saved_tensors
        t, d = grads[0].shape[1:]
        a = ctx.heads
        b = grads[0].shape[0] // a
        laid = grads[0].new_empty(3, b, a, t, d)
        for part, grad in zip(laid[:2], grads[:2], strict=True):
            turn_into(part, grad.view(b, a, t, d), cosines, sines, -1)
        laid[2].copy_(grads[2].view(b, a, t, d))
        # Turned where it lies close together, and moved after that: four passes over parts of rows
        # that lie apart take six times as long.
        whole = laid.permute(1, 3, 0, 2, 4).contiguous()
        return whole, None, None


def turned_parts(qkv: Tensor, by: Angles) -> tuple[Tensor, Tensor, Tensor]:
    """Take queries, keys and values apart, the first two turned by their places, on a CPU.

    Args:
        qkv: [B, T, 3, A, D].
        by: of the places, [T, D / 2], in the type of `qkv`.

    Returns:
        Three of [B * A, T, D], contiguous.
    """
    q, k, v = _TurnedParts.apply(qkv, *by)
    return q, k, v
