"""Define ELECTRA: its discriminator, and the generator that it is trained with.

ELECTRA (Clark et al. 2020, arXiv 2003.10555) is BERT's encoder with embeddings of another width and
no pooler. It learns to detect the tokens that a generator, a small masked language model over the
same embeddings (section 3.2), has put in a text.

Shape legend: B sequences, T tokens of the longest, P places, V vocabulary size, E width of the
embeddings, G width of the generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.families.bert import MODULES, PLAIN_ENCODER, SIZES, WRITTEN, encoder_names
from bertine.models.config import Config
from bertine.models.config_file import ConfigKeys
from bertine.models.embeddings import Embeddings
from bertine.models.encoder import Encoder, Inputs, layout_of
from bertine.models.family import Family, HeadKind
from bertine.models.heads import HEADS, DenseHead, MlmHead, Model
from bertine.models.layers import EncoderLayer, activation, init_weights
from bertine.models.tensor_names import HeadNames

# Heads: one for replaced tokens, and the tasks' heads, which have a dense layer of their own.


class ReplacedTokenHead(nn.Module):
    """Head that scores whether each token was replaced: dense, activation, linear
    (google-research/electra, ``_get_discriminator_output``)."""

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = activation(config.hidden_act)
        self.out = nn.Linear(config.hidden_size, 1)
        init_weights(self, config.initializer_range)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden [B, T, H] to logits [B, T], above 0 for "replaced"."""
        return self.out(self.act(self.dense(hidden))).squeeze(-1)


# Sampling: tokens drawn from a softmax by given random numbers.
#
# Shape legend: P places, V vocabulary size.

#: Logits of a block on a CPU, which fit the cache.
_BLOCK = 1 << 20
#: Probabilities in a first partial sum: adding 30,000 one after the other in fp32 would be wrong by
#: more than the rare ones among them.
_GROUP = 128
#: The largest share that is searched for; a share rounded to 1 would lie beyond the last token.
_BELOW_ONE = 1.0 - 2.0**-40


