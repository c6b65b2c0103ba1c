"""BART (Lewis et al. 2019, arXiv 1910.13461): its sizes and its heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from bertine.errors import BertineError
from bertine.models.bart.backbone import BartBackbone
from bertine.models.bart.head import Seq2SeqLmHead
from bertine.models.config import MOST_LAYERS, Config
from bertine.models.heads import HEADS, PAIR_CLASSIFIER, VECTOR_CLASSIFIER, HeadKind
from bertine.models.roberta import DenseClassificationHead


@dataclass(frozen=True)
class BartConfig(Config):
    """Sizes and rates of a BART (section 2.1 of the paper; defaults are bart-large).

    BERT's layers in the encoder, and in the decoder the same with attention to the encoder's last
    states in the middle; one matrix of word embeddings for both. A task over whole inputs reads
    the decoder's state at the last end of a text (section 3.1). The fields without a prefix are the
    encoder's.

    Attributes:
        activation_dropout: behind the activation of each feed-forward.
        decoder_layers, decoder_attention_heads, decoder_ffn_dim: of the decoder.
        bos_token_id, eos_token_id: what texts begin and end with.
        decoder_start_token_id: what the decoder reads before the first token of a text.
        forced_bos_token_id: what a text that is written begins with in any case; None: what the
            model says.
        forced_eos_token_id: what a text as long as it may be ends with in any case; None: what the
            model says.

    Raises:
        BertineError: besides what every config refuses, heads that do not divide the width in the
            decoder, or the id of a special token that is not in the vocabulary.
    """

    model_type: ClassVar[str] = "bart"
    title: ClassVar[str] = "BART"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        "lm": HeadKind(
            "rows",
            lambda config, _: Seq2SeqLmHead(config),
            "LM head",
            "ForConditionalGeneration",
            tied=True,
        ),
        "spans": HEADS["spans"],
        "token_classifier": replace(HEADS["token_classifier"], published=False),
        "choice": replace(HEADS["choice"], published=False),
        # The backbone pools the state at the last end of a text.
        "classifier": replace(HEADS["classifier"], new=DenseClassificationHead),
        **{name: HEADS[name] for name in (VECTOR_CLASSIFIER, PAIR_CLASSIFIER)},
    }
    token_types: ClassVar[bool] = False
    encodes_and_decodes: ClassVar[bool] = True
    writes_with: ClassVar[str] = "lm"

    vocab_size: int = 50265
    hidden_size: int = 1024
    num_attention_heads: int = 16
    intermediate_size: int = 4096
    classifier_dropout: float | None = 0.0
    max_position_embeddings: int = 1024
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 1
    activation_dropout: float = 0.0
    decoder_layers: int = 12
    decoder_attention_heads: int = 16
    decoder_ffn_dim: int = 4096
    bos_token_id: int = 0
    eos_token_id: int = 2
    decoder_start_token_id: int = 2
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim")
        if self.decoder_layers > MOST_LAYERS:
            raise BertineError(
                f"decoder_layers is {self.decoder_layers:,}, but at most {MOST_LAYERS:,} can be "
                "built"
            )
        if self.hidden_size % self.decoder_attention_heads:
            raise BertineError(
                f"hidden_size {self.hidden_size} is not a multiple of decoder_attention_heads "
                f"{self.decoder_attention_heads}"
            )
        if not 0.0 <= self.activation_dropout < 1.0:
            raise BertineError(
                f"activation_dropout is {self.activation_dropout}, but must be in [0, 1)"
            )
        for name in (
            *("bos_token_id", "eos_token_id", "decoder_start_token_id"),
            *("forced_bos_token_id", "forced_eos_token_id"),
        ):
            value = getattr(self, name)
            if value is not None and not 0 <= value < self.vocab_size:
                raise BertineError(
                    f"{name} is {value}, but must be in [0, vocab_size), which is {self.vocab_size}"
                )

    @property
    def num_segments(self) -> int:
        """Two: their separators tell the texts of a pair apart."""
        return 2

    @property
    def passes(self) -> range:
        """The layers of the encoder, then those of the decoder."""
        return range(self.num_hidden_layers + self.decoder_layers)

    @property
    def decoder_passes(self) -> int:
        return self.decoder_layers

    @property
    def num_parameters(self) -> int:
        """Count the weights by their formula; positions have two rows more than there are places
        (fairseq, ``LearnedPositionalEmbedding``)."""
        width = self.hidden_size
        attention, norm = 4 * (width * width + width), 2 * width
        tables = (self.vocab_size + 2 * (self.max_position_embeddings + 2)) * width + 2 * norm
        encoder = attention + _feed_forward(width, self.intermediate_size) + 2 * norm
        decoder = 2 * attention + _feed_forward(width, self.decoder_ffn_dim) + 3 * norm
        return tables + self.num_hidden_layers * encoder + self.decoder_layers * decoder

    @property
    def last_token_id(self) -> int:
        return self.eos_token_id

    @property
    def forced_tokens(self) -> tuple[int | None, int | None]:
        return self.forced_bos_token_id, self.forced_eos_token_id

    def of_decoder(self) -> Self:
        """Return the config of an encoder with the sizes of the decoder."""
        return self.replace(
            num_attention_heads=self.decoder_attention_heads,
            intermediate_size=self.decoder_ffn_dim,
        )

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Return False: what is pooled has no weights."""
        return False

    def new_backbone(self, pooler: bool) -> BartBackbone:
        return BartBackbone(self)

    def with_dropout(self, p: float | None) -> Self:
        changed = super().with_dropout(p)
        return changed if p is None else changed.replace(activation_dropout=p)

    def for_vocabulary(self, size: int, *, pad: int, first: int | None, last: int | None) -> Self:
        if last is None:  # a vocabulary whose texts end with nothing keeps the usual ids
            return self.replace(vocab_size=size, pad_token_id=pad)
        return self.replace(
            vocab_size=size,
            pad_token_id=pad,
            bos_token_id=last if first is None else first,
            eos_token_id=last,
            decoder_start_token_id=last,
            forced_bos_token_id=None if self.forced_bos_token_id is None else first,
            forced_eos_token_id=None if self.forced_eos_token_id is None else last,
        )


def _feed_forward(width: int, inner: int) -> int:
    return 2 * width * inner + inner + width


def _sizes(layers: int, hidden_size: int, vocab_size: int = 50265) -> BartConfig:
    return BartConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden_size // 64),
        intermediate_size=4 * hidden_size,
        decoder_layers=layers,
        decoder_attention_heads=max(1, hidden_size // 64),
        decoder_ffn_dim=4 * hidden_size,
    )


#: Preset → architecture: the published ones (section 2.1), of which the smaller one has 12 heads of
#: 64 and the larger one 16, and three of ours, as wide as bert-tiny, -mini and -small and with as
#: many layers, half of them in the decoder, for a vocabulary as large as BERT's.
PRESETS: Mapping[str, BartConfig] = {
    "bart-base": _sizes(6, 768).replace(activation_dropout=0.1),
    "bart-large": _sizes(12, 1024).replace(activation_dropout=0.1),
    "bart-tiny": _sizes(1, 128, 30522),
    "bart-mini": _sizes(2, 256, 30522),
    "bart-small": _sizes(2, 512, 30522),
}
