"""The layers of a BART: BERT's, with dropout inside the feed-forward, and in the decoder attention
to another text (Vaswani et al. 2017, section 3.2.3; fairseq, ``TransformerDecoderLayer``).

Shape legend: B sequences, T tokens of the longest, S tokens of the longest that is looked at, H
hidden size, A attention heads, D = H / A; N rows that are computed, M of the text looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from bertine.models.dropout import StreamDropout, dropout_add
from bertine.models.layers import EncoderLayer, RowLayout, activated_linear, attend

if TYPE_CHECKING:
    from bertine.models.bart.config import BartConfig


class BartLayer(EncoderLayer):
    """A layer of the encoder."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.inner_dropout = StreamDropout(config.activation_dropout)

    def forward(self, x: Tensor, layout: RowLayout, *around: object) -> Tensor:
        """x [N, H]. Returns [N, H]."""
        return self.fed_forward(self.attended(x, layout))

    def attended(self, x: Tensor, layout: RowLayout) -> Tensor:
        """Compute the first half, the text's attention to itself: x [N, H] → [N, H]."""
        mixed = self.attention(x, layout)
        return self.closed(mixed, x, self.attention_norm)

    def fed_forward(self, x: Tensor) -> Tensor:
        """Compute the feed-forward of x [N, H]: [N, H]."""
        inner = self.up(x)
        if self.training and self.inner_dropout.p > 0.0:
            inner = self.down(self.inner_dropout(self.act(inner)))
        else:
            inner = activated_linear(inner, self.act, self.down, self.training)
        return self.closed(inner, x, self.output_norm)

    def closed(self, part: Tensor, x: Tensor, norm: nn.Module) -> Tensor:
        """Add what a part of the layer gave, with dropout, to what it read; and the norm: [N, H]
        each."""
        x = dropout_add(part, x, self.dropout, self.training)
        normed: Tensor = norm(x).to(x.dtype)
        return normed


class CrossAttention(nn.Module):
    """Multi-head attention of one text to another, with one product for keys and values together.

    ``kv.weight`` is [2H, H]: the rows of the key, then the value projection.
    """

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_size = config.head_size
        self.dropout = config.attention_probs_dropout_prob
        self.q = nn.Linear(config.hidden_size, config.hidden_size)
        self.kv = nn.Linear(config.hidden_size, 2 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor, layout: RowLayout, memory: Tensor, there: RowLayout) -> Tensor:
        """Let x [N, H] look at `memory` [M, H], whose layout is `there`. Returns [N, H], before
        the output's dropout."""
        q = self._by_head(layout.pad(self.q(x)))
        keys, values = self.keys_and_values(memory, there)
        p = self.dropout if self.training else 0.0
        mixed = attend(q, keys, values, there.bias, p, self.training)
        b, t = layout.sequences, layout.length
        out: Tensor = self.out(layout.unpad(mixed.transpose(1, 2).reshape(b, t, -1)))
        return out

    def queries(self, x: Tensor) -> Tensor:
        """x [B, T, H]. Returns [B, A, T, D]."""
        return self._by_head(self.q(x))

    def _by_head(self, q: Tensor) -> Tensor:
        return q.view(*q.shape[:2], self.heads, self.head_size).transpose(1, 2)

    def keys_and_values(self, memory: Tensor, there: RowLayout) -> tuple[Tensor, Tensor]:
        """Compute what is looked at of `memory` [M, H]: two of [B, A, S, D]."""
        b, s = there.sequences, there.length
        kv = there.pad(self.kv(memory)).view(b, s, 2, self.heads, self.head_size)
        keys, values = kv.permute(2, 0, 3, 1, 4)
        return keys, values


class DecoderLayer(BartLayer):
    """A layer of the decoder: the written text looks at itself, then at the text that was read."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__(config)
        self.cross = CrossAttention(config)
        self.cross_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, layout: RowLayout, *around: object) -> Tensor:
        """x [N, H]; `around` is the last states [M, H] of the text that was read, and their
        layout. Returns [N, H]."""
        memory, there = around
        assert isinstance(memory, Tensor)
        assert isinstance(there, RowLayout)
        x = self.attended(x, layout)
        x = self.closed(self.cross(x, layout, memory, there), x, self.cross_norm)
        return self.fed_forward(x)
