"""ELECTRA's heads: that of replaced tokens, and those of tasks, which have a dense layer of their
own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.dropout import StreamDropout
from bertine.models.initial import init_weights
from bertine.models.layers import activation

if TYPE_CHECKING:
    from bertine.models.electra.config import ElectraConfig


class ReplacedTokenHead(nn.Module):
    """Score each token: was it replaced? Dense, activation, linear (google-research/electra,
    ``_get_discriminator_output``)."""

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = activation(config.hidden_act)
        self.out = nn.Linear(config.hidden_size, 1)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [B, T, H]. Returns logits [B, T], above 0 for "replaced"."""
        return self.out(self.act(self.dense(hidden))).squeeze(-1)


class GeluClassificationHead(nn.Module):
    """Score the state of the first token: dropout, dense, gelu, dropout, linear (transformers'
    ``ElectraClassificationHead``; the published code has the linear layer alone)."""

    def __init__(self, config: ElectraConfig, num_labels: int) -> None:
        super().__init__()
        p = config.classifier_dropout
        self.dropout = StreamDropout(config.hidden_dropout_prob if p is None else p)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = F.gelu
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, first: Tensor) -> Tensor:
        """first [B, H]. Returns logits [B, K]."""
        return self.out(self.dropout(self.act(self.dense(self.dropout(first)))))


class SummaryHead(nn.Module):
    """Score a choice by its first token's state: dense, gelu, dropout, linear (transformers'
    ``ElectraSequenceSummary`` with what published configurations say)."""

    def __init__(self, config: ElectraConfig, num_labels: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = F.gelu
        self.dropout = StreamDropout(config.summary_last_dropout)
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, first: Tensor) -> Tensor:
        """first [B, H]. Returns logits [B, K]."""
        return self.out(self.dropout(self.act(self.dense(first))))
