"""Attention of tokens to those around them, block by block, for a CPU.

A sequence is cut into blocks as long as the window reaches to one side; the queries of a block meet
the keys of their own block and of its two neighbours, and what lies beyond the window among these
is left out. The products grow with the length, not with its square (Beltagy et al. 2020, arXiv
2004.05150, section 3.1, has blocks for the same purpose).

Shape legend: B sequences, T tokens of the longest, A attention heads, D head size; M blocks of S
tokens; R rows, B * A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.models.dropout import stream
from bertine.models.fast.torch_private import softmax_backward

#: A block has no fewer tokens than this: smaller products are not worth their calls.
_LEAST = 16
#: Scores that are made at a time: what fits the caches.
_AT_ONCE = 1 << 19


def band(length: int, window: int, device: torch.device | None = None) -> Tensor:
    """Return which tokens are at most `window` places apart, bool [T, T]."""
    places = torch.arange(length, device=device)
    return (places[:, None] - places).abs() <= window


def band_bias(
    length: int, window: int, real: Tensor | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return what is added to the scores of whole sequences: 0 within the window, -inf beyond it
    and at padding. A token always sees itself, even if it is padding: a row of nothing would be
    NaN, and NaN of a row that nobody reads would reach the others.

    Args:
        real: bool [B, T], or None: no padding.

    Returns:
        [B or 1, 1, T, T].
    """
    seen = band(length, window, device)[None]
    if real is not None:
        itself = torch.eye(length, dtype=torch.bool, device=device)
        seen = (seen & real[:, None, :]) | itself
    bias = torch.zeros(seen.shape, dtype=dtype, device=device)
    return bias.masked_fill_(~seen, float("-inf"))[:, None]


