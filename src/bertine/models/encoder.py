"""The encoder of BERT and of the models that share its layers: embeddings, layers with the norm
after each part, a pooler (Devlin et al. 2018, section 3; google-research/bert, ``modeling.py``).

Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the embeddings; N rows
that are computed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertine.models.backbone import Backbone
from bertine.models.config import Config
from bertine.models.embeddings import Embeddings
from bertine.models.encoded import BackboneOutput, PackedRows
from bertine.models.initial import init_weights
from bertine.models.layers import EncoderLayer, RowLayout
from bertine.models.precision import autocast_dtype

#: From this share of padding on, a CPU computes real tokens alone: less does not pay for putting
#: them into place for the attention and back.
_UNPAD_FROM = 0.1
#: Numbers of rows that are computed: multiples of this, or of a sixteenth of the number, rounded
#: down to a power of two. oneDNN compiles each product for its shape, at about a millisecond,
#: and keeps a thousand; batches whose real tokens all differ in number would compile for ever.
_ROWS = 64


class Encoder(Backbone):
    """Embeddings, encoder layers and (by default) the pooler."""

    takes_packing = True
    embeddings: Embeddings

    def __init__(self, config: Config, add_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooler else None
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
        if packing is None:
            layout = self._layout(input_ids, attention_mask)
        else:
            b, t = input_ids.shape
            layout = RowLayout(b, t, packing.real, ends=packing.ends, longest=packing.longest)
        if word_vectors is not None and layout.real is not None:
            raise ValueError("word_vectors are for batches without padding")
        x = self.embeddings(input_ids, token_type_ids, layout.real, word_vectors)
        states = [layout.pad(x)] if output_hidden_states else []
        for layer in self.layers:
            x = layer(x, layout)
            if output_hidden_states:
                states.append(layout.pad(x))
        return self._output(x, layout, states)

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a padded batch, the embeddings and the mask written out."""
        b, t = input_ids.shape
        parts = self.embeddings
        places = torch.arange(parts.first, parts.first + t, device=input_ids.device)
        x = parts.word_embeddings(input_ids) + parts.position_embeddings(places)
        types = None if parts.one_segment else token_type_ids
        segments = parts.token_type_embeddings
        if segments is not None:
            x = x + (segments.weight[0] if types is None else segments(types))
        x = parts.layer_norm(x.reshape(b * t, -1))
        if parts.projection is not None:
            x = parts.projection(x)
        # Not minus infinity: a runtime may compute a row of nothing but padding, and 0 / 0.
        bias = (1.0 - attention_mask.to(x.dtype))[:, None, None, :] * torch.finfo(x.dtype).min
        layout = RowLayout(b, t, bias=bias)
        states = [layout.pad(x)] if output_hidden_states else []
        for layer in self.layers:
            x = layer(x, layout)
            if output_hidden_states:
                states.append(layout.pad(x))
        return self._output(x, layout, states)

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E]: a tied decoder multiplies with them."""
        return self.embeddings.word_embeddings.weight

    def _output(self, x: Tensor, layout: RowLayout, states: list[Tensor]) -> BackboneOutput:
        last = layout.pad(x)
        pooled = None if self.pooler is None else torch.tanh(self.pooler(last[:, 0]))
        return BackboneOutput(last, pooled, tuple(states) or None)

    def _layout(self, input_ids: Tensor, attention_mask: Tensor | None) -> RowLayout:
        b, t = input_ids.shape
        if attention_mask is None:
            return RowLayout(b, t)
        mask, device = attention_mask.bool(), input_ids.device.type
        real = None
        # On a CPU a look at the mask is cheap; elsewhere it would wait for the device.
        if device == "cpu":
            padding = 1.0 - int(mask.sum()) / mask.numel()
            if padding == 0.0:
                return RowLayout(b, t)
            if padding >= _UNPAD_FROM:
                real = _real_rows(mask.reshape(-1))
        dtype = autocast_dtype(device) or self.embeddings.word_embeddings.weight.dtype
        bias = torch.zeros(b, 1, 1, t, dtype=dtype, device=mask.device)
        return RowLayout(b, t, real, bias.masked_fill_(~mask[:, None, None, :], float("-inf")))


def _real_rows(mask: Tensor) -> Tensor | None:
    """Return the indices of the real tokens in mask [B*T], and some of padding to make a number
    that comes again; None where that would be all."""
    real = mask.nonzero()[:, 0]
    multiple = max(_ROWS, 1 << max(0, real.numel() // 16).bit_length() >> 1)
    rows = -(-real.numel() // multiple) * multiple
    if rows >= mask.numel():
        return None
    return torch.cat([real, (~mask).nonzero()[: rows - real.numel(), 0]])
