"""GPT-1 as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertine.interop.bert import PLAIN_ENCODER, TASK_HEADS
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, WeightNames
from bertine.models.causal.config import PRESETS, OpenAIGPTConfig
from bertine.models.config import Config

#: What ``afn`` calls the activations. "gelu" is the form with tanh there, in transformers too.
_ACTIVATIONS = {"gelu": "gelu_new", "swish": "silu"}


def _flat(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Give the keys of a file the form of our fields."""
    width, name = values.get("n_embd"), values.get("afn", "gelu")
    flat = {**values, "afn": _ACTIVATIONS.get(name, name) if isinstance(name, str) else name}
    if isinstance(width, int):
        flat.setdefault("n_inner", 4 * width)
    return flat


def _nested(config: Config) -> Mapping[str, Any]:
    theirs = {ours: name for name, ours in _ACTIVATIONS.items()}
    return {"afn": theirs.get(config.hidden_act, config.hidden_act)}


FAMILY = Family(
    config=OpenAIGPTConfig,
    class_prefix="OpenAIGPT",
    names=WeightNames(
        prefix="transformer.",
        encoder=("tokens_embed.", "positions_embed.", "h."),
        tables=(
            ("backbone.embeddings.word_embeddings.weight", "tokens_embed.weight"),
            ("backbone.embeddings.position_embeddings.weight", "positions_embed.weight"),
        ),
        modules=(),
        layers=("backbone.layers.{}", "h.{}"),
        layer=(
            ("attention.qkv", ("attn.c_attn",)),
            ("attention.out", ("attn.c_proj",)),
            ("attention_norm", ("ln_1",)),
            ("up", ("mlp.c_fc",)),
            ("down", ("mlp.c_proj",)),
            ("output_norm", ("ln_2",)),
        ),
        heads={
            "lm": HeadNames("lm_head"),
            "classifier": HeadNames("", (("out", "score"),)),
            "spans": TASK_HEADS["spans"],
            "choice": HeadNames("multiple_choice_head.summary", (("out", ""),)),
        },
        copies=(("lm_head.weight", "tokens_embed.weight"),),
        transposed=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),
        buffers=(r"h\.\d+\.attn\.bias",),
    ),
    keys=ConfigKeys(
        required=("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"),
        only={
            **{key: rule for key, rule in PLAIN_ENCODER.items() if key != "is_decoder"},
            "summary_type": (("cls_index", "last"), "another place for a classifier to read"),
            "summary_use_proj": ((True,), "a classifier without a layer"),
            "summary_activation": ((None,), "an activation in the classifier"),
            "summary_proj_to_labels": ((True,), "a classifier without outputs"),
            "n_special": ((0, None), "special tokens beside the vocabulary"),
        },
        written={"tie_word_embeddings": True},
        renamed={
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "hidden_act": "afn",
            "hidden_dropout_prob": "resid_pdrop",
            "attention_probs_dropout_prob": "attn_pdrop",
            "embedding_dropout": "embd_pdrop",
            "classifier_dropout": "summary_first_dropout",
            "layer_norm_eps": "layer_norm_epsilon",
        },
        ignored=frozenset({"n_ctx", "predict_special_tokens", "is_decoder"}),
        absent=frozenset({"type_vocab_size"}),
        flatten=_flat,
        nest=_nested,
    ),
    tokenizer="word-bpe",
    objectives=("clm",),
    input_format="running-text",
    presets=PRESETS,
)
