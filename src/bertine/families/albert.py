"""Define ALBERT: narrow embeddings, layers that share weights, and sentence-order prediction.

ALBERT (Lan et al. 2019, arXiv 1909.11942, section 3.1) is BERT with these; it predicts the order of
two sentences instead of the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from bertine.core.errors import BertineError
from bertine.families.bert import PLAIN_ENCODER, SIZES, TABLES, TASK_HEADS, WRITTEN
from bertine.models.config import MOST_LAYERS, Config
from bertine.models.config_file import ConfigKeys
from bertine.models.encoder import Encoder
from bertine.models.family import Family, HeadKind
from bertine.models.heads import HEADS, ClassificationHead
from bertine.models.tensor_names import HeadNames, WeightNames

#: ``shared_across_groups`` → the parts of a layer that all groups share.
_SHARED: Mapping[str, tuple[str, ...]] = {
    "nothing": (),
    "attention": ("attention", "attention_norm"),
    "feed-forward": ("up", "down", "output_norm"),
}


@dataclass(frozen=True)
class AlbertConfig(Config):
    """Sizes and rates of an ALBERT (table 1 of the paper; defaults are albert-base, version 2).

    The layers form groups. A token passes ``num_hidden_layers`` times through a group: the first
    groups first, and each about equally often. A group has ``inner_group_num`` layers. One group
    shares all weights; as many groups as layers share none (the paper's table 4).

    Attributes:
        embedding_size: the width E of the embeddings, which a linear layer maps to the width of
            the states.
        num_hidden_groups: groups of layers with weights of their own.
        inner_group_num: layers of a group.
        shared_across_groups: what all groups share: nothing, or the attention or the feed-forward
            part of each layer, with its norm (table 4 again). Only Bertine has this key:
            transformers does not know it, so files for it hold the weights once for each group.

    Raises:
        BertineError: also if there are more groups than layers, or the shared part is unknown.
    """

    model_type: ClassVar[str] = "albert"
    title: ClassVar[str] = "ALBERT"

    vocab_size: int = 30000
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout: float | None = 0.1
    embedding_size: int = 128
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    shared_across_groups: str = "nothing"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sizes("embedding_size", "inner_group_num")
        if not 1 <= self.num_hidden_groups <= self.num_hidden_layers:
            raise BertineError(
                f"num_hidden_groups is {self.num_hidden_groups}, but must be between 1 and "
                f"num_hidden_layers, which is {self.num_hidden_layers}"
            )
        if self.num_hidden_layers * self.inner_group_num > MOST_LAYERS:
            raise BertineError(
                f"num_hidden_layers {self.num_hidden_layers:,} times inner_group_num "
                f"{self.inner_group_num:,} is more than {MOST_LAYERS:,} layers"
            )
        if self.shared_across_groups not in _SHARED:
            raise BertineError(
                f"shared_across_groups is {self.shared_across_groups!r}, but must be one of "
                f"{', '.join(_SHARED)}"
            )

    def with_layers(self, count: int) -> Self:
        """Return a copy with `count` layers, in at most as many groups."""
        groups = min(count, self.num_hidden_groups)
        return self.replace(num_hidden_layers=count, num_hidden_groups=groups)

    @property
    def embedding_width(self) -> int:
        return self.embedding_size

    @property
    def projects_embeddings(self) -> bool:
        """True: transformers has the linear layer even if E is H."""
        return True

    @property
    def layer_counts(self) -> Mapping[str, int]:
        return {
            "num_hidden_groups": self.num_hidden_groups,
            "inner_group_num": self.inner_group_num,
        }

    @property
    def passes(self) -> Sequence[int]:
        """The i-th pass uses the group ``int(i / (layers / groups))``, as in transformers. The
        published code's ``int(i / layers * groups)`` differs only for a few numbers of groups that
        no published model has, such as 14 of 18 layers, or 22 of 22."""
        inner, share = self.inner_group_num, self.num_hidden_layers / self.num_hidden_groups
        return [
            int(time / share) * inner + number
            for time in range(self.num_hidden_layers)
            for number in range(inner)
        ]

    @property
    def tied_modules(self) -> Mapping[str, str]:
        inner = self.inner_group_num
        return {
            f"layers.{number}.{part}": f"layers.{number % inner}.{part}"
            for number in range(inner, self.num_hidden_groups * inner)
            for part in _SHARED[self.shared_across_groups]
        }

    def with_layer_on_top(self) -> AlbertConfig:
        """Return the config of a model with one more layer, which shares no weights."""
        layers = len(self.passes) + 1
        return self.replace(
            num_hidden_layers=layers,
            num_hidden_groups=layers,
            inner_group_num=1,
            shared_across_groups="nothing",
        )

    @property
    def num_parameters(self) -> int:
        width, inner = self.hidden_size, self.intermediate_size
        parts = {
            "nothing": 0,
            "attention": 4 * (width * width + width) + 2 * width,
            "feed-forward": 2 * width * inner + inner + width + 2 * width,
        }
        tied = math.prod(self.layer_counts.values()) - self.inner_group_num
        return super().num_parameters - tied * parts[self.shared_across_groups]


#: Preset → architecture (table 1 of the paper; heads, activation and dropout of the published
#: version 2).
PRESETS: Mapping[str, AlbertConfig] = {
    "albert-base": AlbertConfig.of_size(12, 768),
    "albert-large": AlbertConfig.of_size(24, 1024),
    "albert-xlarge": AlbertConfig.of_size(24, 2048, num_attention_heads=16),
    "albert-xxlarge": AlbertConfig.of_size(12, 4096),
}


# transformers' format: names of weights and keys of ``config.json``.

FAMILY = Family(
    config=AlbertConfig,
    heads={
        # There to compare the two exercises (table 5); transformers does not have it.
        "nsp": replace(HEADS["nsp"], published=False),
        "mlm": HEADS["mlm"],
        # transformers has it beside the MLM head alone; 0 is "in order", 1 is "swapped".
        "sop": HeadKind(
            *("pooled", lambda config, _: ClassificationHead(config, 2), "SOP head"),
            suffix="ForSentenceOrderPrediction",
            published=False,
        ),
        **{name: kind for name, kind in HEADS.items() if name not in ("nsp", "mlm")},
    },
    # A bare encoder and models whose heads read it have a pooler; published models that fill masks,
    # tag or find spans have none.
    new_backbone=Encoder,
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
)
