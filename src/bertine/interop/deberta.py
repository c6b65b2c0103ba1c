"""DeBERTa-v3 as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from bertine.interop.bert import LAYER, PLAIN_ENCODER, SIZES, TABLES, TASK_HEADS, WRITTEN
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, WeightNames
from bertine.models.deberta.config import PRESETS, DebertaConfig

_CLASSIFIER = (("dense", "pooler.dense"), ("out", "classifier"))
#: Both orders, and how older files write them.
_BOTH = (["p2c", "c2p"], ["c2p", "p2c"], "p2c|c2p", "c2p|p2c")
#: What our model computes. Of a file that lacks one of these keys transformers computes another.
_VERSION_3 = {
    "relative_attention": ((True,), "absolute positions"),
    "position_biased_input": ((False,), "absolute positions among the embeddings"),
    "share_att_key": ((True,), "projections of their own for positions"),
    "norm_rel_ebd": (("layer_norm",), "relative positions without a norm"),
    "pos_att_type": (_BOTH, "other parts of the attention"),
}
_QKV = ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj")

FAMILY = Family(
    config=DebertaConfig,
    class_prefix="DebertaV2",
    names=WeightNames(
        prefix="deberta.",
        tables=(
            *TABLES[:1],
            ("backbone.embeddings.relative.embeddings.weight", "encoder.rel_embeddings.weight"),
        ),
        modules=(
            ("backbone.embeddings.layer_norm", "embeddings.LayerNorm"),
            ("backbone.embeddings.relative.norm", "encoder.LayerNorm"),
        ),
        layers=("backbone.layers.{}", "encoder.layer.{}"),
        layer=(("attention.qkv", _QKV), *LAYER[1:]),
        heads={
            "mlm": HeadNames(
                "lm_predictions.lm_head",
                (("dense", "dense"), ("layer_norm", "LayerNorm")),
                (("bias", "bias"),),
            ),
            "classifier": HeadNames("", _CLASSIFIER),
            **TASK_HEADS,
            "choice": HeadNames("choice_classifier", _CLASSIFIER, published=""),
        },
        left_out={
            "mask_predictions.": "replaced-token head",
            "embeddings.position_embeddings.": "absolute positions",
        },
        # As the class with ``legacy`` calls the head.
        aliases=(
            ("cls.predictions.transform.", "lm_predictions.lm_head."),
            ("cls.predictions.bias", "lm_predictions.lm_head.bias"),
        ),
        copies=(
            ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            ("cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
        ),
    ),
    keys=ConfigKeys(
        required=(*SIZES, *_VERSION_3),
        only={
            **PLAIN_ENCODER,
            **_VERSION_3,
            "conv_kernel_size": ((0, None), "DeBERTa-v2's convolution"),
        },
        written={
            **WRITTEN,
            **{key: allowed[0] for key, (allowed, _) in _VERSION_3.items()},
            # The head that fills masks as the published files have it.
            "legacy": False,
        },
        renamed={"classifier_dropout": "cls_dropout"},
        # Which class fills masks: both compute the same.
        ignored=frozenset({"legacy", "pooler_hidden_size"}),
    ),
    tokenizer="unigram",
    objectives=("mlm", "mlm-neighbours"),
    input_format="full-sentences",
    presets=PRESETS,
)
