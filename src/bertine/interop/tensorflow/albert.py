"""ALBERT as Google's program writes it (google-research/albert: ``modeling.py``,
``run_pretraining.py``, ``classifier_utils.py``, ``squad_utils.py``)."""

from __future__ import annotations

from bertine.interop.tensorflow.variables import EMBEDDING_TABLES, TASK_TENSORS, Variables

_BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}"
_BLOCK_HERE = "encoder.albert_layer_groups.{}.albert_layers.{}"

VARIABLES = Variables(
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
