"""ModernBERT (Warner et al. 2024, arXiv 2412.13663): rotary positions, layers that look at all
tokens and layers that look around them in turn, gated feed-forwards, the norm before each part, no
biases (section 2.1); its config, its published sizes, and small ones of our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.heads import HEADS, HeadKind
from bertine.models.layers import ACTIVATIONS
from bertine.models.modern.encoder import ModernEncoder
from bertine.models.modern.heads import LINEAR, ModernHead, ModernMlmHead

#: How ``layer_types`` of config.json calls the two kinds of attention.
GLOBAL, LOCAL = "full_attention", "sliding_attention"
POOLINGS = ("cls", "mean")


@dataclass(frozen=True)
class ModernBertConfig(Config):
    """Sizes and rates of a ModernBERT (table 4 of the paper; defaults are ModernBERT-base).

    There is no table of positions: ``max_position_embeddings`` is the longest input that the model
    was made for. ``hidden_dropout_prob`` is the rate inside the feed-forwards,
    ``attention_probs_dropout_prob`` that of attention and of what comes out of it.

    Attributes:
        embedding_dropout: behind the embeddings.
        attention_bias, mlp_bias, norm_bias: whether the products and norms of the layers have
            biases; `norm_bias` is for the heads' norms too.
        decoder_bias, classifier_bias: whether the decoder of the MLM head and the dense layer of
            the heads have biases.
        classifier_pooling: what classifiers of texts and of choices read: the state of the first
            token ("cls"), or the mean over real tokens ("mean").
        classifier_activation: of the heads.
        local_attention: how many tokens a local layer looks at, half of them to either side; the
            token itself comes on top.
        global_attn_every_n_layers: layers 0, n, 2n, … look at all tokens.
        layer_types: for each layer :data:`GLOBAL` or :data:`LOCAL`, at least as many as there are
            layers; None: as `global_attn_every_n_layers` says.
        global_rope_theta, local_rope_theta: the base of the rotations' wavelengths.

    Raises:
        BertineError: besides what every config refuses, heads of an odd size, which cannot be
            rotated; a pooling, an activation or a layer type that there is not.
    """

    model_type: ClassVar[str] = "modernbert"
    title: ClassVar[str] = "ModernBERT"
    heads: ClassVar[Mapping[str, HeadKind]] = {
        **{name: kind for name, kind in HEADS.items() if name != "nsp"},
        "mlm": replace(HEADS["mlm"], new=lambda config, _: ModernMlmHead(config)),
        # The backbone pools as `classifier_pooling` says.
        "classifier": replace(HEADS["classifier"], new=ModernHead),
        "spans": replace(HEADS["spans"], new=lambda config, _: ModernHead(config, 2)),
        "token_classifier": replace(HEADS["token_classifier"], new=ModernHead),
        "choice": replace(HEADS["choice"], new=ModernHead),
    }
    token_types: ClassVar[bool] = False

    vocab_size: int = 50368
    num_hidden_layers: int = 22
    intermediate_size: int = 1152
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout: float = 0.0
    max_position_embeddings: int = 8192
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 50283
    embedding_dropout: float = 0.0
    attention_bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    decoder_bias: bool = True
    classifier_bias: bool = False
    classifier_pooling: str = "cls"
    classifier_activation: str = "gelu"
    local_attention: int = 128
    global_attn_every_n_layers: int = 3
    layer_types: tuple[str, ...] | None = None
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_size % 2:
            raise BertineError(
                f"hidden_size {self.hidden_size} over num_attention_heads "
                f"{self.num_attention_heads} is {self.head_size}, but rotary positions need an "
                "even number"
            )
        if not 0.0 <= self.embedding_dropout < 1.0:
            raise BertineError(
                f"embedding_dropout is {self.embedding_dropout}, but must be in [0, 1)"
            )
        if self.classifier_pooling not in POOLINGS:
            raise BertineError(
                f"classifier_pooling is {self.classifier_pooling!r}, but must be "
                f"{' or '.join(POOLINGS)}"
            )
        if self.classifier_activation not in (*ACTIVATIONS, LINEAR):
            raise BertineError(
                f"classifier_activation {self.classifier_activation!r} is not supported; only "
                f"{', '.join(ACTIVATIONS)} and {LINEAR} are"
            )
        for name, least in (("local_attention", 2), ("global_attn_every_n_layers", 1)):
            if not least <= getattr(self, name) <= 10**7:
                raise BertineError(f"{name} is {getattr(self, name)}, but must be at least {least}")
        for name in ("global_rope_theta", "local_rope_theta"):
            if not 1.0 <= getattr(self, name) < float("inf"):
                raise BertineError(f"{name} is {getattr(self, name)}, but must be at least 1")
        types = self.layer_types
        if types is None:
            return
        wrong = next((kind for kind in types if kind not in (GLOBAL, LOCAL)), None)
        if wrong is not None:
            raise BertineError(f"layer_types has {wrong[:80]!r}, but knows {GLOBAL} and {LOCAL}")
        if len(types) < self.num_hidden_layers:
            raise BertineError(
                f"layer_types has {len(types)} layers, but num_hidden_layers is "
                f"{self.num_hidden_layers}"
            )

    @property
    def num_segments(self) -> int:
        """Two: their separators tell the texts of a pair apart."""
        return 2

    @property
    def windows(self) -> tuple[int | None, ...]:
        """How many tokens to either side each layer looks at; None: at all."""
        return tuple(None if kind == GLOBAL else self.local_attention // 2 for kind in self.kinds)

    @property
    def rope_thetas(self) -> dict[int | None, float]:
        """The base of the rotations' wavelengths, by the window of the layers."""
        return {
            window: self.global_rope_theta if window is None else self.local_rope_theta
            for window in self.windows
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of attention of each layer, :data:`GLOBAL` or :data:`LOCAL`."""
        count = self.num_hidden_layers
        if self.layer_types is not None:
            return self.layer_types[:count]
        every = self.global_attn_every_n_layers
        return tuple(LOCAL if number % every else GLOBAL for number in range(count))

    @property
    def output_std(self) -> float:
        """The deviation of new weights that end in the residual stream, smaller the more layers
        add to it (transformers, ``_init_weights``)."""
        return float(self.initializer_range / (2.0 * self.num_hidden_layers) ** 0.5)

    @property
    def num_parameters(self) -> int:
        width, inner, layers = self.hidden_size, self.intermediate_size, self.num_hidden_layers
        norm = width * (1 + self.norm_bias)
        layer = 4 * width * width + 4 * width * self.attention_bias
        layer += 3 * width * inner + (2 * inner + width) * self.mlp_bias
        # The norm behind the embeddings takes the place of that before the first attention.
        return self.vocab_size * width + layers * (layer + 2 * norm) + norm

    def needs_pooler(self, heads: Iterable[str]) -> bool:
        """Return False: what is pooled has no weights."""
        return False

    def new_backbone(self, pooler: bool) -> ModernEncoder:
        return ModernEncoder(self)

    def with_dropout(self, p: float | None) -> Self:
        changed = super().with_dropout(p)
        return changed if p is None else changed.replace(embedding_dropout=p)


def _small(num_hidden_layers: int, hidden_size: int, intermediate_size: int) -> ModernBertConfig:
    return ModernBertConfig(
        vocab_size=30522,
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=intermediate_size,
        max_position_embeddings=1024,
        pad_token_id=0,
        classifier_pooling="mean",
        local_attention=16,
    )


#: Preset → architecture: the published ones (table 4 of the paper, the published files), and small
#: ones of our own, with the layers, the width and about the weights of bert-tiny, -mini and -small,
#: for a WordPiece vocabulary of BERT's size. With small windows they learn the most from little
#: text; what else was tried, and what it did, is in docs/results.md (``benchmarks/modern.py``).
PRESETS: Mapping[str, ModernBertConfig] = {
    "modernbert-base": ModernBertConfig(classifier_pooling="mean"),
    "modernbert-large": ModernBertConfig(
        hidden_size=1024,
        num_hidden_layers=28,
        num_attention_heads=16,
        intermediate_size=2624,
        classifier_pooling="mean",
    ),
    "modern-tiny": _small(2, 128, 336),
    "modern-mini": _small(4, 256, 688),
    "modern-small": _small(4, 512, 1376),
}
