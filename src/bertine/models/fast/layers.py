"""BERT layers for answering only: weights packed once for the CPU's matrix instructions.

What training keeps apart is one product here: its bias, GELU or the residual are added while the
result is still in registers (oneDNN's post-operations, which PyTorch's compiler uses as well).
:mod:`bertine.models.fast.int8` has the layers for 8-bit integers.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A;
N rows: the B * T places of a padded batch, or its tokens alone, and some that fill up
(:mod:`bertine.models.fast.rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.models.fast import torch_private
from bertine.models.fast.rows import PaddedRows, Rows
from bertine.models.fast.torch_private import has_packed
from bertine.models.layers import ACTIVATIONS, EncoderLayer

#: hidden_act of config.json → name and algorithm of oneDNN's post-operation.
FUSED_ACTIVATIONS = {
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
}

#: From this length on the scores [B*A, T, T] no longer fit the caches, and PyTorch's blocked
#: attention, slow for short sequences, is faster.
BLOCKED_FROM = 384


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Compute softmax(q k' + bias) v, the softmax in fp32.

    For sequences of some tens of tokens two batched products take half the time of PyTorch's
    ``scaled_dot_product_attention``, which works through them head by head.

    Args:
        q: [B, A, Q, D], Q queries a sequence, divided by sqrt(D).
        k, v: [B, A, T, D].
        bias: fp32 [B, 1, T] or None.

    Returns:
        [B, A, Q, D], in the type of q.
    """
    b, a, queries, d = q.shape
    if k.shape[2] >= BLOCKED_FROM and queries > 1:
        mask = None if bias is None else bias[:, None].to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
    q, k, v = (x.reshape(b * a, x.shape[2], d) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2))
    if bias is not None:
        scores.view(b, a, queries, -1).add_(bias[:, None])
    probs = torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype)
    return torch.bmm(probs, v).view(b, a, queries, d)


