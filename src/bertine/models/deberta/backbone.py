"""The backbone of DeBERTa-v3.

Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertine.models.deberta.attention import DisentangledLayer, RelativeTable
from bertine.models.deberta.positions import RelativePositions, table_rows
from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import RowEmbeddings, new_table
from bertine.models.encoder import RowBackbone
from bertine.models.initial import init_weights
from bertine.models.layers import RowLayout
from bertine.models.precision import autocast_dtype

if TYPE_CHECKING:
    from bertine.models.deberta.config import DebertaConfig


class ContentEmbeddings(RowEmbeddings):
    """Word embeddings, layer norm and dropout; and beside them the table of relative positions,
    which the attention reads."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.word_embeddings = new_table(config.vocab_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = StreamDropout(config.hidden_dropout_prob)
        self.relative = RelativeTable(config)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None,
        real: Tensor | None = None,
        word_vectors: Tensor | None = None,
    ) -> Tensor:
        """Return what the first layer reads, [N, H]; the arguments are those of
        :class:`bertine.models.embeddings.Embeddings`, types are ignored."""
        if word_vectors is None:
            ids = input_ids.reshape(-1)
            x = self.word_embeddings(ids if real is None else ids[real])
        else:
            x = word_vectors.reshape(-1, word_vectors.shape[-1])
        x = self.layer_norm(x)
        # As in BERT: from here on the residual stream is in the compute type.
        return self.dropout(x.to(autocast_dtype(x.device.type) or x.dtype))

    def traced(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None
    ) -> Tensor:
        """Compute the embeddings of all tokens of a padded batch, [B, T] → [B * T, H]."""
        return self(input_ids, None)


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

    def attention_scores(self, layer: int, states: Tensor) -> Tensor:
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
