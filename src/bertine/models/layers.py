"""Build the parts of a post-layer-norm encoder (Vaswani et al. 2017, as BERT uses it).

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A;
N rows that are computed: the B * T positions, or only the real tokens (see :class:`RowLayout`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.models.config import Config
from bertine.models.dropout import dropout_add, stream
from bertine.models.precision import autocast_dtype
from bertine.models.torch_private import (
    flash_attention,
    gelu_backward,
    has_flash_forward,
    has_packed,
    multiply,
    softmax_backward,
)

# Initial weights: as in the published code of BERT.


@torch.no_grad()
def init_weights(module: nn.Module, std: float) -> None:
    """Initialize as the published code does: matrices and embeddings from a normal of standard
    deviation `std` truncated at two deviations (not rescaled), biases 0, layer norms 1 and 0. Other
    parameters and constants are set by the module's ``reset_parameters``, and a matrix may have its
    own deviation (:func:`set_initial_std`).

    Raises:
        TypeError: a module has parameters of its own and no ``reset_parameters``: they would stay
            uninitialized memory.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            truncated_normal_(part.weight, getattr(part, "initial_std", std))
            if isinstance(part, nn.Linear) and part.bias is not None:
                part.bias.zero_()
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
            if part.bias is not None:
                part.bias.zero_()
        elif any(True for _ in part.parameters(recurse=False)):
            reset: Callable[[], None] | None = getattr(part, "reset_parameters", None)
            if reset is None:
                raise TypeError(f"{type(part).__name__} has no reset_parameters")
            reset()
        elif any(True for _ in part.buffers(recurse=False)):
            constants: Callable[[], None] | None = getattr(part, "reset_parameters", None)
            if constants is not None:
                constants()


def truncated_normal_(tensor: Tensor, std: float) -> None:
    """Fill `tensor` from a normal of deviation `std` truncated at two deviations.

    Values beyond are drawn again: on a CPU that is ten times as fast as inverting the distribution
    function, as ``trunc_normal_`` does.
    """
    if tensor.is_meta:
        return
    flat = tensor.view(-1).normal_()
    while (outside := (flat.abs() > 2).nonzero()[:, 0]).numel():
        flat[outside] = torch.randn(outside.numel(), dtype=flat.dtype, device=flat.device)
    flat.mul_(std)


def set_initial_std(layer: nn.Linear | nn.Embedding, std: float) -> None:
    """Make :func:`init_weights` draw the matrix of `layer` with the deviation `std`."""
    layer.initial_std = std  # type: ignore[assignment]


# Packed attention: over concatenated sequences without padding, for GPUs.
#
# Shape legend: N rows of all sequences together, S sequences, A attention heads, D head size.

#: The head sizes that flash attention supports.
_HEAD_SIZES = range(8, 257, 8)


