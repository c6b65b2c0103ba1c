"""The heads of causal models: the next word, and classes of a whole text.

Shape legend: B sequences, P places, H hidden size, V vocabulary size, K labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.config import Config
from bertine.models.dropout import StreamDropout
from bertine.models.initial import init_weights


class LmHead(nn.Module):
    """The head of a language model without weights of its own: the word embeddings as decoder,
    without a bias (Radford et al. 2018, equation 2).

    Attributes:
        vocabulary_tensors: the weights with a place for each word: none.
    """

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {}

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """hidden [P, H], decoder_weight [V, H]. Returns logits [P, V]."""
        return F.linear(hidden, decoder_weight)


class LinearHead(nn.Module):
    """Dropout and one linear layer without a bias on what is pooled."""

    def __init__(self, config: Config, num_labels: int) -> None:
        super().__init__()
        p = config.classifier_dropout
        self.dropout = StreamDropout(config.hidden_dropout_prob if p is None else p)
        self.out = nn.Linear(config.hidden_size, num_labels, bias=False)
        init_weights(self, config.initializer_range)

    def forward(self, pooled: Tensor) -> Tensor:
        """pooled [B, H]. Returns logits [B, K]."""
        return self.out(self.dropout(pooled))
