"""Define Config: the sizes and rates of an encoder, under the names in BERT's config.json.

Configs of all model types use these names in memory; `bertine.families` maps them to the keys in
the files of other types.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from bertine.core.errors import BertineError

#: A size beyond this is a mistake, or means harm: a matrix of 10 million columns has 400 TB.
LARGEST = 10**7
#: Each layer is some 30 objects of PyTorch, which take a millisecond and 30 kB even for a tiny
#: layer.
MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Config:
    """Sizes and rates of a transformer encoder; one subclass for each model type. The type's
    :class:`bertine.models.family.Family` says what is built from them.

    Attributes:
        model_type: the name of the type in config.json.
        title: the name of the type in messages.
        token_types: whether it has token types; without, ``type_vocab_size`` is 0.
        reads_forward: whether a token's states know nothing of what stands behind it.
        reads_last: whether classifiers read the last token, in transformers the last place: it is
            to pad texts on the left.
        encodes_and_decodes: whether the states are those of a decoder, which reads a text of its
            own beside the one that is encoded.
        writes_with: the head that scores the next token of a text that it writes; "": it writes
            none.
        positions: how it knows the order of tokens, where it has no table of positions.
        task_lm_weight: how much guessing the next token of its inputs counts in fine-tuning,
            beside the task; 0: models of this type do not guess there.

    Raises:
        BertineError: a value is impossible (a size below 1 or beyond all reason, heads that do
            not divide the width, a rate outside [0, 1)).
    """

    model_type: ClassVar[str]
    title: ClassVar[str]
    token_types: ClassVar[bool] = True
    reads_forward: ClassVar[bool] = False
    reads_last: ClassVar[bool] = False
    encodes_and_decodes: ClassVar[bool] = False
    writes_with: ClassVar[str] = ""
    positions: ClassVar[str] = ""
    task_lm_weight: ClassVar[float] = 0.0

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

    @property
    def paper_family(self) -> str:
        """The name of the models whose paper says how to fine-tune this one."""
        return self.title

    def __post_init__(self) -> None:
        self._check_sizes(
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            *(("type_vocab_size",) if self.token_types else ()),
        )
        if not self.token_types and self.type_vocab_size:
            raise BertineError(
                f"type_vocab_size is {self.type_vocab_size}, but {self.title} has no token types"
            )
        if self.num_hidden_layers > MOST_LAYERS:
            raise BertineError(
                f"num_hidden_layers is {self.num_hidden_layers:,}, but at most {MOST_LAYERS:,} "
                "can be built"
            )
        if self.attention_width % self.num_attention_heads:
            raise BertineError(
                f"{self.attention_field} {self.attention_width} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        for name, value in self.to_dict().items():
            if value is None:
                continue
            if "dropout" in name and not 0.0 <= value < 1.0:  # NaN is not either
                raise BertineError(f"{name} is {value}, but must be in [0, 1)")
            if name.endswith("_token_id") and not 0 <= value < self.vocab_size:
                raise BertineError(
                    f"{name} is {value}, but must be in [0, vocab_size), which is {self.vocab_size}"
                )
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise BertineError(f"{name} is {value}, but must be at least 0, and finite")

    def _check_sizes(self, *names: str) -> None:
        """Refuse a size below 1, or above :data:`LARGEST`, in one of the fields `names`."""
        for name in names:
            if not 1 <= getattr(self, name) <= LARGEST:
                raise BertineError(
                    f"{name} is {getattr(self, name)}, but must be between 1 and {LARGEST:,}"
                )

    @property
    def first_position(self) -> int:
        """The row of the position embeddings for the first token of a sequence."""
        return 0

    @property
    def last_token_id(self) -> int | None:
        """The id of the token that ends texts, if the model looks for it."""
        return None

    @property
    def forced_tokens(self) -> tuple[int | None, int | None]:
        """The ids that every written text begins with, and that one of the greatest length ends
        with; None: the model chooses."""
        return None, None

    @property
    def longest_input(self) -> int:
        """The most tokens of a sequence, special tokens included."""
        return self.max_position_embeddings - self.first_position

    @property
    def num_segments(self) -> int:
        """The most texts of one input that the model can distinguish: 2 in variants where
        separators, not types, mark them."""
        return self.type_vocab_size

    @property
    def num_segment_ids(self) -> int:
        """How many different segments (token types) the tokens of an input may have: one for each
        text, and in some variants others for special tokens."""
        return self.num_segments

    @property
    def embedding_width(self) -> int:
        """The width of the embeddings, and of the MLM head's decoder. Variants override it where it
        may differ from the width of the states (``embedding_size``)."""
        return self.hidden_size

    @property
    def projects_embeddings(self) -> bool:
        """Whether a linear layer lies between the embeddings and the layers."""
        return self.embedding_width != self.hidden_size

    @property
    def layer_counts(self) -> Mapping[str, int]:
        """The fields that count the layers with weights of their own, with their values; if there
        are several (groups of layers), the outermost first, and the number of layers is their
        product."""
        return {"num_hidden_layers": self.num_hidden_layers}

    @property
    def passes(self) -> Sequence[int]:
        """The numbers of the layers that a token passes, in order. Variants with shared weights
        have some of them several times."""
        return range(self.num_hidden_layers)

    @property
    def decoder_passes(self) -> int:
        """How many of the last :attr:`passes` are a decoder's, which ``num_hidden_layers`` does not
        count."""
        return 0

    @property
    def tied_modules(self) -> Mapping[str, str]:
        """The modules of layers that belong to an earlier layer: names within the backbone, such as
        ``layers.3.up``, and the names of their owners."""
        return {}

    @property
    def shares_layers(self) -> bool:
        """Whether a token uses any layer weights more than once."""
        return len(set(self.passes)) < len(self.passes) or bool(self.tied_modules)

    def with_layer_on_top(self) -> Self:
        """Return the config of a model with one more layer."""
        return self.replace(num_hidden_layers=self.num_hidden_layers + 1)

    @property
    def has_pooler(self) -> bool:
        """Whether a bare backbone has a pooler: a dense layer that makes the pooled output."""
        return True

    @property
    def num_parameters(self) -> int:
        """The number of weights of a bare backbone by formula, without building it: embeddings,
        layers, and the pooler if there is one."""
        width, inner, embedded = self.hidden_size, self.intermediate_size, self.embedding_width
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        projection = embedded * width + width if self.projects_embeddings else 0
        layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
        pooler = width * width + width if self.has_pooler else 0
        layers = math.prod(self.layer_counts.values())
        return rows * embedded + 2 * embedded + projection + layers * layer + pooler

    @property
    def attention_field(self) -> str:
        """The field that holds the joint width of all attention heads."""
        return "hidden_size"

    @property
    def attention_width(self) -> int:
        """The joint width of all attention heads."""
        width: int = getattr(self, self.attention_field)
        return width

    @property
    def head_size(self) -> int:
        """The width of an attention head."""
        return self.attention_width // self.num_attention_heads

    @classmethod
    def of_size(cls, num_hidden_layers: int, hidden_size: int, **changes: Any) -> Self:
        """Return a config of this size with the defaults except for `changes`: a head for every 64
        hidden units, and feed-forward layers four times as wide as these."""
        usual = {"num_attention_heads": hidden_size // 64, "intermediate_size": 4 * hidden_size}
        sizes = {"num_hidden_layers": num_hidden_layers, "hidden_size": hidden_size}
        return cls(**{**usual, **sizes, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dataclasses.asdict(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`; an unknown name raises :class:`TypeError`."""
        return dataclasses.replace(self, **changes)

    def with_layers(self, count: int) -> Self:
        """Return a copy with `count` layers."""
        return self.replace(num_hidden_layers=count)

    def for_vocabulary(self, size: int, *, pad: int, first: int | None, last: int | None) -> Self:
        """Return a copy for a vocabulary of `size` tokens, with the ids of its special tokens that
        configs hold: the padding, and those before and after a text."""
        return self.replace(vocab_size=size, pad_token_id=pad)

    def with_dropout(self, p: float | None) -> Self:
        """Return a copy with this dropout on hidden states and attention; None: no change."""
        if p is None:
            return self
        return self.replace(hidden_dropout_prob=p, attention_probs_dropout_prob=p)
