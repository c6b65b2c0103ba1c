"""Name the variables of Google's programs: tables from their names to canonical names.

Those are in :mod:`bertine.models.tensor_names`. A dense layer's ``kernel`` is [in, out], the
transpose of our weight; a norm's ``gamma`` and ``beta`` are its weight and bias.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from bertine.models.config import Config

#: Variable of a module → our name, and whether it is transposed.
_OF_MODULE = {
    "kernel": ("weight", True),
    "bias": ("bias", False),
    "gamma": ("weight", False),
    "beta": ("bias", False),
}
#: The variables that the optimizers of these programs, and TensorFlow's own, add for each one.
_SLOTS = ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1", "LAMB", "LAMB_1", "Momentum")
#: Their variables for the whole run: numbers.
_OF_RUN = frozenset(
    ("global_step", "beta1_power", "beta2_power", "loss_scale", "good_steps", "bad_steps")
)
#: The prefix of every name in some exports.
_PREFIX = "module/"

#: Pairs (variable, canonical tensor) that the programs share: the embeddings.
EMBEDDING_TABLES = tuple(
    (f"bert/embeddings/{kind}_embeddings", f"embeddings.{kind}_embeddings.weight")
    for kind in ("word", "position", "token_type")
)
#: Those of the pooler and of pre-training's heads in BERT and MobileBERT: modules and tensors.
_HEAD_MODULES = (
    ("bert/pooler/dense", "pooler.dense"),
    ("cls/predictions/transform/dense", "cls.predictions.transform.dense"),
    ("cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
)
_HEAD_TENSORS = (
    ("cls/predictions/output_bias", "cls.predictions.bias"),
    ("cls/seq_relationship/output_weights", "cls.seq_relationship.weight"),
    ("cls/seq_relationship/output_bias", "cls.seq_relationship.bias"),
)
#: Those of the heads that fine-tuning trains.
TASK_TENSORS = (
    ("output_weights", "classifier.weight"),
    ("output_bias", "classifier.bias"),
    ("cls/squad/output_weights", "qa_outputs.weight"),
    ("cls/squad/output_bias", "qa_outputs.bias"),
)


class VariablePlace(NamedTuple):
    """The place of a variable in the model.

    Attributes:
        name: its canonical name; for a variable of several layers, with their number as {}.
        transposed: whether it is transposed there.
        dimensions: of one layer's part of a variable of several layers; 0: it belongs to one
            tensor.
    """

    name: str
    transposed: bool
    dimensions: int = 0

    def parts(self, shape: tuple[int, ...], layers: int) -> list[tuple[str, int | None]]:
        """Return the canonical names of the tensors of a variable of this `shape`, and the index of
        each along its first dimension; None: the whole variable."""
        if not self.dimensions:
            return [(self.name, None)]
        if len(shape) == self.dimensions:
            return [(self.name.format(layer), None) for layer in range(layers)]
        return [(self.name.format(layer), layer) for layer in range(min(shape[0], 10_000))]


class Gelu(NamedTuple):
    """The meaning of "gelu" in a checkpoint: the name of that activation here, and the reason."""

    name: str
    why: str


def tanh_gelu(config: Config, trained_here: bool) -> Gelu:
    """Return the meaning of "gelu" for a program that always had the form with tanh."""
    return Gelu("gelu_new", f"with tanh, as in Google's {config.title}")


@dataclass(frozen=True)
class Variables:
    """The variables of Google's program for a model type, and its configuration.

    Attributes:
        modules: pairs (scope, canonical module); {} is a number, * any name.
        tensors: pairs (variable, canonical tensor); {} is a number.
        transposed: the same for tensors that are transposed here.
        stacked: the same for variables that hold all layers, with the dimensions of a layer's part;
            {} is the layer's number here. If the variable has no dimension for the layers, they all
            have the same values.
        classifier: the canonical name of the bias of a classifier.
        summary: the prefix of the canonical names of the layer that the program always creates
            before a classifier, even without one; "" if it creates none.
        key: a key of the configuration that no other program's has; "" if there is none.
        defaults: keys of the configuration that may be missing, with their defaults, if these
            differ from transformers'.
        identities: canonical modules that the program leaves out where input and output widths are
            equal.
        gelu: (config, whether the checkpoint has an optimizer's state) → the meaning of "gelu".
        strangers: parts of names in other networks → the name of the network.
    """

    modules: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, str], ...]
    transposed: tuple[tuple[str, str], ...] = ()
    stacked: tuple[tuple[str, str, int], ...] = ()
    classifier: str = "classifier.bias"
    summary: str = ""
    key: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    identities: tuple[str, ...] = ()
    gelu: Callable[[Config, bool], Gelu] = tanh_gelu
    strangers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str, bool]]:
        rows = [
            (f"{scope}/{leaf}", f"{module}.{ours}", transposed)
            for scope, module in self.modules
            for leaf, (ours, transposed) in _OF_MODULE.items()
        ]
        rows += [(variable, tensor, False) for variable, tensor in self.tensors]
        rows += [(variable, tensor, True) for variable, tensor in self.transposed]
        return [
            (
                re.compile(
                    re.escape(name).replace(r"\{\}", r"(\d{1,8})").replace(r"\*", "[^/]{1,200}")
                ),
                canonical,
                transposed,
            )
            for name, canonical, transposed in rows
        ]

    def place(self, variable: str) -> VariablePlace | None:
        """Return the place of `variable`; None if the program has none of this name."""
        for name, canonical, dimensions in self.stacked:
            if variable == name:
                return VariablePlace(canonical, False, dimensions)
        for pattern, canonical, transposed in self._patterns:
            if match := pattern.fullmatch(variable):
                return VariablePlace(canonical.format(*match.groups()), transposed)
        return None

    def stranger(self, names: Iterable[str]) -> str:
        """Return which other network has variables of these `names`; "" if unknown."""
        marks = [
            (mark, whose)
            for name in names
            for mark, whose in self.strangers.items()
            if mark in name
        ]
        return marks[0][1] if marks else ""


def plain_name(variable: str) -> str:
    """Return `variable` without the prefix of exports."""
    return variable.removeprefix(_PREFIX)


def is_left_out(variable: str) -> bool:
    """Return whether `variable` is an optimizer's or a step counter, not a weight of the model."""
    return variable in _OF_RUN or variable.rpartition("/")[2] in _SLOTS


# BERT (google-research/bert: ``modeling.py``, ``run_pretraining.py``, ``run_classifier.py``,
# ``run_squad.py``).

#: Vocabulary sizes of Google's models of October and November 2018: English uncased and cased,
#: multilingual uncased and cased, Chinese; below, their numbers of layers and widths.
_VOCABULARIES_OF_2018 = (30522, 28996, 105879, 119547, 21128)
_SHAPES_OF_2018 = ((12, 768), (24, 1024))


def _gelu(config: Config, trained_here: bool) -> Gelu:
    """Return the meaning of "gelu" in a BERT.

    The program had the exact form, with erf, until 7 February 2019 (commit bee6030) and has had the
    one with tanh since; the configurations always say "gelu". The models that Google published in
    2018 were trained with erf, and transformers' copies of them compute it. They are recognized by
    their sizes and by the lack of an optimizer's state, which further training would leave.
    """
    shape = (config.num_hidden_layers, config.hidden_size)
    if config.vocab_size in _VOCABULARIES_OF_2018 and shape in _SHAPES_OF_2018 and not trained_here:
        return Gelu("gelu", "with erf, as in Google's models of 2018, which have these sizes")
    return Gelu("gelu_new", "with tanh, as in Google's program since February 2019")


_BERT = "bert/encoder/layer_{}"

BERT_VARIABLES = Variables(
    modules=(
        ("bert/embeddings/LayerNorm", "embeddings.LayerNorm"),
        *(
            (f"{_BERT}/{module}", f"encoder.layer.{{}}.{module.replace('/', '.')}")
            for module in (
                "attention/self/query",
                "attention/self/key",
                "attention/self/value",
                "attention/output/dense",
                "attention/output/LayerNorm",
                "intermediate/dense",
                "output/dense",
                "output/LayerNorm",
            )
        ),
        *_HEAD_MODULES,
    ),
    tensors=(*EMBEDDING_TABLES, *_HEAD_TENSORS, *TASK_TENSORS),
    defaults={"type_vocab_size": 16},
    gelu=_gelu,
)


# ALBERT (google-research/albert: ``modeling.py``, ``run_pretraining.py``, ``classifier_utils.py``,
# ``squad_utils.py``).

_BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}"
_BLOCK_HERE = "encoder.albert_layer_groups.{}.albert_layers.{}"

