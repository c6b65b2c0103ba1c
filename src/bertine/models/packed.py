"""BERT layers for answering only: weights packed once for the CPU's matrix instructions.

What training keeps apart is one product here: its bias, GELU or the residual are added while the
result is still in registers (oneDNN's post-operations, which PyTorch's compiler uses as well).
:mod:`bertine.models.packed_int8` has the layers for 8-bit integers.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A;
N = B * T rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

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
_BLOCKED_FROM = 384


#: Up to so many rows a layer is computed in as few calls as there can be: each takes some
#: microseconds before it begins.
FEW_ROWS = 40


@dataclass(frozen=True)
class Rows:
    """How N = B * T rows are B sequences.

    Attributes:
        sequences: B.
        length: T.
        bias: [B, 1, T] added to attention scores, 0 at real tokens and -inf at padding; None:
            all sequences have T tokens.
    """

    sequences: int
    length: int
    bias: Tensor | None = None

    @classmethod
    def of(cls, lengths: Tensor, length: int) -> Rows:
        """Of sequences padded to `length`; lengths int64 [B], each at least 1."""
        sequences = lengths.shape[0]
        if int(lengths.min()) == length:
            return cls(sequences, length)
        padding = torch.arange(length)[None, :] >= lengths[:, None]
        bias = torch.zeros(sequences, 1, length).masked_fill_(padding[:, None, :], float("-inf"))
        return cls(sequences, length, bias)


def attend(q: Tensor, k: Tensor, v: Tensor, rows: Rows) -> Tensor:
    """softmax(q k' + bias) v, the softmax in fp32.

    For sequences of some tens of tokens two batched products take half the time of PyTorch's
    ``scaled_dot_product_attention``, which works through them head by head.

    Args:
        q: [B, A, Q, D], Q queries a sequence, divided by sqrt(D).
        k, v: [B, A, T, D].

    Returns:
        [B, A, Q, D], in the type of q.
    """
    b, a, queries, d = q.shape
    t = k.shape[2]
    if t >= _BLOCKED_FROM and queries > 1:
        mask = None if rows.bias is None else rows.bias[:, None].to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
    q, k, v = (x.reshape(b * a, x.shape[2], d) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2))
    if rows.bias is not None:
        scores.view(b, a, queries, t).add_(rows.bias[:, None])
    probs = torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype)
    return torch.bmm(probs, v).view(b, a, queries, d)


def attend_few(
    qkv: Tensor, rows: Rows, heads: int, dtype: torch.dtype, first: bool = False
) -> Tensor:
    """:func:`attend` for few rows. It computes in fp32, as a product in bf16 takes 14 microseconds
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
        # Without copies.
        q, k, v = qkv.view(t, 3 * heads, -1).transpose(0, 1).chunk(3)
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
    """The weight fp32 [3 H, H] and the bias fp32 [3 H] of queries, keys and values, such that
    queries come out divided by sqrt(D): scores need no division then."""
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
        b, t, a = rows.sequences, rows.length, self.heads
        qkv = _linear(x, self._qkv)
        if b * t <= FEW_ROWS:
            mixed = attend_few(qkv, rows, a, self.dtype)
        else:
            q, k, v = qkv.view(b, t, 3, a, -1).permute(2, 0, 3, 1, 4).contiguous()
            mixed = attend(q, k, v, rows).transpose(1, 2)
        return self._rest(x, mixed.reshape(b * t, -1))

    def first_token(self, x: Tensor, rows: Rows) -> Tensor:
        """x [N, H] → [B, H], what the layer gives for the first token of each sequence."""
        b, t, a = rows.sequences, rows.length, self.heads
        first = x.view(b, t, -1)[:, 0].contiguous()
        if b * t <= FEW_ROWS:
            mixed = attend_few(_linear(x, self._qkv), rows, a, self.dtype, first=True)
        else:
            q = _linear(first, self._q).view(b, 1, a, -1).transpose(1, 2)
            k, v = _linear(x, self._kv).view(b, t, 2, a, -1).permute(2, 0, 3, 1, 4)
            mixed = attend(q, k, v, rows)
        return self._rest(first, mixed.reshape(b, -1))

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows the attention; x, mixed [M, H]."""
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


@functools.cache
def has_packed(dtype: torch.dtype) -> bool:
    """Whether oneDNN's products over packed weights are there for `dtype`. They are not in builds
    of PyTorch without oneDNN (macOS), and in bf16 not on every CPU (x86: AVX-512 or
    AVX-NE-CONVERT): PyTorch's own products are taken there."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.zeros(8, 8, dtype=dtype), 8)
        x = torch.zeros(8, 8, dtype=dtype)
        torch.ops.mkldnn._linear_pointwise(x, weight, x[0], "gelu", [], "none")
    except (AttributeError, RuntimeError):
        return False
    return True


def _packed(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> _Packed:
    weight, bias = weight.detach().to(dtype).contiguous(), bias.detach().to(dtype, copy=True)
    if not has_packed(dtype):
        return weight.clone(), bias
    return torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS), bias


def _linear(x: Tensor, packed: _Packed, act: str = "none", algorithm: str = "") -> Tensor:
    weight, bias = packed
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, act, [], algorithm)
    return out


def _linear_add(x: Tensor, other: Tensor, packed: _Packed) -> Tensor:
    weight, bias = packed
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias).add_(other)
    out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, bias, "add")
    return out


def norm_of(norm: torch.nn.LayerNorm, divisor: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """A layer norm with weights of its own, in fp32 within; its result is divided by `divisor`
    (fp32 [H])."""
    weight, bias = norm.weight.detach().float(), norm.bias.detach().float()
    weight, bias = (w.clone() if divisor is None else w / divisor for w in (weight, bias))
    shape: Any = list(norm.normalized_shape)
    eps = norm.eps

    def apply(x: Tensor) -> Tensor:
        out: Tensor = torch.native_layer_norm(x, shape, weight, bias, eps)[0]
        return out

    return apply
