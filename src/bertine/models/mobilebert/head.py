"""The head of MobileBERT that fills masks.

Shape legend: P places, H hidden size, E width of the word embeddings, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.heads import MlmHead
from bertine.models.initial import init_weights

if TYPE_CHECKING:
    from bertine.models.mobilebert.config import MobileBertConfig


class WideMlmHead(MlmHead):
    """The masked-LM head with a decoder as wide as the states: the word embeddings, and columns of
    its own beside them."""

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {"bias": 0, "extra.weight": 1}

    def __init__(self, config: MobileBertConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.dense = nn.Linear(size, size)
        self.layer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        # [H - E, V], as the published files have it.
        columns = size - config.embedding_size
        self.extra = nn.utils.skip_init(nn.Linear, config.vocab_size, columns, bias=False)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """hidden [P, H], decoder_weight [V, E]. Returns logits [P, V]."""
        hidden = self.layer_norm(self.act(self.dense(hidden)))
        width = decoder_weight.shape[1]
        logits = F.linear(hidden[:, :width], decoder_weight, self.bias)
        return torch.addmm(logits, hidden[:, width:], self.extra.weight)
