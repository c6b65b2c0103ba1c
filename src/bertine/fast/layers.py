"""Build BERT layers for inference, with weights packed once for the CPU's matrix instructions.

Operations that are separate in training are one product here: its bias, GELU or the residual are
added while the result is still in registers (oneDNN's post-operations, which PyTorch's compiler
uses as well). :mod:`bertine.fast.int8` has the layers for 8-bit integers.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A;
N rows: the B * T places of a padded batch, or only its tokens, and some that fill up.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models import torch_private
from bertine.models.layers import ACTIVATIONS, EncoderLayer
from bertine.models.torch_private import has_packed

Weights = TypeVar("Weights")

# Rows: which rows of a matrix are the tokens of which sequence.
#
# Shape legend: B sequences, T tokens of the longest, H hidden size; N rows.

#: Up to this many rows a layer is computed in as few calls as possible: each takes some
#: microseconds before it begins.
FEW_ROWS = 40
#: Rows of several sequences, unless they are few, are filled up to a multiple of the first; rows of
#: first tokens only, to one of the second; and without padding, sequences get places in attention
#: for a multiple of the third. oneDNN compiles a kernel for each exact size of a product, which
#: takes milliseconds and a third of a megabyte (for attention two thirds), so few sizes are used.
#: The cost is negligible: in 8 bits 736 rows take as long as 768.
_ROWS, _FIRSTS, _TOKENS = 32, 8, 8


def _filled(count: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `count`."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class PaddedRows:
    """Rows of sequences with places of one length for attention, one sequence after the other; if
    there are several sequences and not few rows, extra rows at the end fill up.

    Attributes:
        sequences: B.
        length: T.
        bias: fp32 [B, 1, T] added to attention scores, 0 at real tokens and -inf at padding; None:
            all sequences have T tokens.
    """

    sequences: int
    length: int
    bias: Tensor | None = None

    @classmethod
    def of(cls, lengths: Tensor, length: int) -> PaddedRows:
        """Lay out rows for sequences padded to `length`; lengths int64 [B], each at least 1."""
        sequences = lengths.shape[0]
        if int(lengths.min()) == length:
            return cls(sequences, length)
        padding = torch.arange(length)[None, :] >= lengths[:, None]
        bias = torch.zeros(sequences, 1, length).masked_fill_(padding[:, None, :], float("-inf"))
        return cls(sequences, length, bias)

    @property
    def area(self) -> int:
        """B * T."""
        return self.sequences * self.length

    @property
    def few(self) -> bool:
        """Whether there are so few rows that calls cost more than the computation in them."""
        return self.area <= FEW_ROWS

    @property
    def count(self) -> int:
        """N, the number of rows."""
        if self.sequences == 1 or self.few:
            return self.area
        return _filled(self.area, _ROWS)

    def first(self, x: Tensor) -> Tensor:
        """Map x [N, H] to [at least B, H], the rows of first tokens."""
        if self.sequences == 1:
            return x[:1]
        if self.few:
            return self.padded(x)[:, 0].contiguous()
        first = x.new_zeros(_filled(self.sequences, _FIRSTS), x.shape[1])
        first[: self.sequences] = self.padded(x)[:, 0]
        return first

    def padded(self, x: Tensor) -> Tensor:
        """Map x [N, H] to [B, T, H]."""
        return x[: self.area].view(self.sequences, self.length, -1)


@dataclass(frozen=True)
class UnpaddedRows:
    """Rows of sequences one after the other, without padding. For attention, those of similar
    length share places.

    Attributes:
        groups: for attention.
        members: int64 [B of it] for each group, its sequences; the last may occur several times, to
            fill the group.
        tokens: int64, for each place of all groups its row; at padding any row.
        places: int64 [N], for each row its place; some rows at the end fill up and are copies of
            the first.
        starts: int64, for each sequence the row of its first token; filled up with the first.
        lengths: int64 [B].
    """

    groups: list[PaddedRows]
    members: list[Tensor]
    tokens: Tensor
    places: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, lengths: Tensor, together: int) -> UnpaddedRows:
        """Lay out rows for sequences with `lengths`, int64 [B], each at least 1, in groups of
        `together`."""
        ends = lengths.cumsum(0)
        starts = ends - lengths
        groups, tokens = [], []
        order = lengths.argsort(descending=True, stable=True)
        if len(order) > together:
            order = torch.cat([order, order[-1:].expand(-len(order) % together)])
        members = list(order.split(together))
        for chosen in members:
            sizes = lengths[chosen]
            length = _filled(int(sizes[0]), _TOKENS)
            groups.append(PaddedRows.of(sizes, length))
            within = torch.arange(length)
            rows = torch.where(within < sizes[:, None], starts[chosen][:, None] + within, -1)
            tokens.append(rows.flatten())
        of_places = torch.cat(tokens)
        real = (of_places >= 0).nonzero().flatten()
        total = int(ends[-1])
        places = torch.zeros(_filled(total, _ROWS), dtype=torch.int64)
        places[of_places[real]] = real
        places[total:] = places[0]
        starts = F.pad(starts, (0, -len(starts) % _FIRSTS))
        return cls(groups, members, of_places.clamp_(min=0), places, starts, lengths)

    @classmethod
    def without_groups(cls, lengths: Tensor) -> UnpaddedRows:
        """Lay out only the rows of tokens, for a kernel that attends within texts of any length."""
        ends = lengths.cumsum(0)
        rows = torch.arange(int(ends[-1]))
        return cls([], [], rows, rows, ends - lengths, lengths)

    @property
    def count(self) -> int:
        """N, the number of rows."""
        return len(self.places)

    @property
    def sequences(self) -> int:
        """B."""
        return len(self.lengths)

    def first(self, x: Tensor) -> Tensor:
        """Map x [N, H] to [at least B, H], the rows of first tokens."""
        return x.index_select(0, self.starts)

    def padded(self, x: Tensor) -> Tensor:
        """Map x [N, H] to [B, T, H], with any values at padding."""
        within = torch.arange(int(self.lengths.max()))
        rows = self.starts[: self.sequences, None] + torch.minimum(
            within, self.lengths[:, None] - 1
        )
        return x.index_select(0, rows.flatten()).view(*rows.shape, -1)


Rows = PaddedRows | UnpaddedRows


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
    ``scaled_dot_product_attention``, which processes them head by head.

    Args:
        q: [B, A, Q, D], Q queries a sequence, divided by sqrt(D).
        k, v: [B, A, T, D].
        bias: fp32 [B or 1, Q or 1, T] or None.

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


class Heads:
    """Attention heads, which compute attention within each sequence from the products of the rows.

    Attributes:
        count: A.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def parts(self, x: Tensor, parts: int, rows: PaddedRows) -> Tensor:
        """Lay out [N, parts * H] (2: keys, values; 3: queries before them) as [parts, B, A, T, D],
        contiguous."""
        return parted(x, parts, rows, self.count).contiguous()

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: PaddedRows) -> Tensor:
        """Compute :func:`attend` of the result of :meth:`parts`: [B, A, Q, D]."""
        return attend(q, k, v, rows.bias)


