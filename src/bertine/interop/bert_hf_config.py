"""``config.json`` as Hugging Face transformers writes it for BERT <-> :class:`BertConfig`.

Every key of a file is accounted for: it is ours, or it must have the one value that our model
implements, or it is on the list of keys that do not touch the model, or it is an error. So a
typing error in a size can not silently become that size's default.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import read_json_object
from bertine.models.config import BertConfig
from bertine.models.layers import ACTIVATIONS
from bertine.terminal.text import briefly

#: The name of the file.
CONFIG = "config.json"

#: The sizes without which a file does not describe a model.
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)

# Keys that would change what is computed: the values that mean "plain BERT encoder", and what
# another value would ask for.
_ONLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "model_type": (("bert",), "another architecture"),
    "position_embedding_type": (("absolute", None), "relative positions"),
    "is_decoder": ((False, None), "a decoder"),
    "add_cross_attention": ((False, None), "cross-attention"),
    "is_encoder_decoder": ((False, None), "an encoder-decoder"),
    "tie_word_embeddings": ((True, None), "a decoder of its own for the MLM head"),
    "pruned_heads": (({}, None), "pruned attention heads"),
    "quantization_config": ((None,), "quantized weights"),
}

# fmt: off
#: Keys that say nothing about what the model computes.
IGNORED = frozenset(
    (
        # Where the file came from, and in which type the weights are stored.
        "_name_or_path", "name_or_path", "architectures", "transformers_version", "torch_dtype",
        "dtype", "tokenizer_class", "language",
        # How transformers is to compute and to return things.
        "use_cache", "use_bfloat16", "gradient_checkpointing", "output_past",
        "output_attentions", "output_hidden_states", "return_dict", "torchscript",
        "tf_legacy_loss", "attn_implementation", "_attn_implementation",
        "_attn_implementation_autoset", "chunk_size_feed_forward",
        "cross_attention_hidden_size", "tie_encoder_decoder",
        # Unused in BERT's pooler, but in the files converted from TensorFlow.
        "directionality", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
        # Tokens and classes: the tokenizer has the first, :attr:`ConfigFile.labels` the second.
        "bos_token_id", "eos_token_id", "eos_token_ids", "sep_token_id",
        "decoder_start_token_id", "id2label", "label2id", "num_labels", "_num_labels",
        "problem_type", "finetuning_task", "task_specific_params", "prefix",
        # Text generation, which older versions wrote into every file.
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams",
        "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
        "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
        "output_scores", "return_dict_in_generate", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
        "suppress_tokens", "begin_suppress_tokens",
    )
)
# fmt: on


@dataclass(frozen=True)
class ConfigFile:
    """What a ``config.json`` says.

    Attributes:
        config: the architecture.
        architecture: transformers' class of the model that was saved, "" when not said.
        labels: the classes of a classifier in the order of its outputs; empty when not said.
        problem_type: what kind of classifier transformers takes it for; None when not said.
    """

    config: BertConfig
    architecture: str
    labels: tuple[str, ...]
    problem_type: str | None = None


def architecture_name(heads: Iterable[str]) -> str:
    """transformers' class that has these heads of ``Model.heads``: what ``AutoModel`` opens. It has
    none for pairs of texts that are encoded apart; that name is ours."""
    heads = frozenset(heads)
    if "pair_classifier" in heads:
        return "BertForTextPairClassification"
    if "token_classifier" in heads:
        return "BertForTokenClassification"
    if "choice" in heads:
        return "BertForMultipleChoice"
    if "classifier" in heads:
        return "BertForSequenceClassification"
    if "spans" in heads:
        return "BertForQuestionAnswering"
    if heads >= {"mlm", "nsp"}:
        return "BertForPreTraining"
    if "mlm" in heads:
        return "BertForMaskedLM"
    return "BertForNextSentencePrediction" if "nsp" in heads else "BertModel"


def config_to_huggingface(
    config: BertConfig,
    *,
    heads: Iterable[str] = (),
    labels: Sequence[str] = (),
    problem_type: str = "single_label_classification",
) -> dict[str, Any]:
    """The contents of ``config.json`` for a model with these `heads`, keys sorted as usual.

    `labels` are the class names of the classifier, in the order of its outputs; `problem_type`
    is what transformers calls its task.
    """
    values: dict[str, Any] = config.to_dict() | {
        "architectures": [architecture_name(heads)],
        "model_type": "bert",
        "dtype": "float32",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "use_cache": True,
    }
    classifiers = frozenset(heads) & {"classifier", "pair_classifier", "token_classifier"}
    if classifiers:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if "token_classifier" not in classifiers and classifiers:
        values["problem_type"] = problem_type
    return dict(sorted(values.items()))


def _value(path: Path, name: str, kind: str, value: Any) -> Any:
    """`value` of the field `name` as the type that its annotation `kind` says."""
    if value is None and "None" in kind:
        return None
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if "float" in kind and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind == "str" and isinstance(value, str):
        return value
    raise BertineError(f"{path}: {name} is {briefly(value)}, but must be of type {kind}")


def _labels(path: Path, values: dict[str, Any]) -> tuple[str, ...]:
    """The classes in ``id2label``, whose keys must be 0, 1, 2, ..."""
    names = values.get("id2label")
    if names is None:
        return ()
    if isinstance(names, dict):
        wanted = [str(i) for i in range(len(names))]
        if {str(key) for key in names} == set(wanted):
            if not all(isinstance(name, str | int | float) for name in names.values()):
                raise BertineError(f"{path}: a label in id2label is neither a text nor a number")
            return tuple(str(names[key]) for key in wanted)
    raise BertineError(f"{path}: id2label must map 0, 1, 2, ... to the labels")


def read_config(path: Path) -> ConfigFile:
    """Read a ``config.json``.

    Raises:
        BertineError: missing or not JSON; not a BERT; a key that is unknown (with the nearest
            known one), lacking or of the wrong type; a value that asks for something that our
            model does not compute.
    """
    values = read_json_object(path)
    if "model_type" not in values:
        raise BertineError(f'{path}: has no model_type; for a BERT add "model_type": "bert"')
    fields = {field.name: str(field.type) for field in dataclasses.fields(BertConfig)}
    for key, (allowed, meaning) in _ONLY.items():
        if key in values and values[key] not in allowed:
            raise BertineError(
                f"{path}: {key} is {briefly(values[key])} ({meaning}), which Bertine's BERT does "
                f"not have; only {allowed[0]!r} can be loaded"
            )
    for key in values:
        if key not in fields and key not in _ONLY and key not in IGNORED:
            near = difflib.get_close_matches(
                key[:80], [*fields, *_ONLY, *IGNORED], n=1, cutoff=0.0
            )[0]
            raise BertineError(
                f"{path}: unknown key {briefly(key)}; did you mean {near!r}? Correct or remove it"
            )
    for key in REQUIRED:
        if key not in values:
            raise BertineError(f"{path}: has no {key}, without which there is no model")
    if values.get("pad_token_id", 0) is None:
        values["pad_token_id"] = 0
    given = {
        name: _value(path, name, kind, values[name])
        for name, kind in fields.items()
        if name in values
    }
    if given.get("hidden_act", "gelu") not in ACTIVATIONS:
        raise BertineError(
            f"{path}: hidden_act {given['hidden_act']!r} is not supported; "
            f"only {', '.join(ACTIVATIONS)} are"
        )
    try:
        config = BertConfig(**given)
    except BertineError as error:
        raise BertineError(f"{path}: {error}") from error
    names = values.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    problem = values.get("problem_type")
    if problem is not None and not isinstance(problem, str):
        raise BertineError(f"{path}: problem_type is {briefly(problem)}, but must be a text")
    return ConfigFile(config, architecture, _labels(path, values), problem)