def self_attention(qkv: Tensor, rows: Rows, heads: int, dtype: torch.dtype) -> Tensor:
    """Compute :func:`attend` within each sequence.

    Args:
        qkv: [N, 3 H], queries (divided by sqrt(D)), keys and values of each row.
        dtype: of what is returned.

    Returns:
        [N, H], contiguous.
    """
    if (
        isinstance(rows, PaddedRows) and rows.sequences == 1
    ):  # by itself: a recording must not know T
        q, k, v = _parts(qkv, 3, rows, heads)
        attended = attend(q, k, v, rows.bias).transpose(1, 2)
        attended = attended.to(dtype, memory_format=torch.contiguous_format)
        return attended.flatten(2).flatten(0, 1)
    if isinstance(rows, PaddedRows):
        q, k, v = _parts(qkv[: rows.area], 3, rows, heads)
        attended = attend(q, k, v, rows.bias).transpose(1, 2)
        mixed = torch.empty(len(qkv), qkv.shape[1] // 3, dtype=dtype)
        mixed[: rows.area].view(attended.shape).copy_(attended)
        mixed[rows.area :] = 0
        return mixed
    places = qkv.index_select(0, rows.tokens)
    mixed = qkv.new_empty(len(places), qkv.shape[1] // 3)
    begin = 0
    for group in rows.groups:
        here = slice(begin, begin + group.area)
        q, k, v = _parts(places[here], 3, group, heads)
        attended = attend(q, k, v, group.bias).transpose(1, 2)
        mixed[here].view(attended.shape).copy_(attended)
        begin = here.stop
    return mixed.index_select(0, rows.places).to(dtype)


def first_attention(q: Tensor, kv: Tensor, rows: Rows, heads: int) -> Tensor:
    """Compute :func:`attend` for the first token of each sequence.

    Args:
        q: [at least B, H], divided by sqrt(D).
        kv: [N, 2 H], keys and values of each row.

    Returns:
        The same shape and type as q; 0 in rows beyond B.
    """
    queries = q.view(len(q), heads, 1, -1)
    if isinstance(rows, PaddedRows) and rows.sequences == 1:  # as above
        k, v = _parts(kv, 2, rows, heads)
        return attend(queries, k, v, rows.bias).reshape(q.shape)
    mixed = torch.zeros_like(q)
    if isinstance(rows, PaddedRows):
        k, v = _parts(kv[: rows.area], 2, rows, heads)
        attended = attend(queries[: rows.sequences], k, v, rows.bias)
        mixed[: rows.sequences] = attended.reshape(rows.sequences, -1)
        return mixed
    places = kv.index_select(0, rows.tokens)
    begin = 0
    for group, members in zip(rows.groups, rows.members, strict=True):
        here = slice(begin, begin + group.area)
        k, v = _parts(places[here], 2, group, heads)
        attended = attend(queries[members], k, v, group.bias)
        mixed[members] = attended.reshape(len(members), -1)
        begin = here.stop
    return mixed


def _parts(x: Tensor, parts: int, rows: PaddedRows, heads: int) -> Tensor:
    """Lay out [N, parts * H] as [parts, B, A, T, D], contiguous."""
    # T as it is in x: what is recorded of one sequence serves others.
    parted = x.view(rows.sequences, -1, parts, heads, x.shape[1] // (parts * heads))
    return parted.permute(2, 0, 3, 1, 4).contiguous()


def attend_few(
    qkv: Tensor, rows: PaddedRows, heads: int, dtype: torch.dtype, first: bool = False
) -> Tensor:
    """Compute :func:`attend` for few rows, in fp32, as a product in bf16 takes 14 microseconds
    before it begins and one in fp32 5, but over numbers rounded to `dtype`: a text gets the same
    answer alone and among others.

    Args:
        qkv: [N, 3 H] of any type, queries (divided by sqrt(D)), keys and values of each row.
        first: only the first query of each sequence.

    Returns:
        [B, T, A, D], with `first` [B, 1, A, D]; of any strides, in `dtype`.
    """
    b, t = rows.sequences, rows.length
    qkv = qkv.to(dtype).float()
    if b == 1:
        # Without copies, and T as it is there: what is recorded of one sequence serves others.
        q, k, v = qkv.view(qkv.shape[0], 3 * heads, -1).transpose(0, 1).chunk(3)
    else:
        parted = qkv.view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parted.reshape(3, b * heads, t, -1).unbind()
    if first:
        q = q[:, :1]
    scores = torch.bmm(q, k.transpose(1, 2))
    if rows.bias is not None:
        scores.view(b, heads, -1, t).add_(rows.bias[:, None])
    probs = torch.softmax(scores.to(dtype), -1, dtype=torch.float32).to(dtype).float()
    mixed = torch.bmm(probs, v).to(dtype)
    return mixed.view(b, heads, q.shape[1], -1).transpose(1, 2)


def scaled_queries(layer: EncoderLayer) -> tuple[Tensor, Tensor]:
    """Return the weight fp32 [3 H, H] and the bias fp32 [3 H] of queries, keys and values, such
    that queries come out divided by sqrt(D): scores need no division then."""
    attention = layer.attention
    weight, bias = (part.detach().float().clone() for part in attention.qkv.parameters())
    size = attention.qkv.in_features
    scale = (size // attention.heads) ** -0.5
    weight[:size] *= scale
    bias[:size] *= scale
    return weight, bias


class FloatLayer:
    """An encoder layer in fp32 or bf16.

    Args:
        layer: its weights are copied and packed.
        dtype: torch.float32 or torch.bfloat16.
        act: hidden_act of the configuration.
        split: also keep queries apart from keys and values, for :meth:`first_token`.
    """

    def __init__(
        self, layer: EncoderLayer, dtype: torch.dtype, act: str, split: bool = False
    ) -> None:
        self.dtype, self.heads = dtype, layer.attention.heads
        weight, bias = scaled_queries(layer)
        size = weight.shape[1]
        self._qkv = _packed(weight, bias, dtype)
        self._split = split
        if split:
            self._q = _packed(weight[:size], bias[:size], dtype)
            self._kv = _packed(weight[size:], bias[size:], dtype)
        self._out = _packed(layer.attention.out.weight, layer.attention.out.bias, dtype)
        self._up = _packed(layer.up.weight, layer.up.bias, dtype)
        self._down = _packed(layer.down.weight, layer.down.bias, dtype)
        self._attention_norm = norm_of(layer.attention_norm)
        self._output_norm = norm_of(layer.output_norm)
        self._fused = FUSED_ACTIVATIONS.get(act) if has_packed(dtype) else None
        self._act = ACTIVATIONS[act]

    def __call__(self, x: Tensor, rows: Rows) -> Tensor:
        """x [N, H] → [N, H]."""
        qkv = _linear(x, self._qkv)
        return self._rest(x, self_attention(qkv, rows, self.heads, self.dtype))

    def first_token(self, x: Tensor, rows: Rows) -> Tensor:
        """x [N, H] → [at least B, H], what the layer gives for the first token of each sequence."""
        first = rows.first(x)
        q, kv = _linear(first, self._q), _linear(x, self._kv)
        return self._rest(first, first_attention(q, kv, rows, self.heads))

    def weights(self) -> list[Any]:
        """Return the packed weights, for :class:`bertine.models.fast.recorded.Recorded`."""
        products = [self._qkv, self._out, self._up, self._down]
        if self._split:
            products += [self._q, self._kv]
        return [weight for weight, _ in products]

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Return what follows the attention; x, mixed [M, H]."""
        x = self._attention_norm(_linear_add(mixed, x, self._out))
        if self._fused:
            inner = _linear(x, self._up, *self._fused)
        else:
            inner = self._act(_linear(x, self._up))
        return self._output_norm(_linear_add(inner, x, self._down))


#: A weight as oneDNN wants it, or as it is where oneDNN cannot; and the bias.
_Packed = tuple[Tensor, Tensor]
#: Rows that a weight's layout is chosen for.
_TYPICAL_ROWS = 1024


def _packed(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> _Packed:
    weight, bias = weight.detach().to(dtype).contiguous(), bias.detach().to(dtype, copy=True)
    if not has_packed(dtype):
        return weight.clone(), bias
    return torch_private.pack(weight, _TYPICAL_ROWS), bias


def _linear(x: Tensor, packed: _Packed, act: str = "none", algorithm: str = "") -> Tensor:
    weight, bias = packed
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias)
    return torch_private.linear(x, weight, bias, act, algorithm)


def _linear_add(x: Tensor, other: Tensor, packed: _Packed) -> Tensor:
    weight, bias = packed
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias).add_(other)
    return torch_private.linear_add(x, other, weight, bias)


def norm_of(norm: torch.nn.LayerNorm, divisor: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return a layer norm with weights of its own, in fp32 within; its result is divided by
    `divisor` (fp32 [H])."""
    weight, bias = norm.weight.detach().float(), norm.bias.detach().float()
    weight, bias = (w.clone() if divisor is None else w / divisor for w in (weight, bias))
    shape: Any = list(norm.normalized_shape)
    eps = norm.eps

    def apply(x: Tensor) -> Tensor:
        out: Tensor = torch.native_layer_norm(x, shape, weight, bias, eps)[0]
        return out

    return apply


def projection_of(linear: torch.nn.Linear, divisor: Tensor | None = None) -> Callable[..., Tensor]:
    """Return a linear layer in fp32 with weights of its own; its result is divided by `divisor`
    (fp32 [H])."""
    weight, bias = linear.weight.detach().float(), linear.bias.detach().float()
    if divisor is not None:
        weight, bias = weight / divisor[:, None], bias / divisor
    weight, bias = weight.clone(), bias.clone()
    return lambda x: F.linear(x, weight, bias)
