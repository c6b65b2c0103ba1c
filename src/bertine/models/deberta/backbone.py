"""The backbone of DeBERTa-v3.

Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertine.models.deberta.attention import DisentangledLayer, RelativeTable
from bertine.models.deberta.positions import RelativePositions, table_rows
from bertine.models.embeddings import WordEmbeddings
from bertine.models.encoder import RowBackbone
from bertine.models.initial import init_weights
from bertine.models.layers import RowLayout

if TYPE_CHECKING:
    from bertine.models.deberta.config import DebertaConfig


class ContentEmbeddings(WordEmbeddings):
    """Word embeddings, and beside them the table of relative positions, which the attention
    reads."""

    def __init__(self, config: DebertaConfig) -> None:
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        super().__init__(config, norm, config.hidden_dropout_prob)
        self.relative = RelativeTable(config)


class DebertaEncoder(RowBackbone):
    """Embeddings, and layers that read the table of relative positions."""

    takes_packing = False
    shows_attention = True
    embeddings: ContentEmbeddings
    config: DebertaConfig

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = ContentEmbeddings(config)
        self.layers = nn.ModuleList(
            DisentangledLayer(config) for _ in range(config.num_hidden_layers)
        )
        self.pooler = None
        init_weights(self, config.initializer_range)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.backbone.Backbone`."""
        chosen = self.layers[layer]
        assert isinstance(chosen, DisentangledLayer)
        rows, places = self._around(RowLayout(*states.shape[:2]), states)
        return chosen.attention.scores_of(states, rows, places)

    def _around(self, layout: RowLayout, x: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        positions = RelativePositions.of(
            layout.length, config.span, config.position_buckets, config.longest_offset
        )
        rows = self.embeddings.relative(x.dtype).narrow(0, positions.first, positions.count)
        return rows, positions.falling.to(x.device)

    def _around_traced(self, layout: RowLayout, x: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        places = torch.arange(layout.length, device=x.device)
        pairs = table_rows(
            places[:, None] - places[None, :],
            config.span,
            config.position_buckets,
            config.longest_offset,
        )
        return self.embeddings.relative(x.dtype), pairs
