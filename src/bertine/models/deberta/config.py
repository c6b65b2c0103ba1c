"""DeBERTa-v3 (He et al. 2021, arXiv 2111.09543): BERT's layers with disentangled attention (He et
al. 2020, arXiv 2006.03654) in place of positions among the embeddings.

What differs from BERT, in the papers and in the published code (microsoft/DeBERTa):

- Neither positions nor token types among the embeddings.
- Each pair of tokens looks for content and for relative position, which are apart
  (``attention.py``); far positions share a row ("log buckets", ``positions.py``). All layers read
  one table of them through one layer norm.
- No pooler. The classifiers have a dense layer with gelu of their own before the last one
  (``ContextPooler``).

The convolution of DeBERTa-v2, absolute positions and other combinations of attention, which
published models of version 3 do not have, are not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from bertine.errors import BertineError
from bertine.models.config import LARGEST, Config
from bertine.models.deberta.backbone import DebertaEncoder
from bertine.models.dropout import StreamDropout
from bertine.models.heads import HEADS, HeadKind
from bertine.models.initial import init_weights
from bertine.models.layers import ACTIVATIONS, activation


class ContextClassificationHead(nn.Module):
    """Score the state of the first token: dropout, dense, an activation, dropout, linear
    (microsoft/DeBERTa, ``ContextPooler``)."""

    def __init__(self, config: DebertaConfig, num_labels: int) -> None:
        super().__init__()
        p = config.classifier_dropout
        self.pooler_dropout = StreamDropout(config.pooler_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = activation(config.pooler_hidden_act)
        self.dropout = StreamDropout(config.hidden_dropout_prob if p is None else p)
        self.out = nn.Linear(config.hidden_size, num_labels)
        init_weights(self, config.initializer_range)

    def forward(self, first: Tensor) -> Tensor:
        """first [B, H]. Returns logits [B, K]."""
        pooled = self.act(self.dense(self.pooler_dropout(first)))
        return self.out(self.dropout(pooled))


@dataclass(frozen=True)
class DebertaConfig(Config):
    """Sizes and rates of a DeBERTa-v3; deberta-v3-base is a preset.

    Attributes:
        position_buckets: of relative positions to either side; below 1: none, each offset has a
            row.
        max_relative_positions: the offset that is not reached; below 1: as
            ``max_position_embeddings``.
        pooler_dropout: before the dense layer of classifiers of texts and of choices.
        pooler_hidden_act: behind it.

    Raises:
        BertineError: as of :class:`bertine.models.config.Config`.
    """

    model_type: ClassVar[str] = "deberta-v2"
    title: ClassVar[str] = "DeBERTa"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        **{name: kind for name, kind in HEADS.items() if name != "nsp"},
        "classifier": replace(HEADS["classifier"], reads="first", new=ContextClassificationHead),
        "choice": replace(HEADS["choice"], reads="first", new=ContextClassificationHead),
    }
    token_types: ClassVar[bool] = False

    vocab_size: int = 128100
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    position_buckets: int = -1
    max_relative_positions: int = -1
    pooler_dropout: float = 0.0
    pooler_hidden_act: str = "gelu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooler_hidden_act not in ACTIVATIONS:
            raise BertineError(
                f"pooler_hidden_act is {self.pooler_hidden_act!r}, but must be one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        for name in ("position_buckets", "max_relative_positions"):
            if getattr(self, name) > LARGEST:
                raise BertineError(
                    f"{name} is {getattr(self, name)}, but must be at most {LARGEST:,}"
                )
        if not 0.0 <= self.pooler_dropout < 1.0:
            raise BertineError(f"pooler_dropout is {self.pooler_dropout}, but must be in [0, 1)")
        half = self.position_buckets // 2
        if half < 1 <= self.position_buckets:
            raise BertineError("position_buckets is 1, but must be at least 2, or below 1 for none")
        if self.position_buckets > 0 and self.longest_offset <= half + 1 < self.longest_input:
            raise BertineError(
                f"max_relative_positions is {self.longest_offset}, but must be more than half of "
                f"position_buckets, {half}, and one"
            )

    @property
    def longest_offset(self) -> int:
        """The offset that is not reached."""
        least = self.max_relative_positions
        return least if least > 0 else self.max_position_embeddings

    @property
    def span(self) -> int:
        """S: the table of relative positions has 2 S rows."""
        return self.position_buckets if self.position_buckets > 0 else self.longest_offset

    @property
    def num_segments(self) -> int:
        """Two: their separators tell the texts of a pair apart."""
        return 2

    @property
    def num_parameters(self) -> int:
        width, inner = self.hidden_size, self.intermediate_size
        rows = self.vocab_size + 2 + 2 * self.span + 2
        layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
        return rows * width + self.num_hidden_layers * layer

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Return False: there is none."""
        return False

    def new_backbone(self, pooler: bool) -> DebertaEncoder:
        return DebertaEncoder(self)


def _sizes(num_hidden_layers: int, hidden_size: int) -> DebertaConfig:
    return DebertaConfig(
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        position_buckets=256,
    )


#: Preset → architecture (the published files).
PRESETS: Mapping[str, DebertaConfig] = {
    "deberta-v3-xsmall": _sizes(12, 384),
    "deberta-v3-small": _sizes(6, 768),
    "deberta-v3-base": _sizes(12, 768),
}