def has_flash_attention(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Return whether PyTorch's flash attention runs there: a GPU of NVIDIA's Ampere generation or
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
    """Compute softmax(q k' / sqrt(D)) v of each sequence separately, with dropout on the
    probabilities.

    On a GPU this is flash attention; ask :func:`has_flash_attention` first. PyTorch's public
    ``varlen_attn`` (2.13) has no dropout, but the operator that it calls has, and draws the mask
    inside the kernel from the GPU's generator, so that neither mask nor probabilities are ever in
    memory; so it is called directly. Its backward pass adds sums in no fixed order, unless
    ``torch.use_deterministic_algorithms(True)`` is set.

    On a CPU this is :func:`reference`.

    Args:
        q, k, v: [N, A, D].
        ends: int32 [S + 1], where each sequence begins and the last ends: 0, …, N. Sequences may
            be empty.
        longest: at least the length of each of them.
        p: dropout rate of the probabilities.
        window: how many rows to either side a row attends to; None: the whole sequence.

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
    """Return the result of :func:`varlen_attention` as plain products over all N x N pairs, with
    those of different sequences or beyond the window masked. It is the reference for tests."""
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


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


#: ``hidden_act`` of config.json → function. "gelu" is the exact one, with the error function.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu,
    "silu": F.silu,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return the activation called `name` in config.json.

    Raises:
        BertineError: no such activation.
    """
    if name not in ACTIVATIONS:
        raise BertineError(f"hidden_act {name!r} is not known; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class _Scatter(torch.autograd.Function):
    """Rows [N, F] written to the `indices` of zeros [size, F]. The backward pass is a plain gather,
    as no index occurs twice."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(indices)
        return rows.new_zeros(size, rows.shape[1]).index_copy_(0, indices, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (indices,) = ctx.saved_tensors
        return grads[0].index_select(0, indices), None, None


class _Gather(torch.autograd.Function):
    """The rows of [size, F] at the `indices`: the inverse of :class:`_Scatter`, and its backward
    pass."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.size = table.shape[0]
        return table.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (indices,) = ctx.saved_tensors
        grad = grads[0]
        return grad.new_zeros(ctx.size, grad.shape[1]).index_copy_(0, indices, grad), None


@dataclass(frozen=True)
class RowLayout:
    """The places in the batch [B, T] of the N rows that the layers compute.

    Everything but attention treats each token separately. So with much padding only real tokens are
    computed, and padded to [B, T] for the attention.

    Attributes:
        sequences: B.
        length: T.
        real: int64 [N], indices into the B * T of the rows to compute: the real tokens, and as much
            padding as makes a round number; None: all.
        bias: [B or 1, 1, T or 1, T] added to attention scores: 0 where a token may attend, -inf
            elsewhere, as at padding; the same for all heads. It is a constant: in training on a CPU
            it gets no gradient. None: 0 everywhere.
        ends: int32 [S + 1], where the sequences begin among the N rows, and N; attention is then
            packed (:func:`varlen_attention`). None: over [B, T].
        longest: with `ends`, an upper bound of the lengths.
    """

    sequences: int
    length: int
    real: Tensor | None = None
    bias: Tensor | None = None
    ends: Tensor | None = None
    longest: int = 0

    def pad(self, rows: Tensor) -> Tensor:
        """Put rows [N, F] into [B, T, F], zero at places without a row."""
        if self.real is not None:
            rows = _Scatter.apply(rows, self.real, self.sequences * self.length)
        return rows.view(self.sequences, self.length, rows.shape[-1])

    def unpad(self, padded: Tensor) -> Tensor:
        """Take the rows [N, F] from [B, T, F]."""
        rows = padded.reshape(self.sequences * self.length, padded.shape[-1])
        return rows if self.real is None else _Gather.apply(rows, self.real)


def _odd(scores: Tensor) -> bool:
    """Return whether softmax over the last dimension is faster in fp32: PyTorch's 16-bit kernel for
    CPUs is vectorized only for multiples of 32, and the conversion pays from about 16 on."""
    width = scores.shape[-1]
    return scores.dtype != torch.float32 and width >= 16 and width % 32 != 0


def softmax(scores: Tensor) -> Tensor:
    """Compute the softmax over the last dimension in the type of `scores`, the faster way."""
    if _odd(scores):
        return torch.softmax(scores.float(), -1).to(scores.dtype)
    return torch.softmax(scores, -1)


def _softmax_backward(grad: Tensor, probs: Tensor) -> Tensor:
    if _odd(probs):
        return softmax_backward(grad.float(), probs.float()).to(probs.dtype)
    return softmax_backward(grad, probs)


#: Up to this length, attention in training uses explicit products even without dropout: the
#: backward pass of PyTorch's fused attention for CPUs takes several times as long. For longer texts
#: the memory of the probabilities, which the fused one does not keep, matters more.
WRITTEN_OUT = 256


class _Attention(torch.autograd.Function):
    """softmax(q k' / sqrt(D) + bias) v with dropout, for a CPU in training.

    PyTorch's fused CPU attention has no dropout; with a rate above zero its
    ``scaled_dot_product_attention`` takes an unfused path with the slow Bernoulli generator.
    The products here are the same batched matrix products; the mask comes from Bertine's stream,
    and the backward pass recomputes it and the dropped probabilities instead of keeping them.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p: float) -> Tensor:
        # q, k, v [B*A, T, D] contiguous; bias [B*A or 1, T or 1, T] or None
        scale = q.shape[-1] ** -0.5
        scores = torch.baddbmm(
            q.new_empty(1) if bias is None else bias,
            q,
            k.transpose(1, 2),
            beta=0.0 if bias is None else 1.0,
            alpha=scale,
        )
        probs = softmax(scores)
        ctx.save_for_backward(q, k, v, probs)
        ctx.scale, ctx.p, ctx.keep = scale, p, 1.0 / (1.0 - p)
        if p == 0.0:
            return torch.bmm(probs, v)
        ctx.ticket = stream.ticket()
        mask = stream.mask(ctx.ticket, probs.shape, p, probs.dtype)
        return torch.bmm(probs * mask, v).mul_(ctx.keep)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, probs = ctx.saved_tensors
        if ctx.p == 0.0:
            grad = grads[0]
            grad_v = torch.bmm(probs.transpose(1, 2), grad)
            grad_probs = torch.bmm(grad, v.transpose(1, 2))
        else:
            mask = stream.mask(ctx.ticket, probs.shape, ctx.p, probs.dtype)
            grad = grads[0] * ctx.keep
            grad_v = torch.bmm((probs * mask).transpose(1, 2), grad)
            grad_probs = torch.bmm(grad, v.transpose(1, 2)).mul_(mask)
        grad_scores = _softmax_backward(grad_probs, probs)
        grad_q = torch.bmm(grad_scores, k).mul_(ctx.scale)
        grad_k = torch.bmm(grad_scores.transpose(1, 2), q).mul_(ctx.scale)
        return grad_q, grad_k, grad_v, None, None


def written_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p: float) -> Tensor:
    """Compute softmax(q k' / sqrt(D) + bias) v on a CPU by explicit products, with dropout on the
    probabilities.

    Args:
        q, k, v: [R, T, D], contiguous; R sequences and heads.
        bias: [R or 1, T or 1, T] of the type of q; None: nothing.
        p: dropout rate.

    Returns:
        [R, T, D].
    """
    mixed: Tensor = _Attention.apply(q, k, v, bias, p)
    return mixed


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p: float, training: bool
) -> Tensor:
    """Compute softmax(q k' / sqrt(D) + bias) v with dropout on the probabilities, in the fastest
    way on the device.

    Args:
        q: [B, A, T, D].
        k, v: [B, A, S, D]; S is T in self-attention.
        bias: [B or 1, 1, T or 1, S], of the layout: a constant (:class:`RowLayout`).
        p: the dropout rate; 0 outside training.
        training: whether a backward pass will follow.

    Returns:
        [B, A, T, D].

    Raises:
        ValueError: the bias learns, or is not the same for all heads: products written out would
            leave it without a gradient.
    """
    if bias is not None and (bias.requires_grad or bias.shape[1] != 1):
        raise ValueError("attend takes a constant bias [B or 1, 1, T or 1, S]")
    b, heads, t, size = q.shape
    seen = k.shape[2]
    written_out = p > 0.0 or (training and max(t, seen) <= WRITTEN_OUT)
    if not written_out or q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p)
    flat = (b * heads, t, size)
    there = (b * heads, seen, size)
    if bias is not None:
        # A bias that all sequences and heads share is not copied for each.
        everyone = bias.shape[0] == 1 and bias.shape[2] > 1
        spread = bias if everyone else bias.expand(b, heads, -1, seen)
        bias = spread.reshape(-1, bias.shape[2], seen)
    mixed: Tensor = _Attention.apply(q.reshape(flat), k.reshape(there), v.reshape(there), bias, p)
    return mixed.view(b, heads, t, size)


class SelfAttention(nn.Module):
    """Multi-head self-attention; queries, keys and values are one product.

    ``qkv.weight`` is [3H, H]: the rows of the query, then the key, then the value projection.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_size = config.head_size
        self.dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, layout: RowLayout) -> Tensor:
        """Map x [N, H] to [N, H], before the output's dropout."""
        p = self.dropout if self.training else 0.0
        if layout.ends is not None:
            q, k, v = self.qkv(x).view(-1, 3, self.heads, self.head_size).unbind(1)
            mixed = varlen_attention(q, k, v, layout.ends, layout.longest, p)
            return self.out(mixed.reshape(x.shape))
        b, t = layout.sequences, layout.length
        q, k, v = self._by_head(layout.pad(self.qkv(x)))
        mixed = attend(q, k, v, layout.bias, p, self.training)
        return self.out(layout.unpad(mixed.transpose(1, 2).reshape(b, t, -1)))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map x [B, T, H] to queries, keys and values, [B, A, T, D] each."""
        return self._by_head(self.qkv(x))

    def _by_head(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, t = qkv.shape[:2]
        q, k, v = qkv.view(b, t, 3, self.heads, self.head_size).permute(2, 0, 3, 1, 4)
        return q, k, v

    def scores(self, x: Tensor) -> Tensor:
        """Map x [B, T, H] to q k' / sqrt(D), [B, A, T, T]."""
        rows = 2 * self.out.in_features  # those of queries and keys; values are not needed
        pairs = F.linear(x, self.qkv.weight[:rows], self.qkv.bias[:rows])
        q, k = pairs.view(*x.shape[:2], 2, self.heads, self.head_size).permute(2, 0, 3, 1, 4)
        return q @ k.transpose(-1, -2) * self.head_size**-0.5


#: Outputs whose weights get their gradient in one product: with the columns of a whole vocabulary
#: it takes up to a quarter longer.
_OUTPUTS = 8192


def gradient_of(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient [O, I] of the weights of a linear layer, from the gradient [N, O] of its
    output and its input [N, I], in their type; in fp32 both contiguous."""
    if grad.device.type != "cpu" or grad.dtype != torch.float32 or not has_packed(grad.dtype):
        return grad.t() @ x  # in bf16 oneDNN is what PyTorch calls, in a faster form
    if x.shape[1] < grad.shape[1]:
        return multiply(x.t(), grad.t()).t()
    return multiply(grad.t(), x.t())


class _Linear(torch.autograd.Function):
    """``act(x) weight' + bias`` by oneDNN's products, for a CPU in training; act is the identity or
    GELU. It keeps x for the backward pass, not gelu(x), which is as large and quickly recomputed.
    Computed in the type of x; the parameters' gradients in theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, gelu: bool) -> Tensor:
        # x [N, I], weight [O, I], bias [O]
        low = weight.to(x.dtype)
        ctx.save_for_backward(x, low)
        ctx.gelu, ctx.dtypes = gelu, (weight.dtype, None if bias is None else bias.dtype)
        low_bias = None if bias is None else bias.to(x.dtype)
        return multiply(F.gelu(x) if gelu else x, low, low_bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = multiply(grad, weight.t())
            if ctx.gelu:
                grad_x = gelu_backward(grad_x, x)
        if ctx.needs_input_grad[1]:
            read = F.gelu(x) if ctx.gelu else x
            grad_weight = torch.empty_like(weight, dtype=ctx.dtypes[0])
            most = len(weight) if grad.dtype == torch.float32 else _OUTPUTS
            # One after the other, so that a part is converted while it is in the cache.
            for part, to in zip(grad.split(most, 1), grad_weight.split(most), strict=True):
                to.copy_(gradient_of(part, read))
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum(0).to(ctx.dtypes[1])
        return grad_x, grad_weight, grad_bias, None


def _multiplies(x: Tensor, dtype: torch.dtype) -> bool:
    """Return whether products of x in `dtype` can be :class:`_Linear`'s, which is not compiled."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and has_packed(dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, training: bool) -> Tensor:
    """Compute x weight' + bias as ``torch.nn.functional.linear`` does, on a CPU in training by
    faster products.

    Args:
        x: [..., I].
        weight: [O, I].
        bias: [O], or None.
        training: whether a backward pass will follow.

    Returns:
        [..., O].
    """
    dtype = autocast_dtype(x.device.type) or x.dtype
    if not training or not torch.is_grad_enabled() or not _multiplies(x, dtype):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1]).to(dtype).contiguous()
    product: Tensor = _Linear.apply(rows, weight, bias, False)
    return product.view(*x.shape[:-1], len(weight))


class _TrainedLinear(nn.Linear):
    """A linear layer within :func:`faster_products`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, self.training)


@contextlib.contextmanager
def faster_products(model: nn.Module) -> Iterator[None]:
    """Make the linear layers of `model`, on a CPU, compute by :func:`linear` within the context."""
    here = next(model.parameters()).device.type == "cpu"
    layers = [part for part in model.modules() if here and type(part) is nn.Linear]
    for layer in layers:
        layer.__class__ = _TrainedLinear
    try:
        yield
    finally:
        for layer in layers:
            layer.__class__ = nn.Linear


def activated_linear(
    x: Tensor, act: Callable[[Tensor], Tensor], down: nn.Linear, training: bool
) -> Tensor:
    """Compute ``down(act(x))`` of x [N, I]: the second half of a feed-forward."""
    if training and act is F.gelu and _multiplies(x, x.dtype):
        result: Tensor = _Linear.apply(x, down.weight, down.bias, True)
        return result
    return down(act(x))


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each followed by dropout, residual and layer norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.dropout = config.hidden_dropout_prob
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(size, eps=eps)
        self.up = nn.Linear(size, inner)
        self.down = nn.Linear(inner, size)
        self.output_norm = nn.LayerNorm(size, eps=eps)
        self.act = activation(config.hidden_act)

    @property
    def products(self) -> tuple[nn.Linear, nn.Linear, nn.Linear, nn.Linear]:
        """The linear layers: queries-keys-values, attention output, feed-forward up and down."""
        return self.attention.qkv, self.attention.out, self.up, self.down

    def forward(self, x: Tensor, layout: RowLayout, *around: Any) -> Tensor:
        """Map x [N, H] to [N, H]; `around` is further input of a type's attention."""
        return self.after(self.attention(x, layout, *around), x)

    def after(self, attended: Tensor, x: Tensor) -> Tensor:
        """Compute the rest of the layer, [N, H], after `attended` [N, H], the attention's output
        for x [N, H]."""
        # On a GPU autocast returns fp32 from a norm; the residual stream keeps its type.
        x = dropout_add(attended, x, self.dropout, self.training)
        x = self.attention_norm(x).to(x.dtype)
        inner = activated_linear(self.up(x), self.act, self.down, self.training)
        x = dropout_add(inner, x, self.dropout, self.training)
        return self.output_norm(x).to(x.dtype)
