"""Define XLNet: its heads, its published sizes, and its file formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.text import briefly
from bertine.families.bert import PLAIN_ENCODER, TASK_HEADS
from bertine.families.xlnet_layers import XlnetBackbone, XlnetConfig
from bertine.models.config import Config
from bertine.models.config_file import ConfigKeys
from bertine.models.family import Family, HeadKind
from bertine.models.heads import HEADS, DenseHead
from bertine.models.layers import linear
from bertine.models.tensor_names import HeadNames, WeightNames

# Heads: the words at places, and classes from the last token.
#
# Shape legend: B sequences, P places, H hidden size, V vocabulary size, K labels.


class PermutationLmHead(nn.Module):
    """The language model's head: the word embeddings as decoder, with a bias (zihangdai/xlnet,
    ``modeling.py: lm_loss``).

    Attributes:
        vocabulary_tensors: the weights with a place for each word.
    """

    vocabulary_tensors: ClassVar[Mapping[str, int]] = {"bias": 0}

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def reset_parameters(self) -> None:
        """Set the bias to 0."""
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, decoder_weight: Tensor) -> Tensor:
        """Map hidden [P, H] and decoder_weight [V, H] to logits [P, V]."""
        return linear(hidden, decoder_weight, self.bias, self.training)


#: Preset → architecture: the published ones, and three of Bertine's own with the layers and the
#: width of bert-tiny, -mini and -small, for a vocabulary as large as BERT's.
PRESETS: Mapping[str, XlnetConfig] = {
    "xlnet-base-cased": XlnetConfig(),
    "xlnet-large-cased": XlnetConfig.of_size(24, 1024),
    "xlnet-tiny": XlnetConfig.of_size(2, 128, vocab_size=30522),
    "xlnet-mini": XlnetConfig.of_size(4, 256, vocab_size=30522),
    "xlnet-small": XlnetConfig.of_size(4, 512, vocab_size=30522),
}


#: A classifier's dense layer and its last layer.
_CLASSIFIER = (("dense", "sequence_summary.summary"), ("out", "logits_proj"))


def _flat(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Convert the keys of a file to our fields."""
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


FAMILY = Family(
    config=XlnetConfig,
    heads={
        "plm": HeadKind(
            "rows",
            lambda config, _: PermutationLmHead(config),
            "permutation LM head",
            "LMHeadModel",
            tied=True,
        ),
        # The backbone pools the last token.
        # zihangdai/xlnet, ``modeling.py: summarize_sequence``, ``classification_loss``.
        "classifier": replace(HEADS["classifier"], new=partial(DenseHead, first=0.0)),
        "spans": replace(HEADS["spans"], suffix="ForQuestionAnsweringSimple"),
        "token_classifier": HEADS["token_classifier"],
        "choice": replace(HEADS["choice"], new=partial(DenseHead, first=0.0)),
    },
    new_backbone=lambda config, _: XlnetBackbone(config),
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
            # There are no position embeddings; transformers reads no key of the usual name.
            "max_position_embeddings": "longest_input",
        },
        # The length of the memory is up to the caller; the other keys are for spans by beam search,
        # or say how weights were initialized.
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
        nest=lambda config: {"d_head": config.head_size},
        ours=frozenset({"max_position_embeddings"}),
    ),
    tokenizer="unigram",
    objectives=("plm",),
    input_format="segment-pair",
    presets=PRESETS,
)
