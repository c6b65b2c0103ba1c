"""ALBERT as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from bertine.interop.bert import PLAIN_ENCODER, SIZES, TABLES, TASK_HEADS, WRITTEN
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, WeightNames
from bertine.interop.tensorflow.albert import VARIABLES
from bertine.models.albert import PRESETS, AlbertConfig

FAMILY = Family(
    config=AlbertConfig,
    class_prefix="Albert",
    names=WeightNames(
        prefix="albert.",
        tables=TABLES,
        modules=(
            ("backbone.embeddings.layer_norm", "embeddings.LayerNorm"),
            ("backbone.embeddings.projection", "encoder.embedding_hidden_mapping_in"),
            ("backbone.pooler", "pooler"),
        ),
        layers=("backbone.layers.{}", "encoder.albert_layer_groups.{}.albert_layers.{}"),
        layer=(
            ("attention.qkv", ("attention.query", "attention.key", "attention.value")),
            ("attention.out", ("attention.dense",)),
            ("attention_norm", ("attention.LayerNorm",)),
            ("up", ("ffn",)),
            ("down", ("ffn_output",)),
            ("output_norm", ("full_layer_layer_norm",)),
        ),
        heads={
            "mlm": HeadNames(
                "predictions",
                (("dense", "dense"), ("layer_norm", "LayerNorm")),
                (("bias", "bias"),),
            ),
            "sop": HeadNames("sop_classifier", (("out", "classifier"),)),
            "nsp": HeadNames("nsp_classifier", (("dense", ""),)),
            "classifier": HeadNames("classifier", (("out", ""),)),
            **TASK_HEADS,
        },
        copies=(
            ("predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            ("predictions.decoder.bias", "predictions.bias"),
        ),
    ),
    keys=ConfigKeys(
        required=SIZES,
        only={
            **PLAIN_ENCODER,
            # Google's program reads them and never uses them; its files have these values.
            "net_structure_type": ((0, None), "another structure of layers"),
            "num_memory_blocks": ((0, None), "memory blocks"),
            "down_scale_factor": ((1, None), "layers over fewer tokens"),
        },
        written=dict(WRITTEN) | {"bos_token_id": 2, "eos_token_id": 3},
        renamed={"classifier_dropout": "classifier_dropout_prob"},
        ignored=frozenset({"gap_size"}),
        ours=frozenset({"shared_across_groups"}),
    ),
    tokenizer="unigram",
    objectives=("mlm-sop", "mlm-nsp", "mlm", "mlm-neighbours"),
    input_format="sentence-order",
    presets=PRESETS,
    pretraining=frozenset({"mlm", "sop"}),
    variables=VARIABLES,
)
