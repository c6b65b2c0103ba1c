"""RoBERTa as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from bertine.interop.bert import PLAIN_ENCODER, SIZES, WRITTEN, encoder_names
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames
from bertine.models.roberta import PRESETS, RobertaConfig

FAMILY = Family(
    config=RobertaConfig,
    class_prefix="Roberta",
    names=encoder_names(
        "roberta.",
        heads={
            "mlm": HeadNames(
                "lm_head",
                (("dense", "dense"), ("layer_norm", "layer_norm")),
                (("bias", "bias"),),
            ),
            "classifier": HeadNames("classifier", (("dense", "dense"), ("out", "out_proj"))),
        },
        copies=(
            ("lm_head.decoder.weight", "embeddings.word_embeddings.weight"),
            ("lm_head.decoder.bias", "lm_head.bias"),
        ),
    ),
    keys=ConfigKeys(
        required=SIZES,
        only=PLAIN_ENCODER,
        written=dict(WRITTEN) | {"bos_token_id": 0, "eos_token_id": 2},
    ),
    tokenizer="byte-bpe",
    objectives=("mlm",),
    input_format="full-sentences",
    presets=PRESETS,
)
