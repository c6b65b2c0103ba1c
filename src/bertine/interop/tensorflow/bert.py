"""BERT as Google's program writes it (google-research/bert: ``modeling.py``,
``run_pretraining.py``, ``run_classifier.py``, ``run_squad.py``)."""

from __future__ import annotations

from bertine.interop.tensorflow.variables import EMBEDDING_TABLES, TASK_TENSORS, Gelu, Variables
from bertine.models.config import Config

#: Sizes of the vocabularies of Google's models of October and November 2018: English uncased and
#: cased, multilingual uncased and cased, Chinese; and their numbers of layers and widths.
_VOCABULARIES_OF_2018 = (30522, 28996, 105879, 119547, 21128)
_SHAPES_OF_2018 = ((12, 768), (24, 1024))


def _gelu(config: Config, trained_here: bool) -> Gelu:
    """Return what "gelu" means in a BERT.

    The program had the exact form, with erf, until 7 February 2019 (commit bee6030) and has the one
    with tanh since; the configurations say "gelu" all along. The models that Google published in
    2018 were trained with erf, and transformers' copies of them compute it; they are known by their
    sizes and by being without an optimizer's state, which fine-tuning and training on leave.
    """
    shape = (config.num_hidden_layers, config.hidden_size)
    if config.vocab_size in _VOCABULARIES_OF_2018 and shape in _SHAPES_OF_2018 and not trained_here:
        return Gelu("gelu", "with erf, as in Google's models of 2018, which have these sizes")
    return Gelu("gelu_new", "with tanh, as in Google's program since February 2019")


_LAYER = "bert/encoder/layer_{}"

VARIABLES = Variables(
    modules=(
        ("bert/embeddings/LayerNorm", "embeddings.LayerNorm"),
        *(
            (f"{_LAYER}/{module}", f"encoder.layer.{{}}.{module.replace('/', '.')}")
            for module in (
                "attention/self/query",
                "attention/self/key",
                "attention/self/value",
                "attention/output/dense",
                "attention/output/LayerNorm",
                "intermediate/dense",
                "output/dense",
                "output/LayerNorm",
            )
        ),
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
    defaults={"type_vocab_size": 16},
    gelu=_gelu,
)
