"""BertConfig: the architecture, under the names that config.json has on the Hugging Face hub."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from bertine.errors import BertineError

#: A size beyond this is a mistake, or means harm: a matrix of 10 million columns has 400 TB.
_LARGEST = 10**7
#: Each layer is some 30 objects of PyTorch, which take a millisecond and 30 kB however small the
#: layer is.
_MOST_LAYERS = 10_000


@dataclass(frozen=True)
class BertConfig:
    """Sizes and rates of a BERT (Devlin et al. 2018, section 3; defaults are bert-base-uncased).

    Raises:
        BertineError: a value is impossible (a size below 1 or beyond all reason, heads that do
            not divide the width, a rate outside [0, 1)).
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
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise BertineError(
                    f"{name} is {getattr(self, name)}, but must be between 1 and {_LARGEST:,}"
                )
        if self.num_hidden_layers > _MOST_LAYERS:
            raise BertineError(
                f"num_hidden_layers is {self.num_hidden_layers:,}, but at most {_MOST_LAYERS:,} "
                "can be built"
            )
        if self.hidden_size % self.num_attention_heads:
            raise BertineError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            rate = getattr(self, name)
            if rate is not None and not 0.0 <= rate < 1.0:  # NaN is not either
                raise BertineError(f"{name} is {rate}, but must be in [0, 1)")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise BertineError(f"{name} is {value}, but must be at least 0, and finite")
        if not 0 <= self.pad_token_id < self.vocab_size:
            raise BertineError(
                f"pad_token_id is {self.pad_token_id}, but must be in [0, vocab_size), which is "
                f"{self.vocab_size}"
            )

    @property
    def num_parameters(self) -> int:
        """Weights of the embeddings, the layers and the pooler, by their formula: nothing is
        built."""
        width, inner = self.hidden_size, self.intermediate_size
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
        pooler = width * width + width
        return rows * width + 2 * width + self.num_hidden_layers * layer + pooler

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def replace(self, **changes: Any) -> BertConfig:
        """A copy with `changes`; an unknown name is a :class:`TypeError`."""
        return dataclasses.replace(self, **changes)
