"""OpenAI's first GPT (Radford et al. 2018, "Improving Language Understanding by Generative
Pre-Training"): its sizes and its heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from bertine.errors import BertineError
from bertine.models.causal.backbone import CausalBackbone
from bertine.models.causal.heads import LinearHead, LmHead
from bertine.models.config import Config
from bertine.models.heads import HEADS, ClassificationHead, HeadKind

#: What the published code's activations are called here: its "gelu" is the form with tanh
#: (``train.py: gelu``).
ACTIVATIONS = ("gelu_new", "relu", "silu")


@dataclass(frozen=True)
class OpenAIGPTConfig(Config):
    """Sizes and rates of a GPT (section 4.1 of the paper; defaults are the published model).

    A token looks at itself and at those before it, and there is no norm behind the embeddings
    (``train.py: model``, ``block``). The published code's classifier has a bias, transformers' and
    this one have none.

    Attributes:
        embedding_dropout: behind the embeddings.

    Raises:
        BertineError: besides what every config refuses, a feed-forward that is not four times as
            wide as the states, or an activation that there is not.
    """

    model_type: ClassVar[str] = "openai-gpt"
    title: ClassVar[str] = "GPT-1"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        "lm": HeadKind("rows", lambda *_: LmHead(), "LM head", "LMHeadModel", tied=True),
        # The backbone pools the last token.
        "classifier": replace(HEADS["classifier"], new=LinearHead),
        "spans": replace(HEADS["spans"], published=False),
        "choice": replace(HEADS["choice"], new=ClassificationHead, suffix="DoubleHeadsModel"),
    }
    token_types: ClassVar[bool] = False
    reads_forward: ClassVar[bool] = True
    writes_with: ClassVar[str] = "lm"
    task_lm_weight: ClassVar[float] = 0.5  # section 4.1, "λ was set to 0.5"

    vocab_size: int = 40478
    hidden_act: str = "gelu_new"
    classifier_dropout: float = 0.1
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    embedding_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intermediate_size != 4 * self.hidden_size:
            raise BertineError(
                f"intermediate_size is {self.intermediate_size}, but must be four times "
                f"hidden_size, {4 * self.hidden_size}"
            )
        if self.hidden_act not in ACTIVATIONS:
            raise BertineError(
                f"hidden_act is {self.hidden_act!r}, but {self.title} has only "
                f"{', '.join(ACTIVATIONS)}"
            )
        if not 0.0 <= self.embedding_dropout < 1.0:
            raise BertineError(
                f"embedding_dropout is {self.embedding_dropout}, but must be in [0, 1)"
            )

    @property
    def num_segments(self) -> int:
        """Two: their separators tell the texts of a pair apart."""
        return 2

    @property
    def num_parameters(self) -> int:
        # There is no norm at the embeddings.
        return super().num_parameters - 2 * self.hidden_size

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Return False: what is pooled has no weights."""
        return False

    def new_backbone(self, pooler: bool) -> CausalBackbone:
        return CausalBackbone(self)

    def with_dropout(self, p: float | None) -> Self:
        changed = super().with_dropout(p)
        return changed if p is None else changed.replace(embedding_dropout=p)


def _small(num_hidden_layers: int, hidden_size: int) -> OpenAIGPTConfig:
    return OpenAIGPTConfig(
        vocab_size=30522,
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )


#: Preset → architecture: the published one, and three of ours with the layers and the width of
#: bert-tiny, -mini and -small, for a vocabulary as large as BERT's.
PRESETS: Mapping[str, OpenAIGPTConfig] = {
    "openai-gpt": OpenAIGPTConfig(),
    "gpt-tiny": _small(2, 128),
    "gpt-mini": _small(4, 256),
    "gpt-small": _small(4, 512),
}
