"""Disentangled attention: what a token is and where it stands are asked for apart.

Shape legend: B sequences, T tokens of the longest, H hidden size, A heads, D = H / A; N rows that
are computed; R rows of relative positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.deberta.positions import shifted
from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import new_table
from bertine.models.layers import EncoderLayer, RowLayout, SelfAttention, softmax

if TYPE_CHECKING:
    from bertine.models.deberta.config import DebertaConfig


class DisentangledAttention(SelfAttention):
    """Self-attention whose scores are sums of three: content for content, content for relative
    position, relative position for content (He et al. 2020, arXiv 2006.03654, section 3.1).
    Positions are projected by the weights of queries and keys (``share_att_key``)."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.position_dropout = StreamDropout(config.hidden_dropout_prob)
        self.probability_dropout = StreamDropout(config.attention_probs_dropout_prob)

    def forward(  # type: ignore[override]
        self, x: Tensor, layout: RowLayout, rows: Tensor, places: Tensor
    ) -> Tensor:
        """Compute the attention, before the output's dropout.

        Args:
            x: [N, H].
            layout: of the rows.
            rows: [R, H], the embeddings of relative positions that are needed.
            places: which of them belong to what: int64 [2 T - 1], the row of the offset T - 1,
                T - 2, … 1 - T of the looking token from the other one; in a graph [T, T], the row
                of each pair.

        Returns:
            [N, H].
        """
        b, t = layout.sequences, layout.length
        qkv = layout.pad(self.qkv(x)).view(b, t, 3, self.heads, self.head_size)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = self._scores(q, k, rows, places)
        if layout.bias is not None:
            scores = scores + layout.bias
        probabilities = self.probability_dropout(softmax(scores))
        mixed = probabilities.to(v.dtype) @ v
        return self.out(layout.unpad(mixed.transpose(1, 2).reshape(b, t, -1)))

    def scores_of(self, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """x [B, T, H]. Returns the scores [B, A, T, T]."""
        qkv = self.qkv(x).view(*x.shape[:2], 3, self.heads, self.head_size)
        q, k, _ = qkv.permute(2, 0, 3, 1, 4)
        return self._scores(q, k, rows, places)

    def _scores(self, q: Tensor, k: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """q, k [B, A, T, D]. Returns [B, A, T, T]."""
        scale = (3 * self.head_size) ** -0.5
        q = q * scale
        queries, keys = self._positions(rows)
        if places.dim() == 2:
            index = places.expand(*q.shape[:2], *places.shape)
            by_key = (q @ keys.transpose(-1, -2)).gather(-1, index)
            # The row of a pair seen from the other side: that of the looking token all the same.
            by_query = (k @ queries.transpose(-1, -2)).gather(-1, index.transpose(-1, -2))
        else:
            keys = keys.index_select(1, places)
            queries = queries.index_select(1, places.flip(0))
            by_key = shifted(q @ keys.transpose(-1, -2))
            by_query = shifted(k @ queries.transpose(-1, -2))
        return q @ k.transpose(-1, -2) + by_key + by_query.transpose(-1, -2) * scale

    def _positions(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """rows [R, H]. Returns queries and keys of the positions, [A, R, D] each."""
        size = self.out.in_features
        projected = F.linear(
            self.position_dropout(rows), self.qkv.weight[: 2 * size], self.qkv.bias[: 2 * size]
        )
        parts = projected.view(-1, 2, self.heads, self.head_size).permute(1, 2, 0, 3)
        queries, keys = parts.unbind(0)
        return queries, keys


class DisentangledLayer(EncoderLayer):
    """BERT's layer with this attention."""

    attention: DisentangledAttention

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.attention = DisentangledAttention(config)


class RelativeTable(nn.Module):
    """The embeddings of relative positions, and the norm that all layers read them by."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.embeddings = new_table(2 * config.span, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, dtype: torch.dtype) -> Tensor:
        """Return the table as the layers read it, [2 S, H] of `dtype`."""
        table: Tensor = self.norm(self.embeddings.weight).to(dtype)
        return table
