"""Define BERT: its config, its published sizes, an initialization, and its file formats.

Shape legend: H hidden size, D size of a head, P positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bertine.core.errors import BertineError
from bertine.models.config import Config
from bertine.models.config_file import ConfigKeys
from bertine.models.encoder import Backbone, Encoder
from bertine.models.family import Family
from bertine.models.heads import HEADS, WITHOUT_POOLER
from bertine.models.layers import EncoderLayer
from bertine.models.tensor_names import HeadNames, Pairs, WeightNames

# BertConfig: the architecture of a BERT (Devlin et al. 2018, arXiv 1810.04805), and the published
# sizes.


@dataclass(frozen=True)
class BertConfig(Config):
    """Sizes and rates of a BERT (section 3 of the paper; defaults are bert-base-uncased)."""

    model_type: ClassVar[str] = "bert"
    title: ClassVar[str] = "BERT"


#: Preset → architecture. bert-base and bert-large are those of the paper (section 3); the smaller
#: ones are those of Turc et al. 2019 (arXiv 1908.08962), published with the original code. Each has
#: one head for every 64 hidden units and a feed-forward layer four times as wide as the hidden one.
#: The vocabulary has the size of the published English uncased one.
PRESETS: Mapping[str, BertConfig] = {
    "bert-tiny": BertConfig.of_size(2, 128),
    "bert-mini": BertConfig.of_size(4, 256),
    "bert-small": BertConfig.of_size(4, 512),
    "bert-medium": BertConfig.of_size(8, 512),
    "bert-base": BertConfig.of_size(12, 768),
    "bert-large": BertConfig.of_size(24, 1024),
}


# Initialization: weights with which attention looks from the first step on where trained heads do.
#
# With purely random weights every token attends to all others equally, and the loss stays for long
# at the value of the pieces' frequencies, until heads have found neighbours. In trained models the
# product of query and key weights is near a multiple of the identity, and positions are like waves;
# as initial weights, both help much where training is short (Trockman and Kolter 2023, "Mimetic
# Initialization of Self-Attention Layers"). Some heads of trained encoders attend to the token
# before or after (Clark et al. 2019, "What Does BERT Look At?", section 3.1); here two heads of the
# lowest layer do so from the beginning.

#: The correlation of key and query weights, element by element; chosen by hand, like the score, and
#: not by search.
_ALIKE = 0.7
#: The score of a token for one like itself before the softmax, at the start of training.
_SCORE = 5.2
#: The wavelengths of the positions range from 2 pi tokens to about this many times that.
_LONGEST = 16.0
#: The offsets that the first heads of the lowest layer look at.
_OFFSETS = (-1, 1)


class _Waves:
    """Sines and cosines of positions, each in a randomly drawn dimension with a random sign, so
    that the dimensions have no mean. No matrix products are used: their last bits depend on the
    machine, and initial weights should not."""

    def __init__(self, size: int) -> None:
        self.size, count = size, size // 2
        # In double precision, so that functions with other rounding give the same floats.
        self.rates = _LONGEST ** -(torch.arange(count, dtype=torch.float64) / max(1, count))
        drawn = torch.randperm(size)
        self.sines, self.cosines = drawn[:count], drawn[count : 2 * count]
        self.signs = 1.0 - 2.0 * torch.randint(2, (size,))

    def at(self, positions: Tensor) -> Tensor:
        """Map positions [P] to [P, H]; the squares of a row add up to H, or to H - 1."""
        angles = positions[:, None] * self.rates
        waves = torch.zeros(len(positions), self.size, dtype=torch.float64)
        waves[:, self.sines], waves[:, self.cosines] = angles.sin(), angles.cos()
        return (math.sqrt(2) * waves * self.signs).float()

    def shifted(self, rows: Tensor, by: float) -> Tensor:
        """Map rows [N, H] to [N, H], whose products with ``at(t)`` are those of `rows` with
        ``at(t + by)``."""
        sine, cosine = (by * self.rates).sin().float(), (by * self.rates).cos().float()
        sine = sine * self.signs[self.sines] * self.signs[self.cosines]
        of_sines, of_cosines = rows[:, self.sines], rows[:, self.cosines]
        turned = rows.clone()
        turned[:, self.sines] = of_sines * cosine - of_cosines * sine
        turned[:, self.cosines] = of_cosines * cosine + of_sines * sine
        return turned


@torch.no_grad()
def mimic_trained_attention(backbone: Backbone) -> None:
    """Replace the position embeddings and the query and key weights of a new `backbone`, drawing
    from PyTorch's generator; all other weights stay.

    Raises:
        BertineError: the layers of `backbone` are not BERT's, or a projection lies between them
            and the embeddings, which would change the waves that heads use.
    """
    config = backbone.config
    if not isinstance(backbone, Encoder):
        raise BertineError(
            f"initialization mimetic is for layers like BERT's, and those of {config.title} are "
            "others; take normal"
        )
    if config.projects_embeddings:
        raise BertineError(
            "initialization mimetic is for layers that read the embeddings as they are, and a "
            f"linear layer stands between those of this {config.title}; take normal"
        )
    waves = _Waves(config.hidden_size)
    table = backbone.embeddings.position_embeddings.weight
    # About as large as the other embeddings of the sum.
    table.copy_(waves.at(torch.arange(len(table))) * config.initializer_range)
    for depth, layer in enumerate(backbone.layers):
        assert isinstance(layer, EncoderLayer)
        _look_alike(
            layer.attention.qkv.weight, config.head_size, waves, _OFFSETS if depth == 0 else ()
        )


def _look_alike(qkv: Tensor, head_size: int, waves: _Waves, offsets: Sequence[int]) -> None:
    """Set the weights `qkv` [3H, H] so that each token attends to similar tokens, and the head of
    an offset to similar tokens at that offset."""
    size = qkv.shape[1]
    # The score of x for itself is D times the square of this, times the squared norm of x, which is
    # H after the layer norm, times the correlation; attention divides it by the root of D.
    scale = math.sqrt(_SCORE / (math.sqrt(head_size) * size * _ALIKE))
    queries, noise = scale * torch.randn(size, size), scale * torch.randn(size, size)
    alike = queries.clone()
    for head, offset in enumerate(offsets[: size // head_size]):
        own = slice(head * head_size, (head + 1) * head_size)
        alike[own] = waves.shifted(queries[own], -offset)
    qkv[:size] = queries
    qkv[size : 2 * size] = _ALIKE * alike + math.sqrt(1 - _ALIKE**2) * noise


# transformers' format: names of weights and keys of ``config.json``.

#: Our names and transformers' of the modules of an encoder layer.
LAYER: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "attention.qkv",
        ("attention.self.query", "attention.self.key", "attention.self.value"),
    ),
    ("attention.out", ("attention.output.dense",)),
    ("attention_norm", ("attention.output.LayerNorm",)),
    ("up", ("intermediate.dense",)),
    ("down", ("output.dense",)),
    ("output_norm", ("output.LayerNorm",)),
)
#: The same for the embeddings.
TABLES: Pairs = tuple(
    (f"backbone.embeddings.{kind}_embeddings.weight", f"embeddings.{kind}_embeddings.weight")
    for kind in ("word", "position", "token_type")
)
#: The same for the modules outside the layers.
MODULES: Pairs = (
    ("backbone.embeddings.layer_norm", "embeddings.LayerNorm"),
    ("backbone.pooler", "pooler.dense"),
)
#: The same for the heads that have these names in all types of encoders.
TASK_HEADS: Mapping[str, HeadNames] = {
    "spans": HeadNames("qa_outputs", (("out", ""),)),
    "token_classifier": HeadNames("token_classifier", (("out", ""),), published="classifier"),
    "choice": HeadNames("choice_classifier", (("out", ""),), published="classifier"),
    "vector_classifier": HeadNames("vector_classifier", (("out", ""),)),
    "pair_classifier": HeadNames(
        "pair_classifier", (("out", ""),), (("piece_weights", "piece_weights"),)
    ),
}
#: The same for all heads of BERT.
BERT_HEADS: Mapping[str, HeadNames] = {
    "mlm": HeadNames(
        "cls.predictions",
        (("dense", "transform.dense"), ("layer_norm", "transform.LayerNorm")),
        (("bias", "bias"),),
    ),
    "nsp": HeadNames("cls.seq_relationship", (("dense", ""),)),
    "classifier": HeadNames("classifier", (("out", ""),)),
    **TASK_HEADS,
}
#: The tensors of its decoder, which are others'.
DECODER_COPIES: Pairs = (
    ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
    ("cls.predictions.decoder.bias", "cls.predictions.bias"),
)
#: The sizes that a file must have to describe an encoder.
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
#: The values of a plain encoder.
PLAIN_ENCODER: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "position_embedding_type": (("absolute", None), "relative positions"),
    "is_decoder": ((False, None), "a decoder"),
    "add_cross_attention": ((False, None), "cross-attention"),
    "is_encoder_decoder": ((False, None), "an encoder-decoder"),
    "tie_word_embeddings": ((True, None), "a decoder of its own for the MLM head"),
    "pruned_heads": (({}, None), "pruned attention heads"),
    "quantization_config": ((None,), "quantized weights"),
}
#: Further keys in files of encoders.
WRITTEN: Mapping[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "use_cache": True,
}


def encoder_names(prefix: str, heads: Mapping[str, HeadNames], copies: Pairs) -> WeightNames:
    """Return the names of an encoder with BERT's layers, and of its heads: `heads` and those of
    :data:`TASK_HEADS`."""
    return WeightNames(
        prefix=prefix,
        tables=TABLES,
        modules=MODULES,
        layers=("backbone.layers.{}", "encoder.layer.{}"),
        layer=LAYER,
        heads={**heads, **TASK_HEADS},
        copies=copies,
    )


FAMILY = Family(
    config=BertConfig,
    heads=HEADS,
    new_backbone=Encoder,
    class_prefix="Bert",
    names=encoder_names(
        "bert.",
        heads=BERT_HEADS,
        copies=DECODER_COPIES,
    ),
    keys=ConfigKeys(required=SIZES, only=PLAIN_ENCODER, written=WRITTEN),
    tokenizer="wordpiece",
    objectives=("mlm-nsp", "mlm", "mlm-neighbours"),
    input_format="segment-pair",
    presets=PRESETS,
    # A model that is pre-trained without next sentences keeps the pooler, since fine-tuning reads
    # it and every reader of BERT expects it.
    without_pooler=WITHOUT_POOLER,
    pretraining=frozenset({"mlm", "nsp"}),
)
