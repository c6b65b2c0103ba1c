"""The backbone of MobileBERT and of its teacher.

Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the word embeddings, A
attention heads; N rows that are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from bertine.models.encoder import RowBackbone
from bertine.models.initial import init_weights
from bertine.models.layers import RowLayout
from bertine.models.mobilebert.embeddings import TrigramEmbeddings
from bertine.models.mobilebert.layers import BottleneckLayer

if TYPE_CHECKING:
    from bertine.models.mobilebert.config import MobileBertConfig


class MobileBert(RowBackbone):
    """Trigram embeddings, bottleneck layers and, where the config has an activation for it and it
    is asked for, the pooler."""

    shows_attention = True
    embeddings: TrigramEmbeddings

    def __init__(self, config: MobileBertConfig, add_pooler: bool = True) -> None:
        super().__init__()
        size = config.hidden_size
        self.config = config
        self.embeddings = TrigramEmbeddings(config)
        self.layers = nn.ModuleList(
            BottleneckLayer(config) for _ in range(config.num_hidden_layers)
        )
        has_pooler = add_pooler and config.classifier_activation
        self.pooler = nn.Linear(size, size) if has_pooler else None
        self.pools_first = not config.classifier_activation
        self.reads_padding = config.trigram_input
        init_weights(self, config.initializer_range)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.backbone.Backbone`."""
        chosen = self.layers[layer]
        assert isinstance(chosen, BottleneckLayer)
        return chosen.attention.scores(chosen.queries(states))

    def _embedded(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        layout: RowLayout,
        word_vectors: Tensor | None,
    ) -> Tensor:
        seen = None if self.reads_padding else attention_mask
        return self.embeddings(input_ids, token_type_ids, layout, word_vectors, seen)

    def _pooled(self, states: Tensor, mask: Tensor | None) -> Tensor | None:
        return states[:, 0] if self.pools_first else super()._pooled(states, mask)
