"""BERT as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, Pairs, WeightNames
from bertine.interop.tensorflow.bert import VARIABLES
from bertine.models.bert import PRESETS, BertConfig

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
#: Of the embeddings.
TABLES: Pairs = tuple(
    (f"backbone.embeddings.{kind}_embeddings.weight", f"embeddings.{kind}_embeddings.weight")
    for kind in ("word", "position", "token_type")
)
#: Of the modules outside the layers.
MODULES: Pairs = (
    ("backbone.embeddings.layer_norm", "embeddings.LayerNorm"),
    ("backbone.pooler", "pooler.dense"),
)
#: Of the heads that are called alike in all types of encoders.
TASK_HEADS: Mapping[str, HeadNames] = {
    "spans": HeadNames("qa_outputs", (("out", ""),)),
    "token_classifier": HeadNames("token_classifier", (("out", ""),), published="classifier"),
    "choice": HeadNames("choice_classifier", (("out", ""),), published="classifier"),
    "vector_classifier": HeadNames("vector_classifier", (("out", ""),)),
    "pair_classifier": HeadNames(
        "pair_classifier", (("out", ""),), (("piece_weights", "piece_weights"),)
    ),
}
#: The sizes without which a file does not describe an encoder.
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
#: Values that mean a plain encoder.
PLAIN_ENCODER: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "position_embedding_type": (("absolute", None), "relative positions"),
    "is_decoder": ((False, None), "a decoder"),
    "add_cross_attention": ((False, None), "cross-attention"),
    "is_encoder_decoder": ((False, None), "an encoder-decoder"),
    "tie_word_embeddings": ((True, None), "a decoder of its own for the MLM head"),
    "pruned_heads": (({}, None), "pruned attention heads"),
    "quantization_config": ((None,), "quantized weights"),
}
#: What files of encoders say besides.
WRITTEN: Mapping[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "use_cache": True,
}


def encoder_names(prefix: str, heads: Mapping[str, HeadNames], copies: Pairs) -> WeightNames:
    """Return the names of an encoder with BERT's layers, and of its heads besides those of
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
    class_prefix="Bert",
    names=encoder_names(
        "bert.",
        heads={
            "mlm": HeadNames(
                "cls.predictions",
                (("dense", "transform.dense"), ("layer_norm", "transform.LayerNorm")),
                (("bias", "bias"),),
            ),
            "nsp": HeadNames("cls.seq_relationship", (("dense", ""),)),
            "classifier": HeadNames("classifier", (("out", ""),)),
        },
        copies=(
            ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ),
    ),
    keys=ConfigKeys(required=SIZES, only=PLAIN_ENCODER, written=WRITTEN),
    tokenizer="wordpiece",
    objectives=("mlm-nsp", "mlm", "mlm-neighbours"),
    input_format="segment-pair",
    presets=PRESETS,
    pretraining=frozenset({"mlm", "nsp"}),
    variables=VARIABLES,
)
