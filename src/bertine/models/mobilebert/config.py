"""MobileBERT (Sun et al. 2020, arXiv 2004.02984) and IB-BERT, its teacher: layers that work at
another width than the states between them.

What differs from BERT, in the paper and in the published code (google-research,
``mobilebert/modeling.py``):

- A word's embedding is narrow: those of the next word, of the word and of the one before it, side
  by side, are projected to the width of the states ("embedding factorization").
- A linear layer leads into each layer's own width and another one out of it ("bottleneck"). Within,
  MobileBERT is narrow and its teacher wide, so that both have states of the same width between the
  layers, which the one can learn from the other.
- Several feed-forwards stand one on another, and in place of the layer norm may stand a scale and a
  shift of each element ("stacked feed-forward networks", "operational optimizations").
- The MLM head's decoder is as wide as the states: beside the word embeddings it has columns of its
  own (``run_pretraining.py``, ``extra_output_weights``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from bertine.errors import BertineError
from bertine.models.config import MOST_LAYERS, Config
from bertine.models.heads import HEADS, WITHOUT_POOLER, HeadKind
from bertine.models.mobilebert.backbone import MobileBert
from bertine.models.mobilebert.head import WideMlmHead


@dataclass(frozen=True)
class MobileBertConfig(Config):
    """Sizes and rates of a MobileBERT or an IB-BERT. The defaults are those of transformers' class;
    the published models are presets.

    Attributes:
        embedding_size: E.
        trigram_input: whether a token's neighbours are read with it.
        use_bottleneck: whether layers have a width of their own, ``intra_bottleneck_size``.
        intra_bottleneck_size: I, where they have.
        use_bottleneck_attention: whether queries, keys and values are all made of the layer's input
            at its own width.
        key_query_shared_bottleneck: whether queries and keys are made of a second projection of the
            layer's input, and values of the input itself. Without it all three are made of the
            input; under ``use_bottleneck_attention`` the projection is there, but not used.
        num_feedforward_networks: of a layer.
        normalization_type: "no_norm" or "layer_norm", but for the MLM head's.
        classifier_activation: whether the pooled output is made by dense and tanh; otherwise it is
            the first token's state.

    Raises:
        BertineError: as of :class:`bertine.models.config.Config`.
    """

    model_type: ClassVar[str] = "mobilebert"
    title: ClassVar[str] = "MobileBERT"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        **HEADS,
        "mlm": replace(HEADS["mlm"], new=lambda config, _: WideMlmHead(config)),
    }

    hidden_size: int = 512
    num_hidden_layers: int = 24
    num_attention_heads: int = 4
    intermediate_size: int = 512
    hidden_act: str = "relu"
    hidden_dropout_prob: float = 0.0
    embedding_size: int = 128
    trigram_input: bool = True
    use_bottleneck: bool = True
    intra_bottleneck_size: int = 128
    use_bottleneck_attention: bool = False
    key_query_shared_bottleneck: bool = True
    num_feedforward_networks: int = 4
    normalization_type: str = "no_norm"
    classifier_activation: bool = True

    def __post_init__(self) -> None:
        self._check_sizes("embedding_size", "intra_bottleneck_size", "num_feedforward_networks")
        super().__post_init__()
        if self.embedding_size > self.hidden_size:
            raise BertineError(
                f"embedding_size is {self.embedding_size}, but must be at most hidden_size, which "
                f"is {self.hidden_size}"
            )
        if self.num_hidden_layers * self.num_feedforward_networks > MOST_LAYERS:
            raise BertineError(
                f"num_feedforward_networks is {self.num_feedforward_networks:,} in each of "
                f"{self.num_hidden_layers:,} layers, but at most {MOST_LAYERS:,} together can be "
                "built"
            )
        if self.normalization_type not in ("no_norm", "layer_norm"):
            raise BertineError(
                f"normalization_type is {self.normalization_type!r}, but must be no_norm or "
                "layer_norm"
            )

    @property
    def attention_field(self) -> str:
        return "intra_bottleneck_size" if self.use_bottleneck else "hidden_size"

    @property
    def embedding_width(self) -> int:
        return self.embedding_size

    @property
    def embedded_width(self) -> int:
        """The width of what is projected to the states: E, or of three neighbours 3 E."""
        return self.embedding_size * (3 if self.trigram_input else 1)

    @property
    def projects_embeddings(self) -> bool:
        return self.embedded_width != self.hidden_size or self.trigram_input

    @property
    def query_width(self) -> int:
        """The width of what queries and keys are made of. (transformers gives the layer the width
        I here always, so where queries are made of the states it computes but models of I = H.)"""
        projected = self.use_bottleneck_attention or self.key_query_shared_bottleneck
        return self.attention_width if projected else self.hidden_size

    @property
    def value_width(self) -> int:
        """The width of what values are made of."""
        return self.attention_width if self.use_bottleneck_attention else self.hidden_size

    @property
    def num_parameters(self) -> int:
        width, inner, feed = self.hidden_size, self.attention_width, self.intermediate_size
        rows = self.max_position_embeddings + self.type_vocab_size
        words = self.vocab_size * self.embedding_size
        embeddings = words + (rows + self.embedded_width + 3) * width
        projected = 2 * self.query_width + self.value_width + inner + 4  # with their biases
        layer = projected * inner + 2 * inner
        layer += self.num_feedforward_networks * (2 * inner * feed + feed + 3 * inner)
        if self.use_bottleneck:
            entering = (width + 3) * inner
            layer += entering * (2 if self.key_query_shared_bottleneck else 1)
            layer += (inner + 3) * width
        pooler = width * width + width if self.needs_pooler(()) else 0
        return embeddings + self.num_hidden_layers * layer + pooler

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Tell whether a model with these heads gets a pooler: as of BERT, but none does where the
        pooled output is the first token's state."""
        names = set(heads)
        reads = not names or not names <= WITHOUT_POOLER
        return self.classifier_activation and reads

    def new_backbone(self, pooler: bool) -> MobileBert:
        return MobileBert(self, pooler)


_MOBILE = MobileBertConfig(classifier_activation=False)

#: Preset → architecture, as in the files beside the published code (``mobilebert/config``): the
#: released MobileBERT, its smaller version, and the teacher, whose "gelu" is the form with tanh.
#: What a file there does not say is that program's default, which is not transformers'.
PRESETS: Mapping[str, MobileBertConfig] = {
    "mobilebert-uncased": _MOBILE,
    "mobilebert-tiny": _MOBILE.replace(
        use_bottleneck_attention=True,
        key_query_shared_bottleneck=False,
        num_feedforward_networks=2,
    ),
    "ib-bert-large": MobileBertConfig(
        intermediate_size=4096,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.1,
        intra_bottleneck_size=1024,
        key_query_shared_bottleneck=False,
        num_feedforward_networks=1,
        normalization_type="layer_norm",
    ),
}
