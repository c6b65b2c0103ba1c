"""A backbone that looks at what stands before each token alone: word and position embeddings,
layers with the norm after each part (Radford et al. 2018, section 3.1; openai/finetune-transformer-
lm, ``train.py: model``).

Shape legend: B sequences, T tokens of the longest, H hidden size; N rows that are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertine.models.causal.writing import CausalWriter
from bertine.models.dropout import StreamDropout
from bertine.models.embeddings import Embeddings
from bertine.models.encoded import PackedRows, last_tokens
from bertine.models.encoder import RowBackbone, layout_of
from bertine.models.initial import init_weights
from bertine.models.layers import EncoderLayer, RowLayout
from bertine.models.precision import autocast_dtype

if TYPE_CHECKING:
    from bertine.models.causal.config import OpenAIGPTConfig


class UnnormedEmbeddings(Embeddings):
    """The sum of word and position embeddings, and dropout, without a norm.

    The original drops numbers of the table before the look-up, so that a word that comes twice
    loses the same ones; as in transformers, each place has its own here.
    """

    def __init__(self, config: OpenAIGPTConfig) -> None:
        super().__init__(config)
        self.layer_norm: nn.Module = nn.Identity()
        self.dropout = StreamDropout(config.embedding_dropout)


class CausalBackbone(RowBackbone):
    """Embeddings and layers whose attention is to a token and to those before it. What is pooled is
    the last state of the last real token, without weights."""

    takes_packing = False
    shows_attention = True
    embeddings: Embeddings
    config: OpenAIGPTConfig

    def __init__(self, config: OpenAIGPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = UnnormedEmbeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))
        self.pooler = None
        init_weights(self, config.initializer_range)

    def attention_scores(
        self, layer: int, states: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the scores of a layer's heads; see :class:`bertine.models.backbone.Backbone`. To
        what stands behind a token they are -inf."""
        chosen = self.layers[layer]
        assert isinstance(chosen, EncoderLayer)
        return chosen.attention.scores(states) + hidden_future(states.shape[1], states)

    def writer(
        self, scores: Callable[[Tensor], Tensor], texts: Sequence[Sequence[int]]
    ) -> tuple[CausalWriter, Sequence[Sequence[int]]]:
        """Make what goes on with `texts`; see :class:`bertine.models.backbone.Backbone`."""
        return CausalWriter(self, scores), texts

    def _layout(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        packing: PackedRows | None,
        dtype: torch.dtype,
    ) -> RowLayout:
        layout = layout_of(input_ids, attention_mask, packing, dtype)
        return replace(layout, bias=self._causal(layout, input_ids, dtype))

    def _causal(self, layout: RowLayout, input_ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what is added to the scores, [B or 1, 1, T, T]. Padding behind the texts needs no
        mask: no token that counts looks at it."""
        bias = layout.bias
        if bias is None:
            device = input_ids.device
            like = torch.empty(0, dtype=autocast_dtype(device.type) or dtype, device=device)
            return hidden_future(layout.length, like)
        future = hidden_future(layout.length, bias)
        if bias.device.type == "cpu" and not bool(torch.isinf(bias[..., 0]).any()):
            return future
        # Padding looks at itself: of a row without any place to look at nothing is a number.
        both = bias + future
        both.diagonal(dim1=-2, dim2=-1).zero_()
        return both

    def _bias_traced(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        t = attention_mask.shape[1]
        places = torch.arange(t, device=attention_mask.device)
        seen = attention_mask.bool()[:, None, None, :] & (places[:, None] >= places[None, :])
        return (~seen).to(dtype) * torch.finfo(dtype).min

    def _pooled(self, states: Tensor, mask: Tensor | None) -> Tensor | None:
        return last_tokens(states, mask)


def hidden_future(length: int, like: Tensor) -> Tensor:
    """Return what hides the tokens behind each one, [1, 1, T, T] of the type and device of `like`:
    0 for itself and those before it, -inf for the others."""
    return like.new_full((1, 1, length, length), float("-inf")).triu_(1)
