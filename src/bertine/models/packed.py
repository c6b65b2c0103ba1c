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


#: Up to so many rows the two products run in fp32, over numbers rounded to the type that they have
#: in larger batches: a product in bf16 takes 14 microseconds there before it begins, one in fp32 5.
_FEW_ROWS = 64


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
    """softmax(q k' / sqrt(D) + bias) v, the softmax in fp32.

    For sequences of some tens of tokens two batched products take half the time of PyTorch's
    ``scaled_dot_product_attention``, which works through them head by head.

    Args:
        q: [B, A, Q, D], Q queries a sequence.
        k, v: [B, A, T, D].

    Returns:
        [B, A, Q, D], in the type of q.
    """
    b, a, queries, d = q.shape
    t = k.shape[2]
    if t >= _BLOCKED_FROM and queries > 1:
        mask = None if rows.bias is None else rows.bias[:, None].to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    dtype = q.dtype
    q, k, v = (x.reshape(b * a, x.shape[2], d) for x in (q, k, v))
    few = b * t <= _FEW_ROWS
    if few:
        q, k, v = q.float(), k.float(), v.float()
    scores = torch.bmm(q, k.transpose(1, 2)).to(dtype).float().mul_(d**-0.5)
    if rows.bias is not None:
        scores.view(b, a, queries, t).add_(rows.bias[:, None])
    probs = torch.softmax(scores, -1).to(dtype)
    return torch.bmm(probs.float() if few else probs, v).to(dtype).view(b, a, queries, d)


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
        qkv, size = layer.attention.qkv, layer.attention.qkv.in_features
        self._qkv = _packed(qkv.weight, qkv.bias, dtype)
        if split:
            self._q = _packed(qkv.weight[:size], qkv.bias[:size], dtype)
            self._kv = _packed(qkv.weight[size:], qkv.bias[size:], dtype)
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
        qkv = _linear(x, self._qkv).view(b, t, 3, a, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.contiguous()
        mixed = attend(q, k, v, rows).transpose(1, 2).reshape(b * t, -1)
        return self._rest(x, mixed)

    def first_token(self, x: Tensor, rows: Rows) -> Tensor:
        """x [N, H] → [B, H], what the layer gives for the first token of each sequence."""
        b, t, a = rows.sequences, rows.length, self.heads
        first = x.view(b, t, -1)[:, 0].contiguous()
        q = _linear(first, self._q).view(b, 1, a, -1).transpose(1, 2)
        k, v = _linear(x, self._kv).view(b, t, 2, a, -1).permute(2, 0, 3, 1, 4)
        return self._rest(first, attend(q, k, v, rows).reshape(b, -1))

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
