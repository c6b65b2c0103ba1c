"""Heads of a ModernBERT: each with a dense layer, an activation and a norm before the last layer
(Warner et al. 2024, arXiv 2412.13663; transformers, ``ModernBertPredictionHead``).

Shape legend: P masked positions, H hidden size, V vocabulary size, K labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.dropout import StreamDropout
from bertine.models.initial import init_weights, set_initial_std
from bertine.models.layers import activation
from bertine.models.modern.layers import norm

if TYPE_CHECKING:
    from bertine.models.modern.config import ModernBertConfig


#: The activation of heads that have none, as transformers calls it.
LINEAR = "linear"


def _same(x: Tensor) -> Tensor:
    return x


class PredictionHead(nn.Module):
    """Dense, activation, norm: what stands before the last layer of every head."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.dense = nn.Linear(size, size, bias=config.classifier_bias)
        name = config.classifier_activation
        self.act = _same if name == LINEAR else activation(name)
        self.layer_norm = norm(config)
        set_initial_std(self.dense, config.output_std)

    def transform(self, states: Tensor) -> Tensor:
        """states [..., H]. Returns [..., H]."""
        return self.layer_norm(self.act(self.dense(states)))


class ModernMlmHead(PredictionHead):
    """The masked-LM head, whose decoder is the word embedding; only its bias lives here."""

    @property
    def vocabulary_tensors(self) -> Mapping[str, int]:
        """The weights with a place for each word, and the dimension of it."""
        return {} if self.bias is None else {"bias": 0}

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.decoder_bias else None
        init_weights(self, config.initializer_range)

    def reset_parameters(self) -> None:
        """Set the decoder's bias to 0."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """hidden [P, H], decoder_weight [V, H]. Returns logits [P, V]."""
        return F.linear(self.transform(hidden), decoder_weight, self.bias)


class ModernHead(PredictionHead):
    """Scores of a text, of tokens, or of the ends of a span: dense, activation, norm, dropout,
    linear (transformers, ``ModernBertFor…``)."""

    def __init__(self, config: ModernBertConfig, outputs: int) -> None:
        super().__init__(config)
        self.dropout = StreamDropout(config.classifier_dropout)
        self.out = nn.Linear(config.hidden_size, outputs)
        set_initial_std(self.out, config.hidden_size**-0.5)
        init_weights(self, config.initializer_range)

    def forward(self, states: Tensor) -> Tensor:
        """states [..., H]. Returns logits [..., K]."""
        return self.out(self.dropout(self.transform(states)))
