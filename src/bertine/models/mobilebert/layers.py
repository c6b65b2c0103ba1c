"""The layers of MobileBERT, which work at a width of their own.

Shape legend: B sequences, T tokens of the longest, H hidden size, I width within a layer, A
attention heads, D = I / A; N rows that are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from bertine.models.dropout import dropout_add
from bertine.models.gpu.varlen import varlen_attention
from bertine.models.layers import RowLayout, activated_linear, activation, attend
from bertine.models.mobilebert.norm import FIXED_EPS, new_norm

if TYPE_CHECKING:
    from bertine.models.mobilebert.config import MobileBertConfig


class BottleneckAttention(nn.Module):
    """Multi-head self-attention whose queries and keys may be made of one thing and the values of
    another.

    ``qk.weight`` is [2 I, …]: the rows of the query, then of the key projection.
    """

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        inner = config.attention_width
        self.heads, self.head_size = config.num_attention_heads, config.head_size
        self.dropout = config.attention_probs_dropout_prob
        self.qk = nn.Linear(config.query_width, 2 * inner)
        self.value = nn.Linear(config.value_width, inner)
        self.out = nn.Linear(inner, inner)

    def forward(self, queries: Tensor, values: Tensor, layout: RowLayout) -> Tensor:
        """queries [N, …] are what queries and keys are made of, values [N, …] the values. Returns
        [N, I], before the output's dropout."""
        p = self.dropout if self.training else 0.0
        qk, v = self.qk(queries), self.value(values)
        if layout.ends is not None:
            q, k = qk.view(-1, 2, self.heads, self.head_size).unbind(1)
            v = v.view(-1, self.heads, self.head_size)
            mixed = varlen_attention(q, k, v, layout.ends, layout.longest, p)
            return self.out(mixed.flatten(1))
        q, k = self._by_head(layout.pad(qk), 2).unbind(0)
        (v,) = self._by_head(layout.pad(v), 1).unbind(0)
        mixed = attend(q, k, v, layout.bias, p, self.training)
        return self.out(layout.unpad(mixed.transpose(1, 2).flatten(2)))

    def scores(self, queries: Tensor) -> Tensor:
        """queries [B, T, …]. Returns q k' / sqrt(D), [B, A, T, T]."""
        q, k = self._by_head(self.qk(queries), 2).unbind(0)
        return q @ k.transpose(-1, -2) * self.head_size**-0.5

    def _by_head(self, x: Tensor, parts: int) -> Tensor:
        """Return [B, T, parts * I] as [parts, B, A, T, D]."""
        b, t, _ = x.shape
        return x.view(b, t, parts, self.heads, self.head_size).permute(2, 0, 3, 1, 4)


class FeedForward(nn.Module):
    """Linear, activation, linear; then dropout, residual and norm.

    Args:
        config: of the backbone.
        dropout: its rate.
        eps: of a layer norm; None: that of the config.
    """

    def __init__(self, config: MobileBertConfig, dropout: float, eps: float | None) -> None:
        super().__init__()
        inner = config.attention_width
        self.dropout = dropout
        self.up = nn.Linear(inner, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, inner)
        self.norm = new_norm(config, inner, eps)
        self.act = activation(config.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        """x [N, I]. Returns [N, I]."""
        fed = activated_linear(self.up(x), self.act, self.down, self.training)
        x = dropout_add(fed, x, self.dropout, self.training)
        return self.norm(x).to(x.dtype)


class Entrance(nn.Module):
    """The way of a layer's input to the layer's own width: linear and norm."""

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.attention_width)
        self.norm = new_norm(config, config.attention_width)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., H]. Returns [..., I]."""
        x = self.linear(x)
        return self.norm(x).to(x.dtype)


class Exit(nn.Module):
    """The way back: linear, dropout, the layer's input added, norm."""

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        self.dropout = config.hidden_dropout_prob
        self.linear = nn.Linear(config.attention_width, config.hidden_size)
        self.norm = new_norm(config, config.hidden_size)

    def forward(self, inner: Tensor, x: Tensor) -> Tensor:
        """inner [N, I], x [N, H]. Returns [N, H]."""
        x = dropout_add(self.linear(inner), x, self.dropout, self.training)
        return self.norm(x).to(x.dtype)


class BottleneckLayer(nn.Module):
    """A layer of MobileBERT: in, attention, feed-forwards, out (paper, figure 1)."""

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__()
        narrow, count = config.use_bottleneck, config.num_feedforward_networks
        self.reads_entered = narrow and config.use_bottleneck_attention
        # Within a bottleneck there is no dropout of hidden states.
        self.dropout = 0.0 if narrow else config.hidden_dropout_prob
        self.entrance = Entrance(config) if narrow else None
        shared = narrow and config.key_query_shared_bottleneck
        self.shared = Entrance(config) if shared else None
        self.attention = BottleneckAttention(config)
        self.attention_norm = new_norm(config, config.attention_width)
        stacked = [FeedForward(config, 0.0, None) for _ in range(count - 1)]
        self.feed_forwards = nn.ModuleList([*stacked, FeedForward(config, self.dropout, FIXED_EPS)])
        self.exit = Exit(config) if narrow else None

    def queries(self, x: Tensor) -> Tensor:
        """Return what queries and keys are made of; x [..., H] is the layer's input."""
        if self.reads_entered:
            assert self.entrance is not None
            entered: Tensor = self.entrance(x)
            return entered
        return x if self.shared is None else self.shared(x)

    def forward(self, x: Tensor, layout: RowLayout) -> Tensor:
        """x [N, H]. Returns [N, H]."""
        entered = x if self.entrance is None else self.entrance(x)
        if self.reads_entered:
            attended = self.attention(entered, entered, layout)
        else:
            attended = self.attention(self.queries(x), x, layout)
        inner = dropout_add(attended, entered, self.dropout, self.training)
        inner = self.attention_norm(inner).to(inner.dtype)
        for feed_forward in self.feed_forwards:
            inner = feed_forward(inner)
        return inner if self.exit is None else self.exit(inner, x)
