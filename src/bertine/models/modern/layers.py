"""Layers of a ModernBERT (Warner et al. 2024, arXiv 2412.13663, section 2.1): the norm before each
part, rotary positions, attention to all tokens or to those around, gated feed-forwards.

Shape legend: B sequences, T tokens of the longest, H hidden size, A attention heads, D = H / A,
I inner size of the feed-forward; N rows that are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.dropout import StreamDropout, dropout_add
from bertine.models.fast.torch_private import gelu_backward
from bertine.models.gpu.varlen import varlen_attention
from bertine.models.initial import set_initial_std
from bertine.models.layers import WRITTEN_OUT, RowLayout, activation, written_attention
from bertine.models.modern.local import Blocks, band_bias, block_attention
from bertine.models.modern.rotary import Angles, angles, first_angles, turn, turned_parts

if TYPE_CHECKING:
    from bertine.models.modern.config import ModernBertConfig

#: Local attention on a CPU is in blocks from this length on, and this many times the window's reach
#: to one side: below, products over whole sequences take no longer.
_BLOCKS_FROM, _REACHES = 192, 4


def blocks_from(window: int) -> int:
    """Return from how many tokens on local attention on a CPU is computed in blocks."""
    return max(_BLOCKS_FROM, _REACHES * window)


def norm(config: ModernBertConfig) -> nn.LayerNorm:
    """Return a new layer norm."""
    return nn.LayerNorm(config.hidden_size, config.layer_norm_eps, bias=config.norm_bias)


@dataclass(frozen=True)
class Surroundings:
    """What all layers of one kind read besides the states: where the rows stand, what they see.

    Attributes:
        layout: of the rows.
        by: the rotary angles, of the T places; where attention is over rows as they are, of these.
        window: how many tokens to either side are seen; None: all.
        bias: [B or 1, 1, T or 1, T] added to the scores of whole sequences; None: nothing.
        blocks: in which attention is computed; None: over whole sequences.
        traced: whether a graph for export is made of it.
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
        """Work it out for a batch.

        Args:
            size: D.
            theta: base of the rotations' wavelengths.
            window: see above.
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
        """x [N, H]. Returns [N, H], before the output's dropout."""
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
        """qkv [B, T, 3, A, D]. Returns [B, A, T, D]."""
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
        """x [B, T, H]. Returns q k' / sqrt(D), beyond the window -inf, [B, A, T, T]."""
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

    The two products lie in memory by themselves: activations of half a row take twice as long as
    of whole ones. They are kept for the backward pass, and not what is made of them, which is
    quickly made again. In the type of x; the weights' gradients in theirs.
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
    """A feed-forward whose one half, activated, weighs the other (Shazeer 2020, arXiv 2002.05202:
    GeGLU). ``up.weight`` is [2I, H]: the rows of the activated half, then of the other."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.up = nn.Linear(size, 2 * inner, bias=bias)
        self.down = nn.Linear(inner, size, bias=bias)
        self.act = activation(config.hidden_act)
        self.dropout = StreamDropout(config.hidden_dropout_prob)
        set_initial_std(self.down, config.output_std)

    def forward(self, x: Tensor) -> Tensor:
        """x [N, H]. Returns [N, H]."""
        drops = self.training and self.dropout.p > 0.0
        plain = self.act is F.gelu and self.up.bias is None and not drops
        if plain and self.training and x.device.type == "cpu":
            out: Tensor = _Gated.apply(x, self.up.weight, self.down.weight)
            return out
        first, second = self.up(x).chunk(2, -1)
        return self.down(self.dropout(self.act(first) * second))


class ModernLayer(nn.Module):
    """Attention and feed-forward, each of the normed states and added to them.

    The first layer's attention has no norm of its own: that of the embeddings stands before it.
    """

    def __init__(self, config: ModernBertConfig, first: bool) -> None:
        super().__init__()
        self.attention_norm = None if first else norm(config)
        self.attention = ModernAttention(config)
        self.feed_forward_norm = norm(config)
        self.feed_forward = GatedFeedForward(config)

    @property
    def products(self) -> tuple[nn.Linear, nn.Linear, nn.Linear, nn.Linear]:
        """Queries, keys and values, the attention's output, the feed-forward's first and second."""
        feed_forward = self.feed_forward
        return self.attention.qkv, self.attention.out, feed_forward.up, feed_forward.down

    def forward(self, x: Tensor, around: Surroundings) -> Tensor:
        """x [N, H]. Returns [N, H]."""
        attended = self.attention(self.attention_input(x), around)
        x = dropout_add(attended, x, self.attention.dropout, self.training)
        # On a GPU autocast gives fp32 out of a norm; the residual stream stays as it is.
        return x + self.feed_forward(self.feed_forward_norm(x).to(x.dtype))

    def attention_input(self, x: Tensor) -> Tensor:
        """Return what the attention reads of the states x [N, H]."""
        return x if self.attention_norm is None else self.attention_norm(x).to(x.dtype)
