"""ELECTRA as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from dataclasses import replace

from bertine.interop.bert import MODULES, PLAIN_ENCODER, SIZES, WRITTEN, encoder_names
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames
from bertine.models.electra.config import PRESETS, ElectraConfig

#: How a choice's first token becomes its score: what all published configurations say.
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

FAMILY = Family(
    config=ElectraConfig,
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
