"""The head of a decoder that writes.

Shape legend: P places, H hidden size, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.config import Config


class Seq2SeqLmHead(nn.Module):
    """The word embeddings as decoder, and a constant for each word: 0 in all published files
    (transformers, ``final_logits_bias``).

    Attributes:
        vocabulary_tensors: what has a place for each word, and the dimension of it.
    """

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {"final_logits_bias": 1}
    final_logits_bias: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))

    def reset_parameters(self) -> None:
        """Set the constants to 0."""
        self.final_logits_bias.zero_()

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """hidden [P, H], decoder_weight [V, H]. Returns logits [P, V]."""
        logits = F.linear(hidden, decoder_weight)
        return logits + self.final_logits_bias.to(logits.dtype)
