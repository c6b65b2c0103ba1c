"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108): half of BERT's layers, without token types and
without a pooler (section 3), and a classifier with a dense layer of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from bertine.models.config import Config
from bertine.models.dropout import StreamDropout
from bertine.models.encoder import Encoder
from bertine.models.heads import HEADS, HeadKind, SpanHead
from bertine.models.initial import init_weights


class ReluClassificationHead(nn.Module):
    """Score the state of the first token: dense, ReLU, dropout, linear (the published code)."""

    def __init__(self, config: DistilBertConfig, num_labels: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = F.relu
        self.dropout = StreamDropout(config.seq_classif_dropout)
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, first: Tensor) -> Tensor:
        """first [B, H]. Returns logits [B, K]."""
        return self.out(self.dropout(self.act(self.dense(first))))


class DropoutSpanHead(SpanHead):
    """Dropout, and then what BERT's head does (the published code)."""

    def __init__(self, config: DistilBertConfig) -> None:
        super().__init__(config)
        self.dropout = StreamDropout(config.qa_dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [B, T, H]. Returns logits [B, T, 2], of start and end."""
        return super().forward(self.dropout(hidden))


@dataclass(frozen=True)
class DistilBertConfig(Config):
    """Sizes and rates of a DistilBERT (the published code; defaults are distilbert-base-uncased).

    Attributes:
        seq_classif_dropout: before the last layer of classifiers of texts and of choices.
        qa_dropout: before the layer that scores spans.
    """

    model_type: ClassVar[str] = "distilbert"
    title: ClassVar[str] = "DistilBERT"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        **{name: kind for name, kind in HEADS.items() if name != "nsp"},
        "classifier": replace(HEADS["classifier"], reads="first", new=ReluClassificationHead),
        "choice": replace(HEADS["choice"], reads="first", new=ReluClassificationHead),
        "spans": replace(HEADS["spans"], new=lambda config, _: DropoutSpanHead(config)),
    }
    token_types: ClassVar[bool] = False

    num_hidden_layers: int = 6
    type_vocab_size: int = 0
    seq_classif_dropout: float = 0.2
    qa_dropout: float = 0.1

    @property
    def num_segments(self) -> int:
        """Two: their separators tell the texts of a pair apart."""
        return 2

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Return False: there is none."""
        return False

    def new_backbone(self, pooler: bool) -> Encoder:
        return Encoder(self, pooler)


#: Preset → architecture (section 3 of the paper, the published file).
PRESETS: Mapping[str, DistilBertConfig] = {"distilbert-base": DistilBertConfig()}
