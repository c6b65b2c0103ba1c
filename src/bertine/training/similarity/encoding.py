"""The vectors of a batch in parts: of like length, and in bounded memory.

A loss over all pairs of a batch needs all its vectors at once, but not all that was computed on the
way to them. Where a batch is more than one part, the vectors are computed without gradients; the
loss gives the gradients of the vectors; and with these each part is computed again and goes
backwards
by itself (gradient caching: Gao et al. 2021, arXiv 2101.06983, section 3).

Shape legend: B texts, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.data.split import cut, select
from bertine.models.dropout import stream

#: A batch → its vectors fp32 [B, D].
Encode = Callable[[Batch], Tensor]


def encode_in_parts(encode: Encode, batch: Batch, max_tokens: int) -> Tensor:
    """Compute the vectors fp32 [B, D] of `batch`, in parts of at most `max_tokens` tokens, padding
    counted; with gradients, where they are asked for.

    Dropout is drawn by the part: the same for the same position of the stream.
    """
    lengths = batch.attention_mask.sum(1).cpu()
    parts = cut(lengths, torch.arange(batch.num_sequences), max_tokens)
    if len(parts) == 1:
        return encode(batch)
    if not torch.is_grad_enabled():
        return _forward(encode, batch, parts, stream.position)
    tied = torch.zeros((), device=batch.input_ids.device, requires_grad=True)
    vectors: Tensor = _Cached.apply(tied, encode, batch, parts)
    return vectors


def _forward(
    encode: Encode, batch: Batch, parts: list[Tensor], position: tuple[int, ...]
) -> Tensor:
    vectors = []
    for number, rows in enumerate(parts):
        stream.seed(*position, number)
        vectors.append(encode(select(batch, rows)))
    order = torch.cat(parts).to(vectors[0].device)
    joined = torch.cat(vectors)
    return torch.empty_like(joined).index_copy_(0, order, joined)


class _Cached(torch.autograd.Function):
    """Vectors whose parts are computed again, one after the other, when gradients go back."""

    @staticmethod
    def forward(
        ctx: Any, tied: Tensor, encode: Encode, batch: Batch, parts: list[Tensor]
    ) -> Tensor:
        ctx.encode, ctx.batch, ctx.parts, ctx.position = encode, batch, parts, stream.position
        kind = tied.device.type
        ctx.autocast = (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        return _forward(encode, batch, parts, ctx.position)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        kind, enabled, dtype = ctx.autocast
        for number, rows in enumerate(ctx.parts):
            stream.seed(*ctx.position, number)
            with torch.enable_grad(), torch.autocast(kind, enabled=enabled, dtype=dtype):
                vectors = ctx.encode(select(ctx.batch, rows))
            vectors.backward(grad[rows.to(grad.device)])
        return None, None, None, None
