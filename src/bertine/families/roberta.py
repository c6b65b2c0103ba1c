"""Define RoBERTa, XLM-R and CamemBERT: their head, their configs, their published sizes.

RoBERTa (Liu et al. 2019, arXiv 1907.11692) is BERT's encoder with one segment, positions that
count from the padding's on, and a classifier that has a dense layer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bertine.core.names import TokenizerKind
from bertine.families.bert import PLAIN_ENCODER, SIZES, WRITTEN, encoder_names
from bertine.models.config import Config
from bertine.models.config_file import ConfigKeys
from bertine.models.encoder import Encoder
from bertine.models.family import Family
from bertine.models.heads import HEADS, DenseHead, MlmHead
from bertine.models.tensor_names import HeadNames


@dataclass(frozen=True)
class RobertaConfig(Config):
    """Sizes and rates of a RoBERTa. The defaults are those of transformers' class; roberta-base is
    a preset.

    The first real token has the position ``pad_token_id + 1``, so the longest input is that many
    tokens shorter than ``max_position_embeddings``.
    """

    model_type: ClassVar[str] = "roberta"
    title: ClassVar[str] = "RoBERTa"
    #: Separators, not token types, mark the two texts of a pair.
    num_segments = 2

    vocab_size: int = 50265
    pad_token_id: int = 1

    @property
    def first_position(self) -> int:
        return self.pad_token_id + 1


@dataclass(frozen=True)
class XlmRobertaConfig(RobertaConfig):
    """Sizes and rates of an XLM-R (Conneau et al. 2019, arXiv 1911.02116): RoBERTa with a
    vocabulary for a hundred languages."""

    model_type: ClassVar[str] = "xlm-roberta"
    title: ClassVar[str] = "XLM-R"

    vocab_size: int = 250002


@dataclass(frozen=True)
class CamembertConfig(RobertaConfig):
    """Sizes and rates of a CamemBERT (Martin et al. 2019, arXiv 1911.03894): RoBERTa with a French
    vocabulary."""

    model_type: ClassVar[str] = "camembert"
    title: ClassVar[str] = "CamemBERT"

    vocab_size: int = 32005


#: What all published models share.
_PUBLISHED: Mapping[str, Any] = {
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}

#: Preset → architecture (table 9 of the paper, the published files).
PRESETS: Mapping[str, RobertaConfig] = {
    "roberta-base": RobertaConfig.of_size(12, 768, **_PUBLISHED),
    "roberta-large": RobertaConfig.of_size(24, 1024, **_PUBLISHED),
}
#: Preset → architecture of XLM-R (section 3 of its paper), and of CamemBERT.
XLM_R_PRESETS: Mapping[str, XlmRobertaConfig] = {
    "xlm-roberta-base": XlmRobertaConfig.of_size(12, 768, **_PUBLISHED),
    "xlm-roberta-large": XlmRobertaConfig.of_size(24, 1024, **_PUBLISHED),
}
CAMEMBERT_PRESETS: Mapping[str, CamembertConfig] = {
    "camembert-base": CamembertConfig.of_size(12, 768, **_PUBLISHED),
}


# transformers' format: names of weights and keys of ``config.json``. RoBERTa, XLM-R and CamemBERT
# differ only in their vocabularies.

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
    """Return the family of one of the RoBERTas.

    Args:
        tokenizer: the kind of its published tokenizers.
        first, last: the ids of ``<s>`` and ``</s>`` in them.
    """
    return Family(
        config=config,
        heads={
            **{name: kind for name, kind in HEADS.items() if name != "nsp"},
            # Its activation does not follow `hidden_act`.
            "mlm": replace(HEADS["mlm"], new=lambda config, _: MlmHead(config, "gelu")),
            # fairseq, ``RobertaClassificationHead``.
            "classifier": replace(HEADS["classifier"], reads="first", new=DenseHead),
        },
        # A bare encoder and multiple choice have a pooler; published models that fill masks,
        # classify or tag have none.
        new_backbone=Encoder,
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
