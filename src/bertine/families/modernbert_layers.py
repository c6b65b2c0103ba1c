"""Define ModernBERT's config, and build its layers: rotary positions, local attention, gates.

The norm comes before each part; attention is to all tokens or to those nearby (Warner et al. 2024,
arXiv 2412.13663, section 2.1).

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A,
I inner size of the feed-forward; N rows that are computed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.models.config import Config
from bertine.models.dropout import StreamDropout, dropout_add, stream
from bertine.models.layers import (
    ACTIVATIONS,
    WRITTEN_OUT,
    RowLayout,
    activation,
    set_initial_std,
    varlen_attention,
    written_attention,
)
from bertine.models.torch_private import gelu_backward, softmax_backward

#: The activation of heads that have none, as transformers calls it.
LINEAR = "linear"
#: How ``layer_types`` of config.json calls the two kinds of attention.
GLOBAL, LOCAL = "full_attention", "sliding_attention"
POOLINGS = ("cls", "mean")


@dataclass(frozen=True)
class ModernBertConfig(Config):
    """Sizes and rates of a ModernBERT (table 4 of the paper; defaults are ModernBERT-base).

    There is no table of positions: ``max_position_embeddings`` is the longest input that the model
    was made for. ``hidden_dropout_prob`` is the rate inside the feed-forwards,
    ``attention_probs_dropout_prob`` that of attention and of what comes out of it.

    Attributes:
        embedding_dropout: behind the embeddings.
        attention_bias, mlp_bias, norm_bias: whether the products and norms of the layers have
            biases; `norm_bias` is for the heads' norms too.
        decoder_bias, classifier_bias: whether the decoder of the MLM head and the dense layer of
            the heads have biases.
        classifier_pooling: what classifiers of texts and of choices read: the state of the first
            token ("cls"), or the mean over real tokens ("mean").
        classifier_activation: of the heads.
        local_attention: how many tokens a local layer looks at, half of them to either side; the
            token itself comes on top.
        global_attn_every_n_layers: layers 0, n, 2n, … look at all tokens.
        layer_types: for each layer :data:`GLOBAL` or :data:`LOCAL`, at least as many as there are
            layers; None: as `global_attn_every_n_layers` says.
        global_rope_theta, local_rope_theta: the base of the rotations' wavelengths.

    Raises:
        BertineError: besides what every config refuses, heads of an odd size, which cannot be
            rotated; a pooling, an activation or a layer type that there is not.
    """

    model_type: ClassVar[str] = "modernbert"
    title: ClassVar[str] = "ModernBERT"
    token_types: ClassVar[bool] = False
    positions: ClassVar[str] = "rotary: the place of a token turns its queries and keys"
    #: Their separators tell the texts of a pair apart.
    num_segments = 2
    #: What is pooled has no weights.
    has_pooler = False

    vocab_size: int = 50368
    num_hidden_layers: int = 22
    intermediate_size: int = 1152
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout: float = 0.0
    max_position_embeddings: int = 8192
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 50283
    embedding_dropout: float = 0.0
    attention_bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    decoder_bias: bool = True
    classifier_bias: bool = False
    classifier_pooling: str = "cls"
    classifier_activation: str = "gelu"
    local_attention: int = 128
    global_attn_every_n_layers: int = 3
    layer_types: tuple[str, ...] | None = None
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_size % 2:
            raise BertineError(
                f"hidden_size {self.hidden_size} over num_attention_heads "
                f"{self.num_attention_heads} is {self.head_size}, but rotary positions need an "
                "even number"
            )
        if self.classifier_pooling not in POOLINGS:
            raise BertineError(
                f"classifier_pooling is {self.classifier_pooling!r}, but must be "
                f"{' or '.join(POOLINGS)}"
            )
        if self.classifier_activation not in (*ACTIVATIONS, LINEAR):
            raise BertineError(
                f"classifier_activation {self.classifier_activation!r} is not supported; only "
                f"{', '.join(ACTIVATIONS)} and {LINEAR} are"
            )
        for name, least in (("local_attention", 2), ("global_attn_every_n_layers", 1)):
            if not least <= getattr(self, name) <= 10**7:
                raise BertineError(f"{name} is {getattr(self, name)}, but must be at least {least}")
        for name in ("global_rope_theta", "local_rope_theta"):
            if not 1.0 <= getattr(self, name) < float("inf"):
                raise BertineError(f"{name} is {getattr(self, name)}, but must be at least 1")
        types = self.layer_types
        if types is None:
            return
        wrong = next((kind for kind in types if kind not in (GLOBAL, LOCAL)), None)
        if wrong is not None:
            raise BertineError(f"layer_types has {wrong[:80]!r}, but knows {GLOBAL} and {LOCAL}")
        if len(types) < self.num_hidden_layers:
            raise BertineError(
                f"layer_types has {len(types)} layers, but num_hidden_layers is "
                f"{self.num_hidden_layers}"
            )

    @property
    def windows(self) -> tuple[int | None, ...]:
        """How many tokens to either side each layer looks at; None: at all."""
        return tuple(None if kind == GLOBAL else self.local_attention // 2 for kind in self.kinds)

    @property
    def rope_thetas(self) -> dict[int | None, float]:
        """The base of the rotations' wavelengths, by the window of the layers."""
        return {
            window: self.global_rope_theta if window is None else self.local_rope_theta
            for window in self.windows
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of attention of each layer, :data:`GLOBAL` or :data:`LOCAL`."""
        count = self.num_hidden_layers
        if self.layer_types is not None:
            return self.layer_types[:count]
        every = self.global_attn_every_n_layers
        return tuple(LOCAL if number % every else GLOBAL for number in range(count))

    @property
    def output_std(self) -> float:
        """The deviation of new weights that end in the residual stream, smaller the more layers
        add to it (transformers, ``_init_weights``)."""
        return float(self.initializer_range / (2.0 * self.num_hidden_layers) ** 0.5)

    @property
    def num_parameters(self) -> int:
        width, inner, layers = self.hidden_size, self.intermediate_size, self.num_hidden_layers
        norm = width * (1 + self.norm_bias)
        layer = 4 * width * width + 4 * width * self.attention_bias
        layer += 3 * width * inner + (2 * inner + width) * self.mlp_bias
        # The norm behind the embeddings takes the place of that before the first attention.
        return self.vocab_size * width + layers * (layer + 2 * norm) + norm

    def with_dropout(self, p: float | None) -> Self:
        changed = super().with_dropout(p)
        return changed if p is None else changed.replace(embedding_dropout=p)


# Rotary positions: queries and keys are rotated by angles that grow with their position, so that
# their products depend on the distance between them (Su et al. 2021, arXiv 2104.09864, section
# 3.2.2). As in published weights, the two numbers of a rotated pair are half a head apart.
#
# Shape legend: B sequences, T tokens of the longest, A attention heads, D head size; N rows.

#: Cosines and sines of the angles.
Angles = tuple[Tensor, Tensor]


def angles(positions: Tensor, size: int, theta: float) -> Angles:
    """Return the cosines and sines of the angles at `positions`.

    Args:
        positions: [P].
        size: D.
        theta: the wavelengths run from 2 pi tokens to nearly `theta` times that.

    Returns:
        Two of fp32 [P, D / 2].
    """
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    turned = positions.float()[:, None] * (1.0 / theta ** (steps / size))
    return turned.cos(), turned.sin()


def first_angles(length: int, size: int, theta: float, dtype: torch.dtype) -> Angles:
    """Return the :func:`angles` of the positions 0, …, `length` - 1 for a CPU, in `dtype`."""
    rows = 1 << max(6, (length - 1).bit_length())
    cosines, sines = _table(rows, size, theta, dtype)
    return cosines[:length], sines[:length]


@functools.lru_cache(maxsize=16)
def _table(rows: int, size: int, theta: float, dtype: torch.dtype) -> Angles:
    with torch.inference_mode(False):  # training could not use an inference tensor
        cosines, sines = angles(torch.arange(rows), size, theta)
        return cosines.to(dtype), sines.to(dtype)


def turn(x: Tensor, by: Angles) -> Tensor:
    """Rotate x [P, …, D] by its place in the first dimension; `by` are of [P, D / 2]."""
    cosines, sines = (part.view(part.shape[0], *[1] * (x.dim() - 2), -1).to(x.dtype) for part in by)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def turn_into(out: Tensor, x: Tensor, cosines: Tensor, sines: Tensor, sign: int = 1) -> None:
    """Write x [..., T, D], rotated by `sign` times the angles of cosines and sines [T, D / 2], to
    `out`, of the same shape and type."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    torch.mul(first, cosines, out=out[..., :half]).addcmul_(second, sines, value=-sign)
    torch.mul(second, cosines, out=out[..., half:]).addcmul_(first, sines, value=sign)


class _TurnedParts(torch.autograd.Function):
    """Queries, keys and values laid out for batched products, the first two rotated, all in the one
    pass over memory that the layout needs anyway."""

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
        # Rotated where the rows are contiguous, then moved: four passes over scattered parts of
        # rows take six times as long.
        whole = laid.permute(1, 3, 0, 2, 4).contiguous()
        return whole, None, None


def turned_parts(qkv: Tensor, by: Angles) -> tuple[Tensor, Tensor, Tensor]:
    """Split queries, keys and values, the first two rotated by their positions, on a CPU.

    Args:
        qkv: [B, T, 3, A, D].
        by: of the positions, [T, D / 2], in the type of `qkv`.

    Returns:
        Three of [B * A, T, D], contiguous.
    """
    q, k, v = _TurnedParts.apply(qkv, *by)
    return q, k, v


# Block attention: attention within a window, block by block, on a CPU.
#
# A block is as long as the window reaches to one side. The queries of a block are multiplied with
# the keys of their own block and of its two neighbours, and keys beyond the window are masked. The
# cost grows with the length, not with its square (Beltagy et al. 2020, arXiv 2004.05150, section
# 3.1, uses blocks for the same purpose).
#
# Shape legend: B sequences, T tokens of the longest, A attention heads, D head size; M blocks of
# S tokens; R rows, B * A.

#: The fewest tokens of a block: smaller products are not worth their calls.
_LEAST = 16
#: Scores that are computed at a time: as many as fit the caches.
_AT_ONCE = 1 << 19


def band(length: int, window: int, device: torch.device | None = None) -> Tensor:
    """Return which pairs of tokens are at most `window` places apart, bool [T, T]."""
    places = torch.arange(length, device=device)
    return (places[:, None] - places).abs() <= window


def band_bias(
    length: int, window: int, real: Tensor | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return the bias of the scores of whole sequences: 0 within the window, -inf beyond it and at
    padding. A token always attends to itself, even if it is padding: a row without any key would
    be NaN, and the NaN of a row that nobody reads would spread to the others.

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
    """A division of sequences into blocks.

    Attributes:
        size: S, at least the window.
        count: M; the last block is padded.
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
    """Map x [R, M * S, F] to [R, M, 3 S, F]: each block with the one before and the one after,
    zeros where there is none."""
    r, t, f = x.shape
    padded = F.pad(x, (0, 0, size, size)).view(r, t // size + 2, size, f)
    return torch.cat((padded[:, :-2], padded[:, 1:-1], padded[:, 2:]), 2)


def _added(blocks: Tensor) -> Tensor:
    """Add up the copies that :func:`_neighbours` made: blocks [R, M, 3 S, F] → [R, M * S, F]."""
    r, m, span, f = blocks.shape
    size = span // 3
    total = blocks.new_zeros(r, m + 2, size, f)
    for number in range(3):
        total[:, number : number + m] += blocks[:, :, number * size : (number + 1) * size]
    return total[:, 1:-1].reshape(r, m * size, f)


class _BlockAttention(torch.autograd.Function):
    """softmax(q k' / sqrt(D) + bias) v in blocks, with dropout. It computes some rows at a time and
    recomputes the probabilities in the backward pass, so that memory never holds those of more
    rows."""

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
    """Yield the rows that are computed together."""
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


#: Local attention on a CPU runs in blocks from this length on, and from this many times the
#: window's reach to one side; for shorter texts whole sequences are as fast.
_BLOCKS_FROM, _REACHES = 192, 4


def blocks_from(window: int) -> int:
    """Return the number of tokens from which local attention on a CPU is computed in blocks."""
    return max(_BLOCKS_FROM, _REACHES * window)


def norm(config: ModernBertConfig) -> nn.LayerNorm:
    """Return a new layer norm."""
    return nn.LayerNorm(config.hidden_size, config.layer_norm_eps, bias=config.norm_bias)


@dataclass(frozen=True)
class Surroundings:
    """The inputs that all layers of one kind share besides the states: positions and masks.

    Attributes:
        layout: of the rows.
        by: the rotary angles of the T positions, or of the rows where attention runs on rows.
        window: how many tokens to either side are attended to; None: all.
        bias: [B or 1, 1, T or 1, T] added to the scores of whole sequences; None: nothing.
        blocks: the blocks that attention is computed in; None: whole sequences.
        traced: whether a graph is traced for export.
    """

    layout: RowLayout
    by: Angles
    window: int | None = None
    bias: Tensor | None = None
    blocks: Blocks | None = None
    traced: bool = False

    @classmethod
    def of(
        cls, layout: RowLayout, size: int, theta: float, window: int | None, like: Tensor
    ) -> Surroundings:
        """Compute the positions and masks of a batch for the layers with one window.

        Args:
            layout: of the rows.
            size: D.
            theta: base of the rotary wavelengths.
            window: how many tokens to either side are attended to; None: all.
            like: a tensor of the type and device to compute in.
        """
        length, device, dtype = layout.length, like.device, like.dtype
        if layout.ends is not None:
            assert layout.real is not None
            return cls(layout, angles(layout.real % length, size, theta), window)
        if device.type == "cpu":
            by = first_angles(length, size, theta, dtype)
        else:
            by = angles(torch.arange(length, device=device), size, theta)
        if window is None or window >= length - 1:
            return cls(layout, by, bias=layout.bias)
        real = None if layout.bias is None else layout.bias[:, 0, 0] == 0
        if device.type == "cpu" and length >= blocks_from(window):
            return cls(layout, by, window, blocks=Blocks.of(length, window, real, dtype))
        return cls(layout, by, window, band_bias(length, window, real, dtype, device))


class ModernAttention(nn.Module):
    """Multi-head self-attention with rotary positions.

    ``qkv.weight`` is [3H, H]: the rows of the query, then the key, then the value projection.
    """

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        size, bias = config.hidden_size, config.attention_bias
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        self.dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(size, 3 * size, bias=bias)
        self.out = nn.Linear(size, size, bias=bias)
        set_initial_std(self.out, config.output_std)

    def forward(self, x: Tensor, around: Surroundings) -> Tensor:
        """Map x [N, H] to [N, H], before the output's dropout."""
        layout = around.layout
        p = self.dropout if self.training else 0.0
        if layout.ends is not None:
            qkv = self.qkv(x).view(-1, 3, self.heads, self.head_size)
            q, k = turn(qkv[:, :2], around.by).unbind(1)
            mixed = varlen_attention(q, k, qkv[:, 2], layout.ends, layout.longest, p, around.window)
            return self.out(mixed.reshape(x.shape))
        b, t = layout.sequences, layout.length
        qkv = layout.pad(self.qkv(x)).view(b, t, 3, self.heads, self.head_size)
        if around.traced or x.device.type != "cpu":
            turned = turn(qkv[:, :, :2].transpose(0, 1), around.by).transpose(0, 1)
            q, k = (part.transpose(1, 2) for part in turned.unbind(2))
            v = qkv[:, :, 2].transpose(1, 2)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=around.bias, dropout_p=p)
        else:
            mixed = self._on_cpu(qkv, around, p)
        return self.out(layout.unpad(mixed.transpose(1, 2).reshape(b, t, -1)))

    def _on_cpu(self, qkv: Tensor, around: Surroundings, p: float) -> Tensor:
        """Map qkv [B, T, 3, A, D] to [B, A, T, D]."""
        b, t, _, a, d = qkv.shape
        q, k, v = turned_parts(qkv, around.by)
        bias = around.bias
        if around.blocks is not None:
            mixed = block_attention(q, k, v, around.blocks, p)
        elif t <= WRITTEN_OUT or p > 0.0:
            if bias is not None and bias.shape[0] == 1:
                bias = bias[:, 0]
            elif bias is not None:
                bias = bias.expand(b, a, -1, t).reshape(b * a, -1, t)
            mixed = written_attention(q, k, v, bias, p)
        else:
            q, k, v = (part.view(b, a, t, d) for part in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return mixed.view(b, a, t, d)

    def scores(self, x: Tensor, by: Angles, window: int | None) -> Tensor:
        """Map x [B, T, H] to q k' / sqrt(D), beyond the window -inf, [B, A, T, T]."""
        b, t, _ = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.heads, self.head_size)
        # [T, B, 2, A, D] → queries and keys, [B, A, T, D]
        q, k = turn(qkv[:, :, :2].transpose(0, 1), by).permute(2, 1, 3, 0, 4)
        scores = q @ k.transpose(-1, -2) * self.head_size**-0.5
        if window is None:
            return scores
        return scores + band_bias(t, window, None, scores.dtype, x.device)


class _Gated(torch.autograd.Function):
    """``(gelu(x first') * x second') down'`` for a CPU in training.

    The two products are separate tensors: activations of half rows take twice as long as those of
    whole ones. They are kept for the backward pass; their activation and product are not, since
    they are quickly recomputed. Computed in the type of x; the weights' gradients in theirs.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        # x [N, H], up [2I, H], down [H, I]
        ctx.dtype = up.dtype
        up, down = up.to(x.dtype), down.to(x.dtype)
        inner = down.shape[1]
        first, second = torch.mm(x, up[:inner].t()), torch.mm(x, up[inner:].t())
        ctx.save_for_backward(x, up, down, first, second)
        return torch.mm(F.gelu(first).mul_(second), down.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        (grad,) = grads
        x, up, down, first, second = ctx.saved_tensors
        inner = down.shape[1]
        active = F.gelu(first)
        grad_down = torch.mm(grad.t(), active * second)
        of_inner = torch.mm(grad, down)
        of_second = active.mul_(of_inner)
        of_first = gelu_backward(of_inner.mul_(second), first)
        grad_up = torch.empty_like(up)
        torch.mm(of_first.t(), x, out=grad_up[:inner])
        torch.mm(of_second.t(), x, out=grad_up[inner:])
        grad_x = torch.mm(of_first, up[:inner]).addmm_(of_second, up[inner:])
        return grad_x, grad_up.to(ctx.dtype), grad_down.to(ctx.dtype)


class GatedFeedForward(nn.Module):
    """A feed-forward in which one half, activated, multiplies the other (Shazeer 2020, arXiv
    2002.05202: GeGLU). ``up.weight`` is [2I, H]: the rows of the activated half, then the other."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.up = nn.Linear(size, 2 * inner, bias=bias)
        self.down = nn.Linear(inner, size, bias=bias)
        self.act = activation(config.hidden_act)
        self.dropout = StreamDropout(config.hidden_dropout_prob)
        set_initial_std(self.down, config.output_std)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [N, H] to [N, H]."""
        drops = self.training and self.dropout.p > 0.0
        plain = self.act is F.gelu and self.up.bias is None and not drops
        if plain and self.training and x.device.type == "cpu":
            out: Tensor = _Gated.apply(x, self.up.weight, self.down.weight)
            return out
        first, second = self.up(x).chunk(2, -1)
        return self.down(self.dropout(self.act(first) * second))


class ModernLayer(nn.Module):
    """Attention and feed-forward, each of the normed states and added to them.

    The first layer's attention has no norm of its own: the embeddings' norm precedes it.
    """

    def __init__(self, config: ModernBertConfig, first: bool) -> None:
        super().__init__()
        self.attention_norm = None if first else norm(config)
        self.attention = ModernAttention(config)
        self.feed_forward_norm = norm(config)
        self.feed_forward = GatedFeedForward(config)

    @property
    def products(self) -> tuple[nn.Linear, nn.Linear, nn.Linear, nn.Linear]:
        """The linear layers: queries-keys-values, attention output, feed-forward up and down."""
        feed_forward = self.feed_forward
        return self.attention.qkv, self.attention.out, feed_forward.up, feed_forward.down

    def forward(self, x: Tensor, around: Surroundings) -> Tensor:
        """Map x [N, H] to [N, H]."""
        attended = self.attention(self.attention_input(x), around)
        x = dropout_add(attended, x, self.attention.dropout, self.training)
        # On a GPU autocast gives fp32 out of a norm; the residual stream stays as it is.
        return x + self.feed_forward(self.feed_forward_norm(x).to(x.dtype))

    def attention_input(self, x: Tensor) -> Tensor:
        """Return the input of the attention for the states x [N, H]."""
        return x if self.attention_norm is None else self.attention_norm(x).to(x.dtype)
