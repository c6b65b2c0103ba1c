"""RoBERTa, XLM-R and CamemBERT as transformers writes them: names of weights, keys of
``config.json``. They differ in their vocabularies alone."""

from __future__ import annotations

from collections.abc import Mapping

from bertine.interop.bert import PLAIN_ENCODER, SIZES, WRITTEN, encoder_names
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames
from bertine.models.roberta import (
    CAMEMBERT_PRESETS,
    PRESETS,
    XLM_R_PRESETS,
    CamembertConfig,
    RobertaConfig,
    XlmRobertaConfig,
)
from bertine.names import TokenizerKind

_NAMES = encoder_names(
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
)


def _family(
    config: type[RobertaConfig],
    class_prefix: str,
    presets: Mapping[str, RobertaConfig],
    *,
    tokenizer: TokenizerKind,
    first: int,
    last: int,
) -> Family:
    """Return the constant of a RoBERTa.

    Args:
        tokenizer: the kind of its published tokenizers.
        first, last: the ids of ``<s>`` and ``</s>`` there.
    """
    return Family(
        config=config,
        class_prefix=class_prefix,
        names=_NAMES,
        keys=ConfigKeys(
            required=SIZES,
            only=PLAIN_ENCODER,
            written=dict(WRITTEN) | {"bos_token_id": first, "eos_token_id": last},
        ),
        tokenizer=tokenizer,
        objectives=("mlm", "mlm-neighbours"),
        input_format="full-sentences",
        presets=presets,
    )


FAMILY = _family(RobertaConfig, "Roberta", PRESETS, tokenizer="byte-bpe", first=0, last=2)
XLM_ROBERTA = _family(
    XlmRobertaConfig, "XLMRoberta", XLM_R_PRESETS, tokenizer="unigram", first=0, last=2
)
CAMEMBERT = _family(
    CamembertConfig, "Camembert", CAMEMBERT_PRESETS, tokenizer="unigram", first=5, last=6
)