@dataclass(frozen=True)
class Blocks:
    """A cut of sequences into blocks.

    Attributes:
        size: S, at least the window.
        count: M; the last block is filled up.
        bias: [B or 1, M, S, 3 S] added to the scores: 0 within the window, -inf beyond it, at
            padding and beyond the ends of the sequence.
    """

    size: int
    count: int
    bias: Tensor

    @classmethod
    def of(cls, length: int, window: int, real: Tensor | None, dtype: torch.dtype) -> Blocks:
        """Cut sequences of `length` tokens; real bool [B, T], or None: no padding."""
        size = max(window, _LEAST)
        count = -(-length // size)
        if real is None:
            real = torch.ones(1, length, dtype=torch.bool)
        there = _neighbours(F.pad(real, (0, count * size - length))[..., None], size)[..., 0]
        within = torch.arange(size)[:, None] + size - torch.arange(3 * size)
        seen = (within.abs() <= window) & there[:, :, None, :] | (within == 0)
        bias = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
        return cls(size, count, bias)


def _neighbours(x: Tensor, size: int) -> Tensor:
    """x [R, M * S, F]. Returns [R, M, 3 S, F]: each block with the one before and the one behind,
    zeros where there is none."""
    r, t, f = x.shape
    padded = F.pad(x, (0, 0, size, size)).view(r, t // size + 2, size, f)
    return torch.cat((padded[:, :-2], padded[:, 1:-1], padded[:, 2:]), 2)


def _added(blocks: Tensor) -> Tensor:
    """Add up what :func:`_neighbours` gave out several times: blocks [R, M, 3 S, F] → [R, M * S,
    F]."""
    r, m, span, f = blocks.shape
    size = span // 3
    total = blocks.new_zeros(r, m + 2, size, f)
    for number in range(3):
        total[:, number : number + m] += blocks[:, :, number * size : (number + 1) * size]
    return total[:, 1:-1].reshape(r, m * size, f)


class _BlockAttention(torch.autograd.Function):
    """softmax(q k' / sqrt(D) + bias), with dropout, times v, in blocks. Some rows at a time; the
    probabilities are made again in the backward pass, so that no more than those of some rows ever
    lie in memory."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, p: float, scale: float
    ) -> Tensor:
        # q, k, v [R, M * S, D]
        ctx.save_for_backward(q, k, v)
        ctx.blocks, ctx.p, ctx.keep, ctx.scale = blocks, p, 1.0 / (1.0 - p), scale
        ctx.tickets = [stream.ticket() if p else 0 for _ in _groups(q, blocks)]
        out = torch.empty_like(q)
        for here, ticket in zip(_groups(q, blocks), ctx.tickets, strict=True):
            probs = _probs(q, k, blocks, here, scale)
            if p:
                probs *= stream.mask(ticket, probs.shape, p, probs.dtype)
            values = _neighbours(v[here], blocks.size).flatten(0, 1)
            mixed = torch.bmm(probs, values)
            out[here] = mixed.view(out[here].shape)
        return out.mul_(ctx.keep) if p else out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        blocks, size = ctx.blocks, ctx.blocks.size
        (grad,) = grads
        if ctx.p:
            grad = grad * ctx.keep
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        for here, ticket in zip(_groups(q, blocks), ctx.tickets, strict=True):
            rows = q[here].shape[0]
            probs = _probs(q, k, blocks, here, ctx.scale)
            dropped = probs
            of_out = grad[here].reshape(rows * blocks.count, size, -1)
            grad_probs = torch.bmm(of_out, _neighbours(v[here], size).flatten(0, 1).transpose(1, 2))
            if ctx.p:
                mask = stream.mask(ticket, probs.shape, ctx.p, probs.dtype)
                dropped = probs * mask
                grad_probs *= mask
            of_values = torch.bmm(dropped.transpose(1, 2), of_out)
            grad_v[here] = _added(of_values.view(rows, blocks.count, 3 * size, -1))
            scores = softmax_backward(grad_probs, probs).mul_(ctx.scale)
            keys = _neighbours(k[here], size).flatten(0, 1)
            grad_q[here] = torch.bmm(scores, keys).view(grad_q[here].shape)
            queries = q[here].view(rows * blocks.count, size, -1)
            of_keys = torch.bmm(scores.transpose(1, 2), queries)
            grad_k[here] = _added(of_keys.view(rows, blocks.count, 3 * size, -1))
        return grad_q, grad_k, grad_v, None, None, None


def _groups(q: Tensor, blocks: Blocks) -> Iterator[slice]:
    """Yield which rows are computed together."""
    rows = q.shape[0]
    together = max(1, _AT_ONCE // (blocks.count * blocks.size * 3 * blocks.size))
    for begin in range(0, rows, together):
        yield slice(begin, min(rows, begin + together))


def _probs(q: Tensor, k: Tensor, blocks: Blocks, here: slice, scale: float) -> Tensor:
    """Return the probabilities of some rows, [rows * M, S, 3 S]."""
    size, count = blocks.size, blocks.count
    queries = q[here].reshape(-1, size, q.shape[-1])
    keys = _neighbours(k[here], size).flatten(0, 1)
    bias = blocks.bias
    if bias.shape[0] > 1:
        heads = q.shape[0] // bias.shape[0]
        bias = bias[torch.arange(here.start, here.stop) // heads]
    bias = bias.expand(here.stop - here.start, count, size, 3 * size).reshape(-1, size, 3 * size)
    scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=scale)
    return torch.softmax(scores, -1)


def block_attention(
    q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, p: float = 0.0, scale: float | None = None
) -> Tensor:
    """Compute attention within the window of `blocks`.

    Args:
        q, k, v: [R, T, D], on a CPU; R is a multiple of the bias's B.
        p: dropout rate of the probabilities.
        scale: of the scores; None: 1 / sqrt(D).

    Returns:
        [R, T, D].
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    length = q.shape[1]
    fill = blocks.count * blocks.size - length
    if fill:
        q, k, v = (F.pad(x, (0, 0, 0, fill)) for x in (q, k, v))
    mixed: Tensor = _BlockAttention.apply(q, k, v, blocks, p, scale)
    return mixed[:, :length] if fill else mixed
