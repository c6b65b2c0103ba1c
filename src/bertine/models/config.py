"""BertConfig: the architecture, under the names that config.json has on the Hugging Face hub."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from bertine.errors import BertineError


@dataclass(frozen=True)
class BertConfig:
    """Sizes and rates of a BERT (Devlin et al. 2018, section 3; defaults are bert-base-uncased).

    Raises:
        BertineError: a value is impossible (a size below 1, heads that do not divide the width).
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            if getattr(self, name) < 1:
                raise BertineError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.hidden_size % self.num_attention_heads:
            raise BertineError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise BertineError(f"{name} is {getattr(self, name)}, but must be in [0, 1)")

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def replace(self, **changes: Any) -> BertConfig:
        """A copy with `changes`; an unknown name is a :class:`TypeError`."""
        return dataclasses.replace(self, **changes)
