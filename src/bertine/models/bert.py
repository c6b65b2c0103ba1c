"""BERT (Devlin et al. 2018, arXiv 1810.04805): its config and its published sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from bertine.models.config import Config
from bertine.models.encoder import Encoder
from bertine.models.heads import HEADS, WITHOUT_POOLER, HeadKind


@dataclass(frozen=True)
class BertConfig(Config):
    """Sizes and rates of a BERT (section 3 of the paper; defaults are bert-base-uncased)."""

    model_type: ClassVar[str] = "bert"
    title: ClassVar[str] = "BERT"
    heads: ClassVar[Mapping[str, HeadKind]] = HEADS

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Tell whether a model with these heads gets a pooler: all do but those whose heads read
        nothing but tokens or vectors. Also a model that is pre-trained without next sentences keeps
        it, since fine-tuning reads it and every reader of BERT expects it."""
        names = set(heads)
        return not names or not names <= WITHOUT_POOLER

    def new_backbone(self, pooler: bool) -> Encoder:
        return Encoder(self, pooler)


def _sizes(num_hidden_layers: int, hidden_size: int) -> BertConfig:
    return BertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )


#: Preset → architecture. bert-base and bert-large are those of the paper (section 3); the smaller
#: ones are those of Turc et al. 2019 (arXiv 1908.08962), as published beside the original code.
#: Every one has a head for each 64 hidden units and a feed-forward layer four times as wide as the
#: hidden one. The vocabulary is the published English uncased one's size.
PRESETS: Mapping[str, BertConfig] = {
    "bert-tiny": _sizes(2, 128),
    "bert-mini": _sizes(4, 256),
    "bert-small": _sizes(4, 512),
    "bert-medium": _sizes(8, 512),
    "bert-base": _sizes(12, 768),
    "bert-large": _sizes(24, 1024),
}
