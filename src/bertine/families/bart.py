"""Define BART (Lewis et al. 2019, arXiv 1910.13461): its heads, sizes and file formats."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertine.core.files import read_json_object
from bertine.core.task_info import TaskInfo
from bertine.families.bart_layers import BartBackbone, BartConfig
from bertine.families.bert import PLAIN_ENCODER, TASK_HEADS
from bertine.models.config import Config
from bertine.models.config_file import ConfigKeys
from bertine.models.family import Family, HeadKind
from bertine.models.heads import HEADS, PAIR_CLASSIFIER, VECTOR_CLASSIFIER, DenseHead
from bertine.models.layers import linear
from bertine.models.tensor_names import HeadNames, LayerRows, LayerStack, WeightNames
from bertine.options.inference import DecodingOptions

# Head: the decoder's scores of the next token.
#
# Shape legend: P places, H hidden size, V vocabulary size.


class Seq2SeqLmHead(nn.Module):
    """The word embeddings as decoder, and a constant for each word, which is 0 in all published
    files (transformers, ``final_logits_bias``).

    Attributes:
        vocabulary_tensors: the tensors with a place for each word, and their dimension for words.
    """

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {"final_logits_bias": 1}
    final_logits_bias: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))

    def reset_parameters(self) -> None:
        """Set the constants to 0."""
        self.final_logits_bias.zero_()

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """Map hidden [P, H] and decoder_weight [V, H] to logits [P, V]."""
        return linear(hidden, decoder_weight, self.final_logits_bias[0], self.training)


def _sizes(layers: int, hidden_size: int, vocab_size: int = 50265) -> BartConfig:
    return BartConfig.of_size(
        layers,
        hidden_size,
        vocab_size=vocab_size,
        decoder_layers=layers,
        decoder_attention_heads=hidden_size // 64,
        decoder_ffn_dim=4 * hidden_size,
    )


#: Preset → architecture: the published ones (section 2.1; the smaller one has 12 heads of 64, the
#: larger one 16), and three of Bertine's own, as wide as bert-tiny, -mini and -small and with as
#: many layers, half of them in the decoder, for a vocabulary as large as BERT's.
PRESETS: Mapping[str, BartConfig] = {
    "bart-base": _sizes(6, 768).replace(activation_dropout=0.1),
    "bart-large": _sizes(12, 1024).replace(activation_dropout=0.1),
    "bart-tiny": _sizes(1, 128, 30522),
    "bart-mini": _sizes(2, 256, 30522),
    "bart-small": _sizes(2, 512, 30522),
}


# Generation settings: ``generation_config.json`` sets how ``generate`` of transformers writes
# texts. Without it, transformers stops at 20 tokens and follows only one text.

#: The name of the file.
GENERATION_CONFIG = "generation_config.json"
#: The keys of the tokens that begin and end every text.
FORCED = ("forced_bos_token_id", "forced_eos_token_id")


def generation_config(
    config: Config,
    task: TaskInfo | None,
    *,
    pieces: int,
    separator: int | None,
    special: Collection[int],
) -> Mapping[str, Any]:
    """Return settings with which transformers writes the same texts as Bertine: those of the
    fine-tuning, or else the defaults of ``bertine generate``.

    Args:
        config: of the model.
        task: that it was trained for.
        pieces: of its tokenizer; a model may have more rows.
        separator: the id that ends a text in running text; None: there is none.
        special: ids of special tokens.
    """
    choosing, never = DecodingOptions(), set(range(pieces, config.vocab_size))
    if task is not None and task.name == "seq2seq":
        never = set()  # special tokens are left out of the text
        choosing = DecodingOptions(
            max_new_tokens=task.setting("max_target_length", 64),
            beams=task.setting("beams", choosing.beams),
            length_penalty=task.setting("length_penalty", choosing.length_penalty),
            no_repeat_ngram_size=task.setting(
                "no_repeat_ngram_size", choosing.no_repeat_ngram_size
            ),
        )
    values: dict[str, Any] = {
        "do_sample": choosing.sample,
        "early_stopping": choosing.early_stopping,
        "length_penalty": choosing.length_penalty,
        "no_repeat_ngram_size": choosing.no_repeat_ngram_size,
        "num_beams": choosing.beams,
        "pad_token_id": config.pad_token_id,
    }
    if isinstance(config, BartConfig):
        first, last = config.forced_tokens
        values |= {
            "bos_token_id": config.bos_token_id,
            "decoder_start_token_id": config.decoder_start_token_id,
            "eos_token_id": _one_or_list(last, config.eos_token_id),
            **dict(zip(FORCED, (first, last), strict=True)),
            # There the start token of the decoder counts too.
            "max_length": 1 + choosing.max_new_tokens,
        }
    else:  # the model continues a prompt
        never |= {*special} - {separator}
        values |= {"eos_token_id": separator, "max_new_tokens": choosing.max_new_tokens}
    if never:
        values["suppress_tokens"] = sorted(never)
    return dict(sorted(values.items()))


def _one_or_list(*ids: int | None) -> int | list[int]:
    """Return the ids that are not None, each once; a single id without a list."""
    known = list(dict.fromkeys(token for token in ids if token is not None))
    return known[0] if len(known) == 1 else known


# transformers' format: names of weights and keys of ``config.json``.

#: The layers that both sides have.
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
    """Rename the older key of a rate where only that is there, and take the tokens that begin and
    end every text from where transformers looks first."""
    flat = dict(values)
    extra = path.with_name(GENERATION_CONFIG)
    if extra.is_file():
        chosen = read_json_object(extra)
        flat |= {name: chosen.get(name) for name in FORCED}
    if "classif_dropout" in flat:
        flat.setdefault("classifier_dropout", flat.pop("classif_dropout"))
    return flat


FAMILY = Family(
    config=BartConfig,
    heads={
        "lm": HeadKind(
            "rows",
            lambda config, _: Seq2SeqLmHead(config),
            "LM head",
            "ForConditionalGeneration",
            tied=True,
        ),
        "spans": HEADS["spans"],
        "token_classifier": replace(HEADS["token_classifier"], published=False),
        "choice": replace(HEADS["choice"], published=False),
        # The backbone pools the state at the last end of a text.
        "classifier": replace(HEADS["classifier"], new=DenseHead),
        **{name: HEADS[name] for name in (VECTOR_CLASSIFIER, PAIR_CLASSIFIER)},
    },
    new_backbone=lambda config, _: BartBackbone(config),
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
        # The first is the encoder's, under the name that all types have.
        ignored=frozenset({"num_hidden_layers", "classif_dropout"}),
        flatten=_flat,
    ),
    tokenizer="byte-bpe",
    objectives=("denoising",),
    input_format="full-sentences",
    presets=PRESETS,
)
