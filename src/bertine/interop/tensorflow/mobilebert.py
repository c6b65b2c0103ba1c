"""MobileBERT and IB-BERT as Google's program writes them (google-research, ``mobilebert``:
``modeling.py``, ``run_pretraining.py``)."""

from __future__ import annotations

from bertine.interop.tensorflow.bert import VARIABLES as BERT
from bertine.interop.tensorflow.variables import Variables

_LAYER = "bert/encoder/layer_{}"
_LAYER_HERE = "encoder.layer.{}"
#: A norm that is a scale and a shift alone has a name of its own.
_NORMS = ("FakeLayerNorm", "LayerNorm")

VARIABLES = Variables(
    file="bert_config.json",
    modules=(
        ("bert/embeddings/embedding_transformation", "embeddings.embedding_transformation"),
        ("bert/pooler/dense", "pooler.dense"),
        ("cls/predictions/transform/dense", "cls.predictions.transform.dense"),
        ("cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
        *(
            (f"{_LAYER}/{module}", f"{_LAYER_HERE}.{module.replace('/', '.')}")
            for module in (
                "attention/self/query",
                "attention/self/key",
                "attention/self/value",
                "attention/output/dense",
                "bottleneck/input/dense",
                "bottleneck/attention/dense",
                "intermediate/dense",
                "output/dense",
                "output/bottleneck/dense",
            )
        ),
        *(
            (
                f"{_LAYER}/ffn_layer_{{}}/{module}",
                f"{_LAYER_HERE}.ffn.{{}}.{module}".replace("/", "."),
            )
            for module in ("intermediate/dense", "output/dense")
        ),
        *(
            pair
            for norm in _NORMS
            for pair in (
                (f"bert/embeddings/{norm}", "embeddings.LayerNorm"),
                (
                    f"{_LAYER}/ffn_layer_{{}}/output/{norm}",
                    f"{_LAYER_HERE}.ffn.{{}}.output.LayerNorm",
                ),
                *(
                    (
                        f"{_LAYER}/{scope}/{norm}",
                        f"{_LAYER_HERE}.{scope.replace('/', '.')}.LayerNorm",
                    )
                    for scope in (
                        "attention/output",
                        "bottleneck/input",
                        "bottleneck/attention",
                        "output",
                        "output/bottleneck",
                    )
                ),
            )
        ),
    ),
    tensors=BERT.tensors,
    transposed=(("cls/predictions/extra_output_weights", "cls.predictions.dense.weight"),),
    key="intra_bottleneck_size",
    defaults={
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "type_vocab_size": 16,
        "trigram_input": False,
        "use_bottleneck": False,
        "key_query_shared_bottleneck": False,
        "num_feedforward_networks": 1,
        "normalization_type": "layer_norm",
    },
)
