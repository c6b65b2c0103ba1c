"""XLNet (Yang et al. 2019, arXiv 1906.08237): BERT's layers with relative positions, relative
segments and a memory (those of Transformer-XL, Dai et al. 2019, arXiv 1901.02860), trained to guess
words in any order.

What differs from BERT, in the paper and in the published code (zihangdai/xlnet, ``modeling.py``):

- Neither positions nor token types among the embeddings, no norm behind them, and no biases in the
  products of the attention (``attention.py``).
- A sequence is ``A <sep> B <sep> <cls>``: what stands for the whole is its last token. Classifiers
  have a dense layer with tanh of their own, and there is no pooler.
- Dropout within the feed-forward and behind the last layer too.
- Pre-training has a second stream of states, for the places that are guessed (``backbone.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from bertine.errors import BertineError
from bertine.models.config import LARGEST, Config
from bertine.models.heads import HEADS, HeadKind
from bertine.models.xlnet.backbone import SEGMENTS, XlnetBackbone
from bertine.models.xlnet.heads import LastTokenHead, PermutationLmHead


@dataclass(frozen=True)
class XlnetConfig(Config):
    """Sizes and rates of an XLNet; the defaults are those of xlnet-base-cased.

    Attributes:
        clamp_len: offsets between tokens beyond it count as this one; below 1: all are told apart.

    ``max_position_embeddings`` is the longest input here, as in pre-training; there are no
    embeddings of positions, and any number may stand in its place. Its ``hidden_act`` is the form
    with tanh, which the published code calls "gelu".

    Raises:
        BertineError: as of :class:`bertine.models.config.Config`, and an odd width.
    """

    model_type: ClassVar[str] = "xlnet"
    title: ClassVar[str] = "XLNet"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        "plm": HeadKind(
            "rows",
            lambda config, _: PermutationLmHead(config),
            "permutation LM head",
            "LMHeadModel",
            tied=True,
        ),
        # The backbone pools the last token.
        "classifier": replace(HEADS["classifier"], new=LastTokenHead),
        "spans": replace(HEADS["spans"], suffix="ForQuestionAnsweringSimple"),
        "token_classifier": HEADS["token_classifier"],
        "choice": replace(HEADS["choice"], new=LastTokenHead),
    }
    token_types: ClassVar[bool] = False
    reads_last: ClassVar[bool] = True

    vocab_size: int = 32000
    hidden_act: str = "gelu_new"
    classifier_dropout: float = 0.1
    type_vocab_size: int = 0
    pad_token_id: int = 5
    clamp_len: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % 2:
            raise BertineError(
                f"hidden_size is {self.hidden_size}, but must be even: half of it are the sines of "
                "positions, and half the cosines"
            )
        if self.clamp_len > LARGEST:
            raise BertineError(f"clamp_len is {self.clamp_len}, but must be at most {LARGEST:,}")

    @property
    def num_segments(self) -> int:
        """Two: the attention asks whether two tokens are of one text."""
        return 2

    @property
    def num_segment_ids(self) -> int:
        """Three: the last token is of neither text."""
        return SEGMENTS

    @property
    def num_parameters(self) -> int:
        width, inner = self.hidden_size, self.intermediate_size
        attention = 5 * width * width + 5 * width
        layer = attention + 2 * width * inner + inner + width + 4 * width
        return (self.vocab_size + 1) * width + self.num_hidden_layers * layer

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Return False: what is pooled has no weights."""
        return False

    def new_backbone(self, pooler: bool) -> XlnetBackbone:
        return XlnetBackbone(self)


def _own(num_hidden_layers: int, hidden_size: int) -> XlnetConfig:
    return XlnetConfig(
        vocab_size=30522,
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )


#: Preset → architecture: the published ones, and three of ours with the layers and the width of
#: bert-tiny, -mini and -small, for a vocabulary as large as BERT's.
PRESETS: Mapping[str, XlnetConfig] = {
    "xlnet-base-cased": XlnetConfig(),
    "xlnet-large-cased": XlnetConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
    "xlnet-tiny": _own(2, 128),
    "xlnet-mini": _own(4, 256),
    "xlnet-small": _own(4, 512),
}
