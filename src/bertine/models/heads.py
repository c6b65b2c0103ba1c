"""Heads: what turns a backbone's states into scores. Composed with any backbone, never subclassed.

Shape legend: B sequences, T tokens of the longest, P masked positions, H hidden size, V vocabulary
size, K labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.bert import init_weights
from bertine.models.config import BertConfig
from bertine.models.dropout import Dropout
from bertine.models.layers import activation


class MlmHead(nn.Module):
    """Masked-LM head: dense, activation, layer norm, then the word embeddings as decoder.

    The decoder's matrix is the backbone's word embedding (tied), so it is an argument, not a
    parameter; only its bias lives here (google-research/bert, ``get_masked_lm_output``).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.act = activation(config.hidden_act)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """hidden [P, H], decoder_weight [V, H]. Returns logits [P, V]."""
        hidden = self.layer_norm(self.act(self.dense(hidden)))
        return F.linear(hidden, decoder_weight, self.bias)


class NspHead(nn.Module):
    """Next-sentence head on the pooled output; label 0 is "next", 1 is "random"."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, 2)
        init_weights(self, config.initializer_range)

    def forward(self, pooled: Tensor) -> Tensor:
        """pooled [B, H]. Returns logits [B, 2]."""
        return self.dense(pooled)


class SpanHead(nn.Module):
    """One linear layer on every token: its score as the first and as the last of the answer (paper,
    section 4.2; ``BertForQuestionAnswering``). Without dropout, as in the published code."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.out = nn.Linear(config.hidden_size, 2)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [B, T, H]. Returns logits [B, T, 2], of start and end."""
        return self.out(hidden)


class ClassificationHead(nn.Module):
    """Dropout and one linear layer on the pooled output (paper, section 4.1)."""

    def __init__(self, config: BertConfig, num_labels: int) -> None:
        super().__init__()
        p = config.classifier_dropout
        self.dropout = Dropout(config.hidden_dropout_prob if p is None else p)
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, pooled: Tensor) -> Tensor:
        """pooled [B, H]. Returns logits [B, K]."""
        return self.out(self.dropout(pooled))
