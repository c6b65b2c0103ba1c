"""DistilBERT as transformers writes it: names of weights, keys of ``config.json``."""

from __future__ import annotations

from bertine.interop.bert import PLAIN_ENCODER, TABLES, TASK_HEADS
from bertine.interop.config_file import ConfigKeys
from bertine.interop.family import Family
from bertine.interop.names import HeadNames, WeightNames
from bertine.models.distilbert import PRESETS, DistilBertConfig

_CLASSIFIER = (("dense", "pre_classifier"), ("out", "classifier"))

FAMILY = Family(
    config=DistilBertConfig,
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
        # However the positions began, their table is in the file.
        ignored=frozenset({"sinusoidal_pos_embds"}),
        absent=frozenset({"layer_norm_eps", "type_vocab_size", "classifier_dropout"}),
    ),
    tokenizer="wordpiece",
    objectives=("mlm", "mlm-neighbours"),
    input_format="full-sentences",
    presets=PRESETS,
)
