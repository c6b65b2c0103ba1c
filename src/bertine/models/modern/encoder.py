"""The encoder of ModernBERT: word embeddings without positions, layers with the norm before each
part, a last norm (Warner et al. 2024, arXiv 2412.13663, section 2.1).

Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertine.models.backbone import Backbone
from bertine.models.embeddings import WordEmbeddings
from bertine.models.encoded import BackboneOutput, PackedRows
from bertine.models.encoder import layout_of
from bertine.models.initial import init_weights
from bertine.models.layers import RowLayout
from bertine.models.modern.layers import ModernLayer, Surroundings, norm
from bertine.models.modern.local import band
from bertine.models.modern.rotary import angles

if TYPE_CHECKING:
    from bertine.models.modern.config import ModernBertConfig


class ModernEncoder(Backbone):
    """Embeddings, layers, a last norm. What is pooled is the first token's state or the mean of the
    real tokens', as ``classifier_pooling`` says, without weights."""

    takes_packing = True
    shows_attention = True
    embeddings: WordEmbeddings
    config: ModernBertConfig

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = WordEmbeddings(config, norm(config), config.embedding_dropout)
        self.layers = nn.ModuleList(
            ModernLayer(config, number == 0) for number in range(config.num_hidden_layers)
        )
        self.final_norm = norm(config)
        self.pooler = None
        init_weights(self, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        packing: PackedRows | None = None,
        word_vectors: Tensor | None = None,
    ) -> BackboneOutput:
        """Encode a batch; see :class:`bertine.models.backbone.Backbone`.

        Raises:
            ValueError: `word_vectors` for a batch with padding.
        """
        layout = layout_of(input_ids, attention_mask, packing, self.word_weights.dtype)
        if word_vectors is not None and layout.real is not None:
            raise ValueError("word_vectors are for batches without padding")
        x = self.embeddings(input_ids, None, layout.real, word_vectors)
        around = {
            window: Surroundings.of(layout, self.config.head_size, theta, window, x)
            for window, theta in self.config.rope_thetas.items()
        }
        return self._encoded(x, layout, around, attention_mask, output_hidden_states)

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a padded batch, the masks written out."""
        b, t = input_ids.shape
        x = self.embeddings(input_ids, None)
        layout = RowLayout(b, t)
        places = torch.arange(t, device=input_ids.device)
        around = {}
        for window, theta in self.config.rope_thetas.items():
            seen = attention_mask.bool()[:, None, None, :]
            if window is not None:
                seen = seen & band(t, window, input_ids.device)
            # Not minus infinity: a runtime may compute a row of nothing but padding, and 0 / 0.
            bias = (~seen).to(x.dtype) * torch.finfo(x.dtype).min
            by = angles(places, self.config.head_size, theta)
            around[window] = Surroundings(layout, by, window, bias, traced=True)
        return self._encoded(x, layout, around, attention_mask, output_hidden_states)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.backbone.Backbone`.
        Beyond the window of a local layer they are -inf."""
        chosen = self.layers[layer]
        assert isinstance(chosen, ModernLayer)
        window = self.config.windows[layer]
        places = torch.arange(states.shape[1], device=states.device)
        by = angles(places, self.config.head_size, self.config.rope_thetas[window])
        return chosen.attention.scores(chosen.attention_input(states), by, window)

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, H]: a tied decoder multiplies with them."""
        return self.embeddings.word_embeddings.weight

    def _encoded(
        self,
        x: Tensor,
        layout: RowLayout,
        around: dict[int | None, Surroundings],
        mask: Tensor | None,
        output_hidden_states: bool,
    ) -> BackboneOutput:
        states = [layout.pad(x)] if output_hidden_states else []
        last = len(self.layers) - 1
        for number, (layer, window) in enumerate(
            zip(self.layers, self.config.windows, strict=True)
        ):
            x = layer(x, around[window])
            if output_hidden_states and number < last:
                states.append(layout.pad(x))
        x = layout.pad(self.final_norm(x).to(x.dtype))
        if output_hidden_states:
            states.append(x)
        pooled = x[:, 0] if self.config.classifier_pooling == "cls" else mean_of_tokens(x, mask)
        return BackboneOutput(x, pooled, tuple(states) or None)


def mean_of_tokens(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of the real tokens' states: states [B, T, H], mask [B, T] (None: all are
    real). fp32 [B, H]."""
    states = states.float()
    if mask is None:
        return states.mean(1)
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1.0)
