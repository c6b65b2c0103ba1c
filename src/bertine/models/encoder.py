"""The encoder of BERT and of the models that share its layers: embeddings, layers with the norm
after each part, a pooler (Devlin et al. 2018, section 3; google-research/bert, ``modeling.py``).

Shape legend: B sequences, T tokens of the longest, H hidden size, E width of the embeddings; N rows
that are computed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bertine.models.backbone import Backbone
from bertine.models.config import Config
from bertine.models.embeddings import Embeddings, RowEmbeddings
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


class RowBackbone(Backbone):
    """A backbone whose embeddings and layers compute rows [N, H], those of a
    :class:`bertine.models.layers.RowLayout`: of a batch with padding the real tokens alone.

    The embeddings are called like :class:`bertine.models.embeddings.Embeddings`, in a graph by
    their ``traced``; the layers with the rows and their layout.
    """

    takes_packing = True
    embeddings: RowEmbeddings

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
        dtype = self.embeddings.word_embeddings.weight.dtype
        layout = self._layout(input_ids, attention_mask, packing, dtype)
        if word_vectors is not None and layout.real is not None:
            raise ValueError("word_vectors are for batches without padding")
        x = self._embedded(input_ids, attention_mask, token_type_ids, layout, word_vectors)
        around = self._around(layout, x)
        return self._encoded(x, layout, around, attention_mask, output_hidden_states)

    def traced(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """Encode a padded batch, the embeddings and the mask written out."""
        b, t = input_ids.shape
        x = self.embeddings.traced(input_ids, attention_mask, token_type_ids)
        layout = RowLayout(b, t, bias=self._bias_traced(attention_mask, x.dtype))
        around = self._around_traced(layout, x)
        return self._encoded(x, layout, around, attention_mask, output_hidden_states)

    @property
    def word_weights(self) -> Tensor:
        """The word embeddings, [V, E]: a tied decoder multiplies with them."""
        return self.embeddings.word_embeddings.weight

    def _layout(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        packing: PackedRows | None,
        dtype: torch.dtype,
    ) -> RowLayout:
        """Say which rows are computed and what may be looked at; see :func:`layout_of`."""
        return layout_of(input_ids, attention_mask, packing, dtype)

    def _bias_traced(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what is added to attention scores of a padded batch, mask [B, T], in a graph:
        [B, 1, 1 or T, T]."""
        # Not minus infinity: a runtime may compute a row of nothing but padding, and 0 / 0.
        return (1.0 - attention_mask.to(dtype))[:, None, None, :] * torch.finfo(dtype).min

    def _embedded(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        layout: RowLayout,
        word_vectors: Tensor | None,
    ) -> Tensor:
        """Return what the first layer reads, [N, H]."""
        x: Tensor = self.embeddings(input_ids, token_type_ids, layout.real, word_vectors)
        return x

    def _around(self, layout: RowLayout, x: Tensor) -> tuple[Any, ...]:
        """Return what the layers are given besides the rows and their layout; x [N, H] is what the
        first one reads."""
        return ()

    def _around_traced(self, layout: RowLayout, x: Tensor) -> tuple[Any, ...]:
        """Return the same for a graph."""
        return ()

    def _encoded(
        self,
        x: Tensor,
        layout: RowLayout,
        around: tuple[Any, ...],
        mask: Tensor | None,
        output_hidden_states: bool,
    ) -> BackboneOutput:
        states = [layout.pad(x)] if output_hidden_states else []
        for number in self.config.passes:
            x = self.layers[number](x, layout, *around)
            if output_hidden_states:
                states.append(layout.pad(x))
        last = layout.pad(x)
        return BackboneOutput(last, self._pooled(last, mask), tuple(states) or None)

    def _pooled(self, states: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return the pooled output, [B, H], of the last states [B, T, H] of a batch with the mask
        [B, T]; None: all tokens are real."""
        return None if self.pooler is None else torch.tanh(self.pooler(states[:, 0]))


def layout_of(
    input_ids: Tensor,
    attention_mask: Tensor | None,
    packing: PackedRows | None,
    dtype: torch.dtype,
) -> RowLayout:
    """Say which rows of a batch the layers compute, and which of them attention may look at.

    Args:
        input_ids: int64 [B, T].
        attention_mask: bool or 0/1 [B, T], true at real tokens; None: no padding.
        packing: where the real tokens stand, in place of `attention_mask`.
        dtype: of the weights, in which the layers compute without autocast.
    """
    b, t = input_ids.shape
    if packing is not None:
        return RowLayout(b, t, packing.real, ends=packing.ends, longest=packing.longest)
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
    bias = torch.zeros(b, 1, 1, t, dtype=autocast_dtype(device) or dtype, device=mask.device)
    return RowLayout(b, t, real, bias.masked_fill_(~mask[:, None, None, :], float("-inf")))


class Encoder(RowBackbone):
    """Embeddings, encoder layers and (by default) the pooler."""

    shows_attention = True
    embeddings: Embeddings

    def __init__(self, config: Config, add_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layers = math.prod(config.layer_counts.values())
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if add_pooler else None
        init_weights(self, config.initializer_range)
        for name, owner in config.tied_modules.items():
            layer, _, part = name.rpartition(".")
            _lend(self.get_submodule(layer), part, self.get_submodule(owner))

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.backbone.Backbone`."""
        chosen = self.layers[self.config.passes[layer]]
        assert isinstance(chosen, EncoderLayer)
        return chosen.attention.scores(states)


def _lend(layer: nn.Module, part: str, owner: nn.Module) -> None:
    """Let `layer` use the module `owner` of another layer as its `part`. It stays the other's: as
    a plain attribute it is found, moved and copied with the whole, and stands once among the
    weights."""
    delattr(layer, part)
    layer.__dict__[part] = owner


def _real_rows(mask: Tensor) -> Tensor | None:
    """Return the indices of the real tokens in mask [B*T], and some of padding to make a number
    that comes again; None where that would be all."""
    real = mask.nonzero()[:, 0]
    multiple = max(_ROWS, 1 << max(0, real.numel() // 16).bit_length() >> 1)
    rows = -(-real.numel() // multiple) * multiple
    if rows >= mask.numel():
        return None
    return torch.cat([real, (~mask).nonzero()[: rows - real.numel(), 0]])