def self_attention(qkv: Tensor, rows: Rows, heads: Heads, dtype: torch.dtype) -> Tensor:
    """Compute the attention within each sequence.

    Args:
        qkv: [N, 3 H], queries (divided by sqrt(D)), keys and values of each row.
        dtype: of the result.

    Returns:
        [N, H], contiguous.
    """
    if (
        isinstance(rows, PaddedRows) and rows.sequences == 1
    ):  # as a separate case: a recording must not fix T
        q, k, v = heads.parts(qkv, 3, rows)
        attended = heads.attend(q, k, v, rows).transpose(1, 2)
        attended = attended.to(dtype, memory_format=torch.contiguous_format)
        return attended.flatten(2).flatten(0, 1)
    if isinstance(rows, PaddedRows):
        q, k, v = heads.parts(qkv[: rows.area], 3, rows)
        attended = heads.attend(q, k, v, rows).transpose(1, 2)
        mixed = torch.empty(len(qkv), qkv.shape[1] // 3, dtype=dtype)
        mixed[: rows.area].view(attended.shape).copy_(attended)
        mixed[rows.area :] = 0
        return mixed
    places = qkv.index_select(0, rows.tokens)
    mixed = qkv.new_empty(len(places), qkv.shape[1] // 3)
    begin = 0
    for group in rows.groups:
        here = slice(begin, begin + group.area)
        q, k, v = heads.parts(places[here], 3, group)
        attended = heads.attend(q, k, v, group).transpose(1, 2)
        mixed[here].view(attended.shape).copy_(attended)
        begin = here.stop
    return mixed.index_select(0, rows.places).to(dtype)


def first_attention(q: Tensor, kv: Tensor, rows: Rows, heads: Heads) -> Tensor:
    """Compute the attention of the first token of each sequence.

    Args:
        q: [at least B, H], divided by sqrt(D).
        kv: [N, 2 H], keys and values of each row.

    Returns:
        The same shape and type as q; 0 in rows beyond B.
    """
    queries = q.view(len(q), heads.count, 1, -1)
    if isinstance(rows, PaddedRows) and rows.sequences == 1:  # as above
        k, v = heads.parts(kv, 2, rows)
        return heads.attend(queries, k, v, rows).reshape(q.shape)
    mixed = torch.zeros_like(q)
    if isinstance(rows, PaddedRows):
        k, v = heads.parts(kv[: rows.area], 2, rows)
        attended = heads.attend(queries[: rows.sequences], k, v, rows)
        mixed[: rows.sequences] = attended.reshape(rows.sequences, -1)
        return mixed
    places = kv.index_select(0, rows.tokens)
    begin = 0
    for group, members in zip(rows.groups, rows.members, strict=True):
        here = slice(begin, begin + group.area)
        k, v = heads.parts(places[here], 2, group)
        attended = heads.attend(queries[members], k, v, group)
        mixed[members] = attended.reshape(len(members), -1)
        begin = here.stop
    return mixed


def parted(x: Tensor, parts: int, rows: PaddedRows, heads: int) -> Tensor:
    """View [N, parts * H] as [parts, B, A, T, D]."""
    # T as it is in x: a recording with one sequence serves others.
    by_token = x.view(rows.sequences, -1, parts, heads, x.shape[1] // (parts * heads))
    return by_token.permute(2, 0, 3, 1, 4)


def attend_few(
    qkv: Tensor, rows: PaddedRows, heads: int, dtype: torch.dtype, first: bool = False
) -> Tensor:
    """Compute :func:`attend` for few rows in fp32, since a product in bf16 takes 14 microseconds
    before it begins and one in fp32 5, but on numbers rounded to `dtype`: a text gets the same
    answer alone and among others.

    Args:
        qkv: [N, 3 H] of any type, queries (divided by sqrt(D)), keys and values of each row.
        first: only the first query of each sequence.

    Returns:
        [B, T, A, D], with `first` [B, 1, A, D]; with any strides, in `dtype`.
    """
    b, t = rows.sequences, rows.length
    qkv = qkv.to(dtype).float()
    if b == 1:
        # Without copies, and with T from x: a recording with one sequence serves others.
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


def scaled_queries(qkv: torch.nn.Linear, heads: int) -> tuple[Tensor, Tensor]:
    """Return the weight fp32 [3 H, H] and the bias fp32 [3 H] of queries, keys and values, with the
    queries divided by sqrt(D), so that scores need no division."""
    weight = qkv.weight.detach().float().clone()
    bias = weight.new_zeros(len(weight)) if qkv.bias is None else qkv.bias.detach().float().clone()
    size = qkv.in_features
    scale = (size // heads) ** -0.5
    weight[:size] *= scale
    bias[:size] *= scale
    return weight, bias


class QueriesKeysValues(Generic[Weights]):
    """The packed weights of the product that computes queries, keys and values.

    Args:
        pack: packs a weight and a bias.
        weight, bias: of all three, the queries first: [3 H, H], [3 H].
        split: also pack the queries' weights apart from keys' and values', for first tokens.

    Attributes:
        all: for queries, keys and values together.
        q, kv: for the queries, and for keys and values; only with `split`.
        packed: each of these that there is.
    """

    def __init__(
        self,
        pack: Callable[[Tensor, Tensor], Weights],
        weight: Tensor,
        bias: Tensor,
        split: bool,
    ) -> None:
        size = weight.shape[1]
        self.all = pack(weight, bias)
        self.packed = [self.all]
        if split:
            self.q, self.kv = pack(weight[:size], bias[:size]), pack(weight[size:], bias[size:])
            self.packed += [self.q, self.kv]


class FloatLayer:
    """An encoder layer in fp32 or bf16.

    Args:
        layer: its weights are copied and packed.
        dtype: torch.float32 or torch.bfloat16.
        act: hidden_act of the configuration.
        split: also keep the queries' weights apart from keys' and values', for :meth:`first_token`.
    """

    def __init__(
        self, layer: EncoderLayer, dtype: torch.dtype, act: str, split: bool = False
    ) -> None:
        self.dtype, self.heads = dtype, Heads(layer.attention.heads)
        weight, bias = scaled_queries(layer.attention.qkv, layer.attention.heads)
        self._qkv = QueriesKeysValues(partial(packed, dtype=dtype), weight, bias, split)
        self._out = packed(layer.attention.out.weight, layer.attention.out.bias, dtype)
        self._up = packed(layer.up.weight, layer.up.bias, dtype)
        self._down = packed(layer.down.weight, layer.down.bias, dtype)
        self._attention_norm = norm_of(layer.attention_norm)
        self._output_norm = norm_of(layer.output_norm)
        self._act_name = act

    def __call__(self, x: Tensor, rows: Rows) -> Tensor:
        """Map x [N, H] to [N, H]."""
        qkv = linear(x, self._qkv.all)
        return self._rest(x, self_attention(qkv, rows, self.heads, self.dtype))

    def first_token(self, x: Tensor, rows: Rows) -> Tensor:
        """Map x [N, H] to [at least B, H], the layer's output for each sequence's first token."""
        first = rows.first(x)
        q, kv = linear(first, self._qkv.q), linear(x, self._qkv.kv)
        return self._rest(first, first_attention(q, kv, rows, self.heads))

    def weights(self) -> list[Any]:
        """Return the packed weights, for :class:`bertine.fast.layers.Recorded`."""
        products = [*self._qkv.packed, self._out, self._up, self._down]
        return [weight for weight, _ in products]

    def _rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Compute the rest of the layer after the attention; x, mixed [M, H]."""
        x = self._attention_norm(linear_add(mixed, x, self._out))
        inner = linear_act(x, self._up, self._act_name)
        return self._output_norm(linear_add(inner, x, self._down))


#: A weight packed for oneDNN, or unpacked where oneDNN cannot; and the bias.
Packed = tuple[Tensor, Tensor]
#: The number of rows that a weight's layout is chosen for.
_TYPICAL_ROWS = 1024


def packed(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Packed:
    """Return a copy of `weight` [F, K] and of `bias` [F] (None: zeros), laid out for `dtype`."""
    if bias is None:
        bias = weight.new_zeros(len(weight))
    weight, bias = weight.detach().to(dtype).contiguous(), bias.detach().to(dtype, copy=True)
    if not has_packed(dtype):
        return weight.clone(), bias
    return torch_private.pack(weight, _TYPICAL_ROWS), bias


def linear(x: Tensor, packed: Packed) -> Tensor:
    """Return x W' + b; x [N, K] in the type of the weight."""
    weight, bias = packed
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias)
    return torch_private.linear(x, weight, bias, "none", "")


def linear_act(x: Tensor, packed: Packed, act: str) -> Tensor:
    """Return the activation, a hidden_act of ``config.json``, of x W' + b, in the same pass if
    oneDNN has it."""
    weight, bias = packed
    if weight.is_mkldnn and act in FUSED_ACTIVATIONS:
        return torch_private.linear(x, weight, bias, *FUSED_ACTIVATIONS[act])
    return ACTIVATIONS[act](linear(x, packed))


def linear_add(x: Tensor, other: Tensor, packed: Packed) -> Tensor:
    """Return x W' + b + other in a new tensor."""
    weight, bias = packed
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias).add_(other)
    return torch_private.linear_add(x, other, weight, bias)


def norm_of(norm: torch.nn.LayerNorm, divisor: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return a copy of a layer norm, in fp32 inside, whose result is divided by `divisor` (fp32
    [H])."""
    weight = norm.weight.detach().float()
    bias = torch.zeros_like(weight) if norm.bias is None else norm.bias.detach().float()
    weight, bias = (w.clone() if divisor is None else w / divisor for w in (weight, bias))
    shape: Any = list(norm.normalized_shape)
    eps = norm.eps

    def apply(x: Tensor) -> Tensor:
        out: Tensor = torch.native_layer_norm(x, shape, weight, bias, eps)[0]
        return out

    return apply


def projection_of(linear: torch.nn.Linear, divisor: Tensor | None = None) -> Callable[..., Tensor]:
    """Return a copy of a linear layer in fp32, whose result is divided by `divisor` (fp32
    [H])."""
    weight, bias = linear.weight.detach().float(), linear.bias.detach().float()
    if divisor is not None:
        weight, bias = weight / divisor[:, None], bias / divisor
    weight, bias = weight.clone(), bias.clone()
    return lambda x: F.linear(x, weight, bias)


# Recording: the layers over one sequence, without Python between their operations.
#
# A packed layer makes some forty calls, each preceded by some microseconds of Python: a third of
# the time of a small model with a short text. Once recorded (``torch.jit.trace``), the same
# operations are called one after the other by TorchScript's interpreter; the results are equal bit
# for bit. Recordings are never written to a file.

#: Recording changes process-wide state: PyTorch's tracer, Python's filters of warnings.
_recording = threading.Lock()

#: Calls before a recording is made. It takes as long as some tens of calls, and a process that
#: answers once should not wait for it.
_BEFORE = 8


class Recorded:
    """A function that is called as TorchScript from its ninth call on.

    If it cannot be recorded, or the recording gives other results, `work` itself is called.

    Args:
        work: x [T, H] → tensor, with the same operations for all T that it is called with. Must be
            called in ``torch.inference_mode()``.
        least: the smallest T.
        weights: objects that it uses and that TorchScript accepts only as attributes of a module:
            tensors in a library's own layout, and objects that are not tensors.
    """

    def __init__(
        self, work: Callable[[Tensor], Tensor], least: int, weights: Sequence[Any]
    ) -> None:
        self._work, self._least, self._weights = work, least, weights
        self._calls = 0
        self._tried = False
        self._script: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self._script is not None:
            return self._script(x)
        self._calls += 1
        # Other threads do not wait while one records.
        if self._calls > _BEFORE and not self._tried and _recording.acquire(blocking=False):
            try:
                if not self._tried:
                    self._tried = True
                    self._script = self._record(x)
            finally:
                _recording.release()
        return self._work(x)

    def _record(self, x: Tensor) -> Callable[[Tensor], Tensor] | None:
        # T must not be a constant of the recording.
        other = x[:-1] if len(x) > self._least else torch.cat([x, x[:1]])
        try:
            with warnings.catch_warnings():
                # Warnings that torch.jit is no longer developed, and of branches on shapes.
                warnings.simplefilter("ignore")
                holder = _Holder(self._work, self._weights).eval()
                traced: Any = torch.jit.trace(holder, (x.clone(),), check_trace=False)
                script: Any = torch.jit.freeze(traced)
                for sample in (x, x, other):  # the interpreter optimizes in its first calls
                    if not torch.equal(script(sample.clone()), self._work(sample.clone())):
                        return None
        except Exception:  # an error in `work` itself will occur again in its next call
            return None
        recorded: Callable[[Tensor], Tensor] = script
        return recorded


class _Holder(nn.Module):
    def __init__(self, work: Callable[[Tensor], Tensor], weights: Sequence[Any]) -> None:
        super().__init__()
        self._work = work
        for number, weight in enumerate(weights):
            if isinstance(weight, Tensor):
                self.register_buffer(f"weight{number}", weight)
            else:
                setattr(self, f"weight{number}", weight)

    def forward(self, x: Tensor) -> Tensor:
        return self._work(x)
