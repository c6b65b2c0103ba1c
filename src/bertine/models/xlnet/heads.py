"""The heads of XLNet: the words at places, and classes of what the last token sums up.

Shape legend: B sequences, P places, H hidden size, V vocabulary size, K labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.config import Config
from bertine.models.dropout import StreamDropout
from bertine.models.initial import init_weights


class PermutationLmHead(nn.Module):
    """The head of the language model: the word embeddings as decoder, with a bias (zihangdai/xlnet,
    ``modeling.py: lm_loss``).

    Attributes:
        vocabulary_tensors: the weights with a place for each word.
    """

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {"bias": 0}

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def reset_parameters(self) -> None:
        """Set the bias to 0."""
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """hidden [P, H], decoder_weight [V, H]. Returns logits [P, V]."""
        return F.linear(hidden, decoder_weight, self.bias)


class LastTokenHead(nn.Module):
    """Score what the last token sums up: dense, tanh, dropout, linear (zihangdai/xlnet,
    ``modeling.py: summarize_sequence``, ``classification_loss``)."""

    def __init__(self, config: Config, num_labels: int) -> None:
        super().__init__()
        p = config.classifier_dropout
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = StreamDropout(config.hidden_dropout_prob if p is None else p)
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, last: Tensor) -> Tensor:
        """last [B, H]. Returns logits [B, K]."""
        return self.out(self.dropout(torch.tanh(self.dense(last))))
