"""MobileBERT and IB-BERT as Google's program writes them (google-research, ``mobilebert``:
``modeling.py``, ``run_pretraining.py``, ``run_classifier.py``, ``run_squad.py``)."""

from __future__ import annotations

from bertine.interop.tensorflow.variables import EMBEDDING_TABLES, TASK_TENSORS, Variables

_LAYER, _LAYER_HERE = "bert/encoder/layer_{}", "encoder.layer.{}"
#: Of a layer: dense layers, and scopes in which there is one with a norm beside it.
_DENSE = (
    "attention/self/query",
    "attention/self/key",
    "attention/self/value",
    "intermediate/dense",
)
_WITH_NORM = (
    "bottleneck/input",
    "bottleneck/attention",
    "attention/output",
    "output",
    "output/bottleneck",
)
#: What a norm is called, and what stands in its place.
_NORMS = ("LayerNorm", "FakeLayerNorm")


def _modules() -> tuple[tuple[str, str], ...]:
    """Return the pairs of scopes and modules of a layer."""
    scopes = [*_DENSE, *(f"{scope}/dense" for scope in _WITH_NORM)]
    pairs = [(f"{_LAYER}/{scope}", f"{_LAYER_HERE}.{scope.replace('/', '.')}") for scope in scopes]
    pairs += [
        (f"{_LAYER}/ffn_layer_{{}}/{part}/dense", f"{_LAYER_HERE}.ffn.{{}}.{part}.dense")
        for part in ("intermediate", "output")
    ]
    for norm in _NORMS:
        pairs += [
            (f"{_LAYER}/{scope}/{norm}", f"{_LAYER_HERE}.{scope.replace('/', '.')}.LayerNorm")
            for scope in _WITH_NORM
        ]
        pairs.append(
            (f"{_LAYER}/ffn_layer_{{}}/output/{norm}", f"{_LAYER_HERE}.ffn.{{}}.output.LayerNorm")
        )
    return tuple(pairs)


VARIABLES = Variables(
    modules=(
        *((f"bert/embeddings/{norm}", "embeddings.LayerNorm") for norm in _NORMS),
        ("bert/embeddings/embedding_transformation", "embeddings.embedding_transformation"),
        *_modules(),
        ("bert/pooler/dense", "pooler.dense"),
        ("cls/predictions/transform/dense", "cls.predictions.transform.dense"),
        ("cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
    ),
    tensors=(
        *EMBEDDING_TABLES,
        ("cls/predictions/output_bias", "cls.predictions.bias"),
        ("cls/seq_relationship/output_weights", "cls.seq_relationship.weight"),
        ("cls/seq_relationship/output_bias", "cls.seq_relationship.bias"),
        *TASK_TENSORS,
    ),
    transposed=(("cls/predictions/extra_output_weights", "cls.predictions.dense.weight"),),
    key="use_bottleneck",
    defaults={
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "type_vocab_size": 16,
        "trigram_input": False,
        "use_bottleneck": False,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": False,
        "num_feedforward_networks": 1,
        "normalization_type": "layer_norm",
    },
    identities=("embeddings.embedding_transformation",),
)
