"""BART as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.files import read_json_object
from bertine.interop.bert import PLAIN_ENCODER, TASK_HEADS
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.generation_config import FORCED, GENERATION_CONFIG
from bertine.interop.names import HeadNames, LayerRows, LayerStack, WeightNames
from bertine.models.bart.config import PRESETS, BartConfig

#: The halves of a layer that both sides have.
_ATTENTION: LayerRows = (
    ("attention.qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    ("attention.out", ("self_attn.out_proj",)),
    ("attention_norm", ("self_attn_layer_norm",)),
)
_FEED_FORWARD: LayerRows = (
    ("up", ("fc1",)),
    ("down", ("fc2",)),
    ("output_norm", ("final_layer_norm",)),
)
_CROSS: LayerRows = (
    ("cross.q", ("encoder_attn.q_proj",)),
    ("cross.kv", ("encoder_attn.k_proj", "encoder_attn.v_proj")),
    ("cross.out", ("encoder_attn.out_proj",)),
    ("cross_norm", ("encoder_attn_layer_norm",)),
)


def _flat(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Take the older name of a rate for the one of now, where only that is there, and the tokens
    that texts are forced to begin and to end with from where transformers looks first."""
    flat = dict(values)
    beside = path.with_name(GENERATION_CONFIG)
    if beside.is_file():
        chosen = read_json_object(beside)
        flat |= {name: chosen.get(name) for name in FORCED}
    if "classif_dropout" in flat:
        flat.setdefault("classifier_dropout", flat.pop("classif_dropout"))
    return flat


FAMILY = Family(
    config=BartConfig,
    class_prefix="Bart",
    names=WeightNames(
        prefix="model.",
        encoder=("shared.", "encoder.", "decoder."),
        tables=(
            ("backbone.embeddings.word_embeddings.weight", "shared.weight"),
            ("backbone.embeddings.position_embeddings.weight", "encoder.embed_positions.weight"),
            (
                "backbone.decoder_embeddings.position_embeddings.weight",
                "decoder.embed_positions.weight",
            ),
        ),
        modules=(
            ("backbone.embeddings.layer_norm", "encoder.layernorm_embedding"),
            ("backbone.decoder_embeddings.layer_norm", "decoder.layernorm_embedding"),
        ),
        layers=("backbone.layers.{}", "encoder.layers.{}"),
        layer=(*_ATTENTION, *_FEED_FORWARD),
        above=(
            LayerStack(
                "decoder_layers", "decoder.layers.{}", (*_ATTENTION, *_CROSS, *_FEED_FORWARD)
            ),
        ),
        heads={
            "lm": HeadNames(
                "final_logits_bias", tensors=(("final_logits_bias", ""),), constant=True
            ),
            "classifier": HeadNames(
                "classification_head", (("dense", "dense"), ("out", "out_proj"))
            ),
            **TASK_HEADS,
        },
        copies=(
            ("encoder.embed_tokens.weight", "shared.weight"),
            ("decoder.embed_tokens.weight", "shared.weight"),
            ("lm_head.weight", "shared.weight"),
        ),
    ),
    keys=ConfigKeys(
        required=(
            "vocab_size",
            "d_model",
            "encoder_layers",
            "decoder_layers",
            "encoder_attention_heads",
            "decoder_attention_heads",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
        ),
        only={
            **{
                key: rule
                for key, rule in PLAIN_ENCODER.items()
                if key not in ("is_encoder_decoder", "position_embedding_type")
            },
            "is_encoder_decoder": ((True,), "one half of the model alone"),
            "scale_embedding": ((False,), "embeddings times the root of their width"),
            "normalize_before": ((False,), "norms before the parts of a layer"),
            "normalize_embedding": ((True,), "embeddings without a norm"),
            "add_final_layer_norm": ((False,), "a norm behind the layers"),
            "add_bias_logits": ((False,), "a trained bias of the words"),
            "static_position_embeddings": ((False,), "positions as waves"),
            "extra_pos_embeddings": ((2,), "another number of rows before the positions"),
            "encoder_layerdrop": ((0.0,), "layers that are left out in training"),
            "decoder_layerdrop": ((0.0,), "layers that are left out in training"),
        },
        written={"is_encoder_decoder": True, "scale_embedding": False, "use_cache": True},
        renamed={
            "hidden_size": "d_model",
            "num_hidden_layers": "encoder_layers",
            "num_attention_heads": "encoder_attention_heads",
            "intermediate_size": "encoder_ffn_dim",
            "hidden_act": "activation_function",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "initializer_range": "init_std",
        },
        absent=frozenset({"type_vocab_size", "layer_norm_eps"}),
        # The first is that of the encoder, under the name that all types have.
        ignored=frozenset({"num_hidden_layers", "classif_dropout"}),
        flatten=_flat,
    ),
    tokenizer="byte-bpe",
    objectives=("denoising",),
    input_format="full-sentences",
    presets=PRESETS,
)
