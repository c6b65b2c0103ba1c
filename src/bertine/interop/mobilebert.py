"""MobileBERT as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from bertine.interop.bert import PLAIN_ENCODER, SIZES, TABLES, TASK_HEADS, WRITTEN
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, LayerRows, WeightNames
from bertine.interop.tensorflow.mobilebert import VARIABLES
from bertine.models.mobilebert.config import PRESETS, MobileBertConfig


def _layer(config: MobileBertConfig) -> LayerRows:
    """Return the names of the modules of a layer: all feed-forwards but the last are numbered."""
    last = config.num_feedforward_networks - 1
    prefixes = [f"ffn.{number}." for number in range(last)] + [""]
    return (
        ("entrance.linear", ("bottleneck.input.dense",)),
        ("entrance.norm", ("bottleneck.input.LayerNorm",)),
        ("shared.linear", ("bottleneck.attention.dense",)),
        ("shared.norm", ("bottleneck.attention.LayerNorm",)),
        ("attention.qk", ("attention.self.query", "attention.self.key")),
        ("attention.value", ("attention.self.value",)),
        ("attention.out", ("attention.output.dense",)),
        ("attention_norm", ("attention.output.LayerNorm",)),
        *(
            (f"feed_forwards.{number}.{ours}", (f"{prefix}{theirs}",))
            for number, prefix in enumerate(prefixes)
            for ours, theirs in (
                ("up", "intermediate.dense"),
                ("down", "output.dense"),
                ("norm", "output.LayerNorm"),
            )
        ),
        ("exit.linear", ("output.bottleneck.dense",)),
        ("exit.norm", ("output.bottleneck.LayerNorm",)),
    )


FAMILY = Family(
    config=MobileBertConfig,
    class_prefix="MobileBert",
    names=WeightNames(
        prefix="mobilebert.",
        tables=TABLES,
        modules=(
            ("backbone.embeddings.projection", "embeddings.embedding_transformation"),
            ("backbone.embeddings.norm", "embeddings.LayerNorm"),
            ("backbone.pooler", "pooler.dense"),
        ),
        layers=("backbone.layers.{}", "encoder.layer.{}"),
        layer=_layer,
        heads={
            "mlm": HeadNames(
                "cls.predictions",
                (("dense", "transform.dense"), ("layer_norm", "transform.LayerNorm")),
                (("bias", "bias"), ("extra.weight", "dense.weight")),
            ),
            "nsp": HeadNames("cls.seq_relationship", (("dense", ""),)),
            "classifier": HeadNames("classifier", (("out", ""),)),
            **TASK_HEADS,
        },
        copies=(
            ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ),
    ),
    keys=ConfigKeys(
        required=SIZES,
        only=PLAIN_ENCODER,
        written=WRITTEN,
        # transformers works it out of the others, and writes it.
        ignored=frozenset({"true_hidden_size"}),
    ),
    tokenizer="wordpiece",
    objectives=("mlm-nsp", "mlm", "mlm-neighbours"),
    input_format="segment-pair",
    presets=PRESETS,
    pretraining=frozenset({"mlm", "nsp"}),
    variables=VARIABLES,
)