ALBERT_VARIABLES = Variables(
    modules=(
        ("bert/embeddings/LayerNorm", "embeddings.LayerNorm"),
        ("bert/encoder/embedding_hidden_mapping_in", "encoder.embedding_hidden_mapping_in"),
        *(
            (f"{_BLOCK}/{scope}", f"{_BLOCK_HERE}.{module}")
            for scope, module in (
                ("attention_1/self/query", "attention.query"),
                ("attention_1/self/key", "attention.key"),
                ("attention_1/self/value", "attention.value"),
                ("attention_1/output/dense", "attention.dense"),
                ("LayerNorm", "attention.LayerNorm"),
                ("ffn_1/intermediate/dense", "ffn"),
                ("ffn_1/intermediate/output/dense", "ffn_output"),
                ("LayerNorm_1", "full_layer_layer_norm"),
            )
        ),
        ("bert/pooler/dense", "pooler"),
        ("cls/predictions/transform/dense", "predictions.dense"),
        ("cls/predictions/transform/LayerNorm", "predictions.LayerNorm"),
    ),
    tensors=(
        *EMBEDDING_TABLES,
        ("cls/predictions/output_bias", "predictions.bias"),
        ("cls/seq_relationship/output_weights", "sop_classifier.classifier.weight"),
        ("cls/seq_relationship/output_bias", "sop_classifier.classifier.bias"),
        *TASK_TENSORS,
    ),
    key="num_hidden_groups",
    identities=("encoder.embedding_hidden_mapping_in",),
    strangers={
        "layer_shared": "brightmart's albert_zh",
        "word_embeddings_2": "brightmart's albert_zh",
    },
)


