"""ModernBERT as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.interop.bert import PLAIN_ENCODER, SIZES, TASK_HEADS
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, WeightNames
from bertine.models.heads import PAIR_CLASSIFIER, VECTOR_CLASSIFIER
from bertine.models.modern.config import GLOBAL, LOCAL, PRESETS, ModernBertConfig
from bertine.terminal.text import briefly

#: Before the last layer of every head.
_PREDICTION = (("dense", "head.dense"), ("layer_norm", "head.norm"))
_TASK = (*_PREDICTION, ("out", "classifier"))


def _task_head(name: str) -> HeadNames:
    """Return the names of a task's head, which begins with the layers of the MLM head: transformers
    calls all of them alike, "head" and "classifier"."""
    return HeadNames(name, _TASK, published="", adopts=_PREDICTION)


#: Kind of layer → our field for the base of its rotations' wavelengths, which is also the key of
#: older files.
_THETAS = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}


def _flatten(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Bring ``rope_parameters`` and ``layer_types``, of transformers 5, into the form of our
    fields, which is that of the published files."""
    values = dict(values)
    _rotations(path, values)
    types, every = values.get("layer_types"), values.get("global_attn_every_n_layers")
    count = values.get("num_hidden_layers")
    if not isinstance(types, list) or type(count) is not int:
        return values
    if len(types) != count:
        raise BertineError(
            f"{path}: layer_types has {len(types)} layers, but num_hidden_layers is {count}; "
            "correct whichever is wrong"
        )
    # A pattern in words of one number: the layers of a model that is made of this one may be more.
    # It is where the second global layer is, or, without one, beyond the last.
    second = types.index(GLOBAL, 1) if GLOBAL in types[1:] else count
    for number in (every, second):
        if type(number) is int and number >= 1:
            pattern = [LOCAL if layer % number else GLOBAL for layer in range(count)]
            if pattern == types:
                return values | {"layer_types": None, "global_attn_every_n_layers": number}
    return values


def _rotations(path: Path, values: dict[str, Any]) -> None:
    """Replace ``rope_parameters`` by the bases that it has.

    Raises:
        BertineError: positions are scaled, or it is not of the form that transformers writes.
    """
    parameters = values.pop("rope_parameters", None)
    if parameters is None:
        return
    if not isinstance(parameters, dict) or not set(parameters) <= set(_THETAS):
        raise BertineError(
            f"{path}: rope_parameters is {briefly(parameters)}, but must be an object of "
            f"{GLOBAL} and {LOCAL}"
        )
    for kind, key in _THETAS.items():
        of_kind = parameters.get(kind)
        if of_kind is None:
            continue
        if not isinstance(of_kind, dict):
            raise BertineError(
                f"{path}: {kind} in rope_parameters is {briefly(of_kind)}, but must be an object "
                "with a rope_theta"
            )
        for name, value in of_kind.items():
            if name == "rope_theta":
                values[key] = value
            elif (name, value) not in (("rope_type", "default"), ("type", "default")):
                raise BertineError(
                    f"{path}: {name} in rope_parameters is {briefly(value)} (scaled positions), "
                    "which Bertine's ModernBERT does not have; only 'default' can be loaded"
                )


def _nest(config: ModernBertConfig) -> Mapping[str, Any]:
    """Write what transformers 5 reads beside the keys of older versions."""
    return {
        "layer_types": list(config.kinds),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": getattr(config, key)}
            for kind, key in _THETAS.items()
        },
    }


FAMILY = Family(
    config=ModernBertConfig,
    class_prefix="ModernBert",
    names=WeightNames(
        prefix="model.",
        encoder=("embeddings.", "layers.", "final_norm."),
        tables=(
            ("backbone.embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight"),
        ),
        modules=(
            ("backbone.embeddings.layer_norm", "embeddings.norm"),
            ("backbone.final_norm", "final_norm"),
        ),
        layers=("backbone.layers.{}", "layers.{}"),
        layer=(
            ("attention_norm", ("attn_norm",)),
            ("attention.qkv", ("attn.Wqkv",)),
            ("attention.out", ("attn.Wo",)),
            ("feed_forward_norm", ("mlp_norm",)),
            ("feed_forward.up", ("mlp.Wi",)),
            ("feed_forward.down", ("mlp.Wo",)),
        ),
        heads={
            "mlm": HeadNames("", _PREDICTION, (("bias", "decoder.bias"),)),
            "classifier": _task_head("text_head"),
            "spans": _task_head("span_head"),
            "token_classifier": _task_head("token_head"),
            "choice": _task_head("choice_head"),
            **{name: TASK_HEADS[name] for name in (VECTOR_CLASSIFIER, PAIR_CLASSIFIER)},
        },
        copies=(("decoder.weight", "embeddings.tok_embeddings.weight"),),
    ),
    keys=ConfigKeys(
        required=SIZES,
        only={
            **PLAIN_ENCODER,
            "rope_scaling": ((None,), "scaled positions"),
            "initializer_cutoff_factor": ((2.0,), "another cut of new weights"),
        },
        # The tokenizer has the special tokens; the defaults of transformers are the published ids.
        written={
            **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
            "tie_word_embeddings": True,
        },
        renamed={
            "hidden_act": "hidden_activation",
            "hidden_dropout_prob": "mlp_dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "layer_norm_eps": "norm_eps",
        },
        ignored=frozenset(
            (
                *("cls_token_id", "deterministic_flash_attn", "reference_compile"),
                *("repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index"),
                "layer_norm_eps",  # in published files, where norm_eps is what is read
            )
        ),
        absent=frozenset({"type_vocab_size"}),
        flatten=_flatten,
        nest=_nest,
    ),
    tokenizer="byte-bpe",
    objectives=("mlm", "mlm-neighbours"),
    input_format="full-sentences",
    presets=PRESETS,
)
