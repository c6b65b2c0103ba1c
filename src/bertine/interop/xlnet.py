"""XLNet as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.interop.bert import PLAIN_ENCODER, TASK_HEADS
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, WeightNames
from bertine.interop.tensorflow.xlnet import VARIABLES
from bertine.models.xlnet.config import PRESETS, XlnetConfig
from bertine.terminal.text import briefly

#: A head's dense layer and its last one.
_CLASSIFIER = (("dense", "sequence_summary.summary"), ("out", "logits_proj"))


def _flat(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Give the keys of a file the form of our fields."""
    flat = dict(values)
    if "n_token" in flat:
        flat.setdefault("vocab_size", flat.pop("n_token"))
    # transformers has one rate for both, the authors' program two.
    if "dropout" in flat:
        flat.setdefault("dropatt", flat["dropout"])
    width, heads, size = (flat.get(key) for key in ("d_model", "n_head", "d_head"))
    if type(size) is int and type(width) is int and type(heads) is int and size * heads != width:
        raise BertineError(
            f"{path}: d_head is {briefly(size)}, but must be d_model / n_head, of {width} and "
            f"{heads}"
        )
    return flat


def _nested(config: Any) -> Mapping[str, Any]:
    return {"d_head": config.head_size}


FAMILY = Family(
    config=XlnetConfig,
    class_prefix="XLNet",
    names=WeightNames(
        prefix="transformer.",
        encoder=("word_embedding.", "mask_emb", "layer."),
        tables=(
            ("backbone.embeddings.word_embeddings.weight", "word_embedding.weight"),
            ("backbone.embeddings.unknown", "mask_emb"),
        ),
        modules=(),
        layers=("backbone.layers.{}", "layer.{}"),
        layer=(
            ("attention_norm", ("rel_attn.layer_norm",)),
            ("up", ("ff.layer_1",)),
            ("down", ("ff.layer_2",)),
            ("output_norm", ("ff.layer_norm",)),
        ),
        layer_tensors=(
            ("attention.qkv.weight", ("rel_attn.q", "rel_attn.k", "rel_attn.v")),
            ("attention.offsets.weight", ("rel_attn.r",)),
            ("attention.out.weight", ("rel_attn.o",)),
            ("attention.content_bias", ("rel_attn.r_w_bias",)),
            ("attention.offset_bias", ("rel_attn.r_r_bias",)),
            ("attention.segment_bias", ("rel_attn.r_s_bias",)),
            ("attention.segments", ("rel_attn.seg_embed",)),
        ),
        heads={
            "plm": HeadNames("lm_loss", tensors=(("bias", "bias"),)),
            "classifier": HeadNames("", _CLASSIFIER),
            **{name: TASK_HEADS[name] for name in ("spans", "token_classifier", "choice")},
            "choice": HeadNames("choice_classifier", _CLASSIFIER, published=""),
        },
        left_out=dict.fromkeys(
            ("start_logits.", "end_logits.", "answer_class."), "span head with a beam"
        ),
        copies=(("lm_loss.weight", "word_embedding.weight"),),
        of_heads={
            **{f".rel_attn.{matrix}": False for matrix in "qkvr"},
            ".rel_attn.o": True,
        },
    ),
    keys=ConfigKeys(
        required=("vocab_size", "d_model", "n_layer", "n_head", "d_inner"),
        only={
            **PLAIN_ENCODER,
            "attn_type": (("bi",), "attention to what stands before alone"),
            "bi_data": ((False, None), "half of every batch read backwards"),
            "summary_type": (("last",), "another place for a classifier to read"),
            "summary_use_proj": ((True,), "a classifier without a layer of its own"),
            "summary_activation": (("tanh",), "another activation in the classifier"),
        },
        written={
            "attn_type": "bi",
            "bi_data": False,
            "mem_len": None,
            "untie_r": True,
            "summary_type": "last",
            "summary_use_proj": True,
            "summary_activation": "tanh",
            "tie_word_embeddings": True,
        },
        renamed={
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "d_inner",
            "hidden_act": "ff_activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "dropatt",
            "classifier_dropout": "summary_last_dropout",
            # There are no embeddings of positions; transformers takes no key of the usual name.
            "max_position_embeddings": "longest_input",
        },
        # How far back a memory goes is said by whoever carries one; the rest is for spans by a
        # beam, or says how weights began.
        ignored=frozenset(
            (
                *("d_head", "mem_len", "reuse_len", "same_length", "untie_r", "use_mems"),
                *("use_mems_eval", "use_mems_train", "start_n_top", "end_n_top"),
                *("summary_proj_to_labels", "summary_first_dropout", "init", "init_range"),
                *("init_std", "is_training", "use_tpu", "max_position_embeddings"),
            )
        ),
        absent=frozenset({"type_vocab_size"}),
        flatten=_flat,
        nest=_nested,
        ours=frozenset({"max_position_embeddings"}),
    ),
    tokenizer="unigram",
    objectives=("plm",),
    input_format="segment-pair",
    presets=PRESETS,
    variables=VARIABLES,
)