@torch.no_grad()
def sample(logits: Tensor, draws: Tensor, temperature: float = 1.0) -> Tensor:
    """Draw a token for each place: where the running sum of probabilities passes its number.

    The published code adds Gumbel noise and takes the largest sum. The distribution is the same,
    but that needs a random number for each word of the vocabulary.

    Args:
        logits: float [P, V]; not changed.
        draws: float64 [P] in [0, 1), a uniform number for each place.
        temperature: the divisor of the logits.

    Returns:
        int64 [P]: a function of the arguments alone, row by row.
    """
    rows = logits.shape[0]
    if logits.device.type == "cpu":
        rows = max(1, _BLOCK // max(1, logits.shape[1]))
    parts = [
        _sample(some, numbers, temperature)
        for some, numbers in zip(logits.split(rows), draws.split(rows), strict=True)
    ]
    return torch.cat(parts) if parts else draws.new_empty(0, dtype=torch.int64)


def _sample(logits: Tensor, draws: Tensor, temperature: float) -> Tensor:
    rows, words = logits.shape
    weights = torch.empty(rows, -(-words // _GROUP) * _GROUP, device=logits.device)
    weights[:, words:] = 0.0
    used = weights[:, :words].copy_(logits)
    used.sub_(used.amax(-1, keepdim=True))
    if temperature != 1.0:
        used.div_(temperature)
    used.exp_()
    groups = weights.unflatten(1, (-1, _GROUP))
    group, share = _find(groups.sum(-1), draws)
    own = groups.gather(1, group[:, None, None].expand(-1, 1, _GROUP))[:, 0]
    token, _ = _find(own, share)
    # Logits that are NaN may give any place; their loss ends the run.
    return (group * _GROUP + token).clamp(max=words - 1)


def _find(weights: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Find in each row of `weights`, float [P, N], the place where the running sum passes `share`,
    float64 [P] in [0, 1), of the total; its weight is never 0.

    Returns:
        The place, int64 [P], and the fraction of its weight before that point, float64 [P] in
        [0, 1).
    """
    sums = weights.double().cumsum(-1)
    wanted = share.clamp(0.0, _BELOW_ONE)[:, None] * sums[:, -1:]
    place = torch.searchsorted(sums, wanted, right=True).clamp(max=sums.shape[1] - 1)
    until = sums.gather(1, place)
    before = torch.where(place > 0, sums.gather(1, (place - 1).clamp(min=0)), 0.0)
    return place[:, 0], ((wanted - before) / (until - before))[:, 0]


class Generator(nn.Module):
    """Layers and an MLM head over the embeddings of another model.

    The published code shares all embeddings, of words, positions and types, and their layer norm
    (``modeling.py``: one variable scope for both models); each model has its own projection to the
    width of its layers. So the embeddings are an argument, like the matrix of a tied decoder.

    Args:
        config: of the generator as a separate model; its ``embedding_width`` is that of the
            embeddings.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.embedding_width
        self.projection = (
            nn.Linear(width, config.hidden_size) if config.projects_embeddings else None
        )
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))
        self.head = MlmHead(config, "gelu")
        init_weights(self, config.initializer_range)

    @property
    def vocabulary_tensors(self) -> Mapping[str, int]:
        """The head's weights with a place for each word, and their dimension that counts words."""
        return {f"head.{name}": at for name, at in self.head.vocabulary_tensors.items()}

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile the parts as those of a model: all layers share one piece of code."""
        for part in (*self.layers, self.head):
            part.compile(*args, **options)

    def forward(self, embeddings: Embeddings, inputs: Inputs, places: Tensor) -> Tensor:
        """Predict the tokens at `places`, int64 [P], indices into the B * T tokens of `inputs`:
        logits [P, V]."""
        states = self.states(embeddings, inputs).flatten(0, 1)
        return self.head(states.index_select(0, places), embeddings.word_embeddings.weight)

    def states(self, embeddings: Embeddings, inputs: Inputs) -> Tensor:
        """Return the last states of `inputs`, [B, T, G]; those at padding have no meaning."""
        dtype = embeddings.word_embeddings.weight.dtype
        layout = layout_of(inputs.input_ids, inputs.attention_mask, inputs.packing, dtype)
        x = embeddings.unprojected(inputs.input_ids, inputs.token_type_ids, layout.real)
        if self.projection is not None:
            x = self.projection(x)
        for layer in self.layers:
            x = layer(x, layout)
        return layout.pad(x)


def generator_of(model: Model) -> Generator | None:
    """Return the generator that `model` is trained with; None if it has none."""
    return cast(Generator, model.heads["generator"]) if "generator" in model.heads else None


def as_masked_lm(model: Model) -> Model | None:
    """Return the generator of `model` as a separate model with an MLM head, which shares its
    weights and the embeddings; None if there is none."""
    generator = generator_of(model)
    if generator is None:
        return None
    with torch.device("meta"):
        alone = Model(generator.config, {"mlm": generator.head}, add_pooler=False)
    backbone, embeddings = cast(Encoder, alone.backbone), cast(Encoder, model.backbone).embeddings
    for name, part in embeddings.named_children():
        if name not in ("dropout", "projection"):
            setattr(backbone.embeddings, name, part)
    backbone.embeddings.projection = generator.projection
    backbone.layers = generator.layers
    return alone.train(model.training)


def without_generator(model: Model) -> Model:
    """Return `model` without its generator: the same backbone and other heads, not copied."""
    with torch.device("meta"):
        kept = Model(model.config, {}, add_pooler=model.backbone.pooler is not None)
    kept.backbone = model.backbone
    kept.heads = nn.ModuleDict({n: head for n, head in model.heads.items() if n != "generator"})
    return kept.train(model.training)


def generator_from(masked_lm: Model) -> Generator:
    """Return the model `masked_lm` as a generator, without its embeddings; the weights are
    shared."""
    with torch.device("meta"):
        generator = Generator(masked_lm.config)
    backbone = cast(Encoder, masked_lm.backbone)
    generator.projection = backbone.embeddings.projection
    generator.layers = backbone.layers
    generator.head = cast(MlmHead, masked_lm.heads["mlm"])
    return generator.train(masked_lm.training)


# ElectraConfig: the architecture of a discriminator or a generator, and the published sizes.


def _new_generator(config: ElectraConfig, _: int, sizes: ElectraConfig | None = None) -> Generator:
    return Generator(config.generator() if sizes is None else sizes)


@dataclass(frozen=True)
class ElectraConfig(Config):
    """Sizes and rates of an ELECTRA, discriminator or generator (the published code; the defaults
    are transformers', which are the small size).

    Attributes:
        embedding_size: the width of the embeddings; where it differs from that of the layers, a
            linear layer lies between them.
        summary_last_dropout: before the last layer of multiple choice.
    """

    model_type: ClassVar[str] = "electra"
    title: ClassVar[str] = "ELECTRA"
    has_pooler = False

    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    embedding_size: int = 128
    summary_last_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes("embedding_size")

    @property
    def paper_family(self) -> str:
        """The paper's name by the width: ELECTRA-Small, -Base or -Large."""
        widths = {256: "Small", 768: "Base"}
        return f"ELECTRA-{next((n for w, n in widths.items() if self.hidden_size <= w), 'Large')}"

    @property
    def embedding_width(self) -> int:
        """The width of the embeddings."""
        return self.embedding_size

    def generator(self, size: float = 0.25, layers: float = 1.0) -> ElectraConfig:
        """Return the sizes of a generator for this discriminator (``get_generator_config`` of the
        published code): `size` times as wide, with heads of the same size, the same ratio of
        feed-forward to width, and the same embeddings.

        Args:
            size: of the width; the paper's are 1/4 for small and large and 1/3 for base (table 6).
            layers: share of the number of layers; the paper keeps all of them.
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


#: Preset → architecture of the discriminator (table 6 of the paper; ``configure_pretraining.py``).
PRESETS: Mapping[str, ElectraConfig] = {
    "electra-small": ElectraConfig.of_size(12, 256, embedding_size=128),
    "electra-base": ElectraConfig.of_size(12, 768, embedding_size=768),
    "electra-large": ElectraConfig.of_size(24, 1024, embedding_size=1024),
}


# transformers' format: names of weights and keys of ``config.json``.

#: How a choice's first token becomes its score, as in all published configurations.
_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}

_NAMES = encoder_names(
    "electra.",
    heads={
        "rtd": HeadNames(
            "discriminator_predictions", (("dense", "dense"), ("out", "dense_prediction"))
        ),
        "mlm": HeadNames(
            "",
            (
                ("dense", "generator_predictions.dense"),
                ("layer_norm", "generator_predictions.LayerNorm"),
            ),
            (("bias", "generator_lm_head.bias"),),
        ),
        "classifier": HeadNames("classifier", (("dense", "dense"), ("out", "out_proj"))),
    },
    copies=(("generator_lm_head.weight", "embeddings.word_embeddings.weight"),),
)


def _summary(config: ElectraConfig, num_labels: int) -> DenseHead:
    """Return a head that scores a choice by its first token's state (transformers,
    ``ElectraSequenceSummary`` with the settings of published configurations)."""
    return DenseHead(config, num_labels, F.gelu, first=0.0, last=config.summary_last_dropout)


FAMILY = Family(
    config=ElectraConfig,
    heads={
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
        # transformers, ``ElectraClassificationHead``; the published code has only the linear layer.
        "classifier": replace(
            HEADS["classifier"], reads="first", new=partial(DenseHead, act=F.gelu)
        ),
        "choice": replace(HEADS["choice"], reads="first", new=_summary),
        "generator": HeadKind("inputs", _new_generator, "generator", "ForMaskedLM", tied=True),
    },
    new_backbone=Encoder,
    class_prefix="Electra",
    names=replace(
        _NAMES,
        modules=(MODULES[0], ("backbone.embeddings.projection", "embeddings_project")),
        encoder=(*_NAMES.encoder, "embeddings_project."),
        heads={
            **_NAMES.heads,
            "choice": HeadNames(
                "choice_classifier",
                (("dense", "sequence_summary.summary"), ("out", "classifier")),
                published="",
            ),
        },
    ),
    keys=ConfigKeys(
        required=(*SIZES, "embedding_size"),
        only={
            **PLAIN_ENCODER,
            **{key: ((value,), "another summary for choices") for key, value in _SUMMARY.items()},
        },
        written={**WRITTEN, **_SUMMARY},
    ),
    tokenizer="wordpiece",
    objectives=("rtd", "mlm", "mlm-neighbours"),
    input_format="full-sentences",
    presets=PRESETS,
)
