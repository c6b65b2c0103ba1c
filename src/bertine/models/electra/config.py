"""ELECTRA (Clark et al. 2020, arXiv 2003.10555): BERT's encoder with embeddings of another width
and no pooler, trained to detect the tokens that a small masked language model has put in a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.electra.generator import Generator
from bertine.models.electra.heads import (
    GeluClassificationHead,
    ReplacedTokenHead,
    SummaryHead,
)
from bertine.models.encoder import Encoder
from bertine.models.heads import HEADS, HeadKind, MlmHead


def _new_generator(config: ElectraConfig, _: int, sizes: ElectraConfig | None = None) -> Generator:
    return Generator(config.generator() if sizes is None else sizes)


@dataclass(frozen=True)
class ElectraConfig(Config):
    """Sizes and rates of an ELECTRA, discriminator or generator (the published code; the defaults
    are transformers', which are the small size).

    Attributes:
        embedding_size: the width of the embeddings; where it is not that of the layers, a linear
            layer stands between them.
        summary_last_dropout: before the last layer of multiple choice.
    """

    model_type: ClassVar[str] = "electra"
    title: ClassVar[str] = "ELECTRA"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        "rtd": HeadKind(
            "tokens",
            lambda config, _: ReplacedTokenHead(config),
            "replaced-token head",
            "ForPreTraining",
            partner="generator",
        ),
        **{name: kind for name, kind in HEADS.items() if name != "nsp"},
        # Its activation does not follow `hidden_act`.
        "mlm": replace(HEADS["mlm"], new=lambda config, _: MlmHead(config, "gelu")),
        "classifier": replace(HEADS["classifier"], reads="first", new=GeluClassificationHead),
        "choice": replace(HEADS["choice"], reads="first", new=SummaryHead),
        "generator": HeadKind("inputs", _new_generator, "generator", "ForMaskedLM", tied=True),
    }

    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    embedding_size: int = 128
    summary_last_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes("embedding_size")
        if not 0.0 <= self.summary_last_dropout < 1.0:
            raise BertineError(
                f"summary_last_dropout is {self.summary_last_dropout}, but must be in [0, 1)"
            )

    @property
    def paper_family(self) -> str:
        """ELECTRA-Small, -Base or -Large, by the width."""
        widths = {256: "Small", 768: "Base"}
        return f"ELECTRA-{next((n for w, n in widths.items() if self.hidden_size <= w), 'Large')}"

    @property
    def embedding_width(self) -> int:
        """The width of the embeddings."""
        return self.embedding_size

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Return False: there is none."""
        return False

    def new_backbone(self, pooler: bool) -> Encoder:
        return Encoder(self, pooler)

    def generator(self, size: float = 0.25, layers: float = 1.0) -> ElectraConfig:
        """Return the sizes of a generator for this discriminator (``get_generator_config`` of the
        published code): as wide as the share `size` of it says, heads as large as here, a
        feed-forward layer as many times as wide as the states, the same embeddings.

        Args:
            size: of the width; the paper's are 1/4 for small and large and 1/3 for base (table 6).
            layers: of the number of layers; all of them in the paper.
        """
        width = max(1, round(self.hidden_size * size))
        heads = max(1, width // self.head_size)
        while width % heads:
            heads -= 1
        return self.replace(
            hidden_size=width,
            num_hidden_layers=max(1, round(self.num_hidden_layers * layers)),
            num_attention_heads=heads,
            intermediate_size=max(1, round(width * self.intermediate_size / self.hidden_size)),
        )


def _sizes(num_hidden_layers: int, hidden_size: int, embedding_size: int) -> ElectraConfig:
    return ElectraConfig(
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        embedding_size=embedding_size,
    )


#: Preset → architecture of the discriminator (table 6 of the paper; ``configure_pretraining.py``).
PRESETS: Mapping[str, ElectraConfig] = {
    "electra-small": _sizes(12, 256, 128),
    "electra-base": _sizes(12, 768, 768),
    "electra-large": _sizes(24, 1024, 1024),
}