# MobileBERT (google-research, ``mobilebert``: ``modeling.py``, ``run_pretraining.py``,
# ``run_classifier.py``, ``run_squad.py``).

_MOBILE, _MOBILE_HERE = "bert/encoder/layer_{}", "encoder.layer.{}"
#: Of a layer: dense layers, and scopes that hold a dense layer and a norm.
_DENSE = (
    "attention/self/query",
    "attention/self/key",
    "attention/self/value",
    "intermediate/dense",
    "ffn_layer_{}/intermediate/dense",
)
_WITH_NORM = (
    "bottleneck/input",
    "bottleneck/attention",
    "attention/output",
    "output",
    "output/bottleneck",
    "ffn_layer_{}/output",
)
#: The names of a norm and of its replacement.
_NORMS = ("LayerNorm", "FakeLayerNorm")


def _mobilebert_modules() -> tuple[tuple[str, str], ...]:
    """Return the scopes and the modules of a layer, in pairs."""
    scopes = [*_DENSE, *(f"{scope}/{part}" for scope in _WITH_NORM for part in ("dense", *_NORMS))]
    pairs = []
    for scope in scopes:
        module = scope.replace("ffn_layer_", "ffn.").replace("Fake", "").replace("/", ".")
        pairs.append((f"{_MOBILE}/{scope}", f"{_MOBILE_HERE}.{module}"))
    return tuple(pairs)


MOBILEBERT_VARIABLES = Variables(
    modules=(
        *((f"bert/embeddings/{norm}", "embeddings.LayerNorm") for norm in _NORMS),
        ("bert/embeddings/embedding_transformation", "embeddings.embedding_transformation"),
        *_mobilebert_modules(),
        *_HEAD_MODULES,
    ),
    tensors=(*EMBEDDING_TABLES, *_HEAD_TENSORS, *TASK_TENSORS),
    transposed=(("cls/predictions/extra_output_weights", "cls.predictions.dense.weight"),),
    key="use_bottleneck",
    defaults={
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "type_vocab_size": 16,
        "trigram_input": False,
        "use_bottleneck": False,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": False,
        "num_feedforward_networks": 1,
        "normalization_type": "layer_norm",
    },
    identities=("embeddings.embedding_transformation",),
)


# XLNet (zihangdai/xlnet: ``modeling.py``, ``function_builder.py``).

_XLNET, _XLNET_HERE = "model/transformer/layer_{}", "layer.{}"

XLNET_VARIABLES = Variables(
    modules=(
        (f"{_XLNET}/rel_attn/LayerNorm", f"{_XLNET_HERE}.rel_attn.layer_norm"),
        (f"{_XLNET}/ff/LayerNorm", f"{_XLNET_HERE}.ff.layer_norm"),
        (f"{_XLNET}/ff/layer_1", f"{_XLNET_HERE}.ff.layer_1"),
        (f"{_XLNET}/ff/layer_2", f"{_XLNET_HERE}.ff.layer_2"),
        # Misspelt in the program, and therefore in every checkpoint.
        ("model/sequnece_summary/summary", "sequence_summary.summary"),
        ("model/classification_*/logit", "logits_proj"),
        ("model/regression_*/logit", "logits_proj"),
        # Weights for spans by beam search, which is not implemented.
        *(
            (f"model/{part}", part.replace("/", "."))
            for part in (
                "start_logits/dense",
                "end_logits/dense_0",
                "end_logits/dense_1",
                "end_logits/LayerNorm",
                "answer_class/dense_0",
                "answer_class/dense_1",
            )
        ),
    ),
    tensors=(
        ("model/transformer/word_embedding/lookup_table", "word_embedding.weight"),
        ("model/transformer/mask_emb/mask_emb", "mask_emb"),
        ("model/lm_loss/bias", "lm_loss.bias"),
        *(
            (f"{_XLNET}/rel_attn/{matrix}/kernel", f"{_XLNET_HERE}.rel_attn.{matrix}")
            for matrix in "qkvor"
        ),
    ),
    stacked=(
        *(
            (f"model/transformer/{bias}", f"{_XLNET_HERE}.rel_attn.{bias}", 2)
            for bias in ("r_w_bias", "r_r_bias", "r_s_bias")
        ),
        ("model/transformer/seg_embed", f"{_XLNET_HERE}.rel_attn.seg_embed", 3),
    ),
    classifier="logits_proj.bias",
    summary="sequence_summary.",
)


#: Model type → the variables of its program.
VARIABLES = {
    "mobilebert": MOBILEBERT_VARIABLES,
    "bert": BERT_VARIABLES,
    "albert": ALBERT_VARIABLES,
    "xlnet": XLNET_VARIABLES,
}
