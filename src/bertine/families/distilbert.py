"""Define DistilBERT: its heads, its config and its published size.

DistilBERT (Sanh et al. 2019, arXiv 1910.01108) has half of BERT's layers, no token types and no
pooler (section 3), and a classifier with a dense layer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from bertine.families.bert import PLAIN_ENCODER, TABLES, TASK_HEADS
from bertine.models.config import Config
from bertine.models.config_file import ConfigKeys
from bertine.models.dropout import StreamDropout
from bertine.models.encoder import Encoder
from bertine.models.family import Family
from bertine.models.heads import HEADS, DenseHead, SpanHead
from bertine.models.tensor_names import HeadNames, WeightNames


class DropoutSpanHead(SpanHead):
    """BERT's span head after dropout (published code)."""

    def __init__(self, config: DistilBertConfig) -> None:
        super().__init__(config)
        self.dropout = StreamDropout(config.qa_dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden [B, T, H] to logits [B, T, 2], of start and end."""
        return super().forward(self.dropout(hidden))


@dataclass(frozen=True)
class DistilBertConfig(Config):
    """Sizes and rates of a DistilBERT (the published code; defaults are distilbert-base-uncased).

    Attributes:
        seq_classif_dropout: before the last layer of classifiers of texts and of choices.
        qa_dropout: before the layer that scores spans.
    """

    model_type: ClassVar[str] = "distilbert"
    title: ClassVar[str] = "DistilBERT"
    token_types: ClassVar[bool] = False
    #: Separators mark the two texts of a pair.
    num_segments = 2
    has_pooler = False

    num_hidden_layers: int = 6
    type_vocab_size: int = 0
    seq_classif_dropout: float = 0.2
    qa_dropout: float = 0.1


#: Preset → architecture (section 3 of the paper, the published file).
PRESETS: Mapping[str, DistilBertConfig] = {"distilbert-base": DistilBertConfig()}


# transformers' format: names of weights and keys of ``config.json``.

_CLASSIFIER = (("dense", "pre_classifier"), ("out", "classifier"))


def _classifier(config: DistilBertConfig, num_labels: int) -> DenseHead:
    """Return a head on the first token's state (published code)."""
    return DenseHead(config, num_labels, F.relu, first=0.0, last=config.seq_classif_dropout)


FAMILY = Family(
    config=DistilBertConfig,
    heads={
        **{name: kind for name, kind in HEADS.items() if name != "nsp"},
        "classifier": replace(HEADS["classifier"], reads="first", new=_classifier),
        "choice": replace(HEADS["choice"], reads="first", new=_classifier),
        "spans": replace(HEADS["spans"], new=lambda config, _: DropoutSpanHead(config)),
    },
    new_backbone=Encoder,
    class_prefix="DistilBert",
    names=WeightNames(
        prefix="distilbert.",
        encoder=("embeddings.", "transformer."),
        tables=TABLES[:2],
        modules=(("backbone.embeddings.layer_norm", "embeddings.LayerNorm"),),
        layers=("backbone.layers.{}", "transformer.layer.{}"),
        layer=(
            ("attention.qkv", ("attention.q_lin", "attention.k_lin", "attention.v_lin")),
            ("attention.out", ("attention.out_lin",)),
            ("attention_norm", ("sa_layer_norm",)),
            ("up", ("ffn.lin1",)),
            ("down", ("ffn.lin2",)),
            ("output_norm", ("output_layer_norm",)),
        ),
        heads={
            "mlm": HeadNames(
                "",
                (("dense", "vocab_transform"), ("layer_norm", "vocab_layer_norm")),
                (("bias", "vocab_projector.bias"),),
            ),
            "classifier": HeadNames("", _CLASSIFIER),
            **TASK_HEADS,
            "choice": HeadNames("choice_classifier", _CLASSIFIER, published=""),
        },
        copies=(("vocab_projector.weight", "embeddings.word_embeddings.weight"),),
    ),
    keys=ConfigKeys(
        required=("vocab_size", "dim", "n_layers", "n_heads", "hidden_dim"),
        only={
            **PLAIN_ENCODER,
            "tie_weights_": ((True, None), "a decoder of its own for the MLM head"),
        },
        written={"sinusoidal_pos_embds": False, "tie_word_embeddings": True},
        renamed={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
        },
        # The file holds the table of positions, with sinusoidal initial values or not.
        ignored=frozenset({"sinusoidal_pos_embds"}),
        absent=frozenset({"layer_norm_eps", "type_vocab_size", "classifier_dropout"}),
    ),
    tokenizer="wordpiece",
    objectives=("mlm", "mlm-neighbours"),
    input_format="full-sentences",
    presets=PRESETS,
)
