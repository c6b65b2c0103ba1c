"""Read and write ``config.json`` as transformers does, and read sentence-transformers' settings.

Every key of a file is accounted for: it is a field, or it must have the one value that our model
implements, or it is on the list of keys that do not affect the model. Any other key is an error if
it looks like one of the first two, so that a misspelt size cannot silently become that size's
default; otherwise a warning names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.files import read_json, read_json_object
from bertine.core.model_folders import locate
from bertine.core.text import briefly
from bertine.models.config import Config
from bertine.models.layers import ACTIVATIONS
from bertine.models.pooling import PUBLISHED_POOLINGS

# sentence-transformers: the pooling, normalizing and prompts of its directories.
#
# ``modules.json`` lists the modules that a text passes; each has a folder with its
# ``config.json``. The transformer's own settings are in ``sentence_bert_config.json``, prompts and
# the number of dimensions in ``config_sentence_transformers.json``. Old and new keys are read
# (versions 1 to 6). Every key is accounted for: it is followed, or has the one neutral value, or is
# refused, because a silently different vector is worse than none.

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"

_MODES = ("cls", "max", "mean", *PUBLISHED_POOLINGS)
#: The modes by their old keys, in the order in which several are concatenated.
OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_WIDTHS = ("word_embedding_dimension", "embedding_dimension")
# Keys that change the computation: their neutral values.
_TRANSFORMER_ONLY: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction", None),
    "module_output_name": ("token_embeddings", None),
    "processing_kwargs": ({}, None),
    "query_length": (None,),
    "document_length": (None,),
    "query_expansion": (None,),
    "model_args": ({}, None),
    "tokenizer_args": ({}, None),
    "config_args": ({}, None),
}
_NORMALIZE_ONLY = dict.fromkeys(
    ("module_input_name", "module_output_name"), ("sentence_embedding", None)
)
_TEXT_ONLY = ({"method": "forward", "method_output_name": "last_hidden_state"},)
# Keys that do not affect a vector.
_TRANSFORMER_IGNORED = frozenset({"max_seq_length", "do_lower_case", "unpad_inputs"})
_SETTINGS_IGNORED = frozenset({"__version__", "model_type", "similarity_fn_name"})


@dataclass(frozen=True)
class SentenceModules:
    """The combined settings of a directory's modules.

    Attributes:
        transformer: the folder of the encoder, usually the directory itself.
        modes: the pooling modes, concatenated in this order; empty without a pooling module.
        normalize: whether vectors are brought to length 1.
        dimensions: how many of the first numbers are kept; None: all.
        max_length: pieces of a text, special tokens included; None: not given.
        lowercase: whether texts are lowercased before the tokenizer.
        prompts: texts to put before a text, by name; empty ones are left out.
        default_prompt: the name of the one that is used when none is named.
        include_prompt: whether the pieces of a prompt are pooled.
        refused: why these modules cannot be computed here, in one line; None: they can.
    """

    transformer: Path
    modes: tuple[str, ...] = ()
    normalize: bool = False
    dimensions: int | None = None
    max_length: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    refused: str | None = None


def read_sentence_modules(model: Path | str) -> SentenceModules | None:
    """Return the settings in a model directory that `model` is or names, or that the run's folder
    `model` holds; None if sentence-transformers did not write it.

    A module that is not implemented (such as ``Dense``) does not stop reading, since the caller may
    want only the encoder: ``refused`` names it.

    Raises:
        BertineError: a file is missing or broken, a key is unknown or asks for something that is
            not implemented.
    """
    folder = locate(model)
    path = folder / MODULES
    if not path.is_file():
        return None
    listed = read_json(path)
    if not isinstance(listed, list) or not all(_is_module(entry) for entry in listed):
        raise BertineError(f"{path}: must be a list of objects with type and path")
    modules: dict[str, Any] = {}
    refused = None
    for number, entry in enumerate(listed):
        kind = entry["type"].rpartition(".")[2]
        inside = PurePosixPath(entry["path"])
        if inside.is_absolute() or ".." in inside.parts:
            raise BertineError(f"{path}: the path {entry['path']!r} leads out of the directory")
        if "\0" in entry["path"]:
            raise BertineError(f"{path}: the path {entry['path']!r} is not a path")
        where = folder / inside
        if (number == 0) != (kind == "Transformer"):
            refused = refused or f"{path}: module {number} is {briefly(entry['type'])}"
        elif kind == "Transformer":
            modules["transformer"] = where
            modules |= _transformer(where / TRANSFORMER)
        elif kind == "Pooling":
            if "modes" in modules:
                refused = refused or f"{path}: has two modules of pooling"
            modules |= _pooling(where / "config.json")
        elif kind == "Normalize" and "modes" in modules:
            _checked(where / "config.json", only=_NORMALIZE_ONLY)
            modules["normalize"] = True
        elif kind != "Dropout":  # dropout has no effect outside training
            refused = refused or f"{path}: module {number} is {briefly(entry['type'])}"
    if refused:
        refused += ", which is not computed here; ask for a pooling to have the encoder's alone"
    return SentenceModules(
        **{"transformer": folder, **modules, **_settings(folder / SETTINGS)}, refused=refused
    )


def _is_module(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(k), str) for k in ("type", "path"))


def _transformer(path: Path) -> dict[str, Any]:
    """Return max_length and lowercase of the transformer's settings."""
    values = _checked(path, (*_TRANSFORMER_IGNORED, "modality_config"), _TRANSFORMER_ONLY)
    modality = values.get("modality_config")
    text = modality.get("text") if isinstance(modality, dict) else modality
    if modality is not None and text not in _TEXT_ONLY:  # other kinds of input have no effect
        raise _not_computed(path, "modality_config", text)
    longest = values.get("max_seq_length")
    if longest is None:
        # Newer versions leave it to the tokenizer, which may express "no limit" by a huge number.
        longest = _object(path.with_name("tokenizer_config.json")).get("model_max_length")
    if longest is not None and (not isinstance(longest, int | float) or longest < 3):
        raise BertineError(f"{path}: max_seq_length is {briefly(longest)}, but must be at least 3")
    lowercase = values.get("do_lower_case", False)
    return {
        "max_length": None if longest is None else int(min(longest, 1e9)),
        "lowercase": lowercase is True,
    }


def _pooling(path: Path) -> dict[str, Any]:
    """Return modes and include_prompt of a pooling module."""
    values = _checked(path, (*OLD_MODES, *_WIDTHS, "pooling_mode", "include_prompt"), needed=True)
    asked = values.get("pooling_mode")
    if asked is None:
        modes = [mode for key, mode in OLD_MODES.items() if values.get(key)] or ["mean"]
    else:
        modes = [asked] if isinstance(asked, str) else asked
    if not isinstance(modes, list) or not modes or not all(mode in _MODES for mode in modes):
        raise BertineError(
            f"{path}: pooling_mode is {briefly(asked)}; known are {', '.join(_MODES)}"
        )
    return {"modes": tuple(modes), "include_prompt": values.get("include_prompt", True) is True}


def _settings(path: Path) -> dict[str, Any]:
    """Return prompts, default_prompt and dimensions of the directory's settings."""
    values = _checked(path, (*_SETTINGS_IGNORED, "prompts", "default_prompt_name", "truncate_dim"))
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        text is None or isinstance(text, str) for text in prompts.values()
    ):
        raise BertineError(f"{path}: prompts must be an object of texts by name")
    default, dimensions = values.get("default_prompt_name"), values.get("truncate_dim")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise BertineError(
            f"{path}: default_prompt_name is {briefly(default)}, but prompts has no such"
        )
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise BertineError(
            f"{path}: truncate_dim is {briefly(dimensions)}, but must be a whole number"
        )
    kept = {name: text for name, text in prompts.items() if text}
    return {
        "prompts": kept,
        "default_prompt": default if default in kept else None,
        "dimensions": dimensions,
    }


def _checked(
    path: Path,
    known: Collection[str] = (),
    only: Mapping[str, tuple[Any, ...]] | None = None,
    *,
    needed: bool = False,
) -> dict[str, Any]:
    """Read the JSON object of a file and check that all its keys are `known` or have one of the
    values in `only`; {} if there is no file and none is `needed`."""
    values = read_json_object(path) if needed else _object(path)
    for key, value in values.items():
        if only and key in only:
            if value not in only[key]:
                raise _not_computed(path, key, value)
        elif key not in known:
            raise BertineError(
                f"{path}: the key {briefly(key)} is not known, so its vectors may be other ones; "
                "remove it if it says nothing about them"
            )
    return values


def _object(path: Path) -> dict[str, Any]:
    """Read the JSON object of a file; {} if there is none."""
    return read_json_object(path) if path.is_file() else {}


def _not_computed(path: Path, key: str, value: Any) -> BertineError:
    return BertineError(f"{path}: {key} is {briefly(value)}, which is not computed here")


#: The name of the file.
CONFIG = "config.json"

_OLD_ACTIVATION = "sbert_ce_default_activation_function"

# fmt: off
#: Keys that do not affect the computation, in files of any type.
COMMON_IGNORED = frozenset(
    (
        # Origin of the file, and the type that the weights are stored in.
        "_name_or_path", "name_or_path", "architectures", "transformers_version", "torch_dtype",
        "dtype", "tokenizer_class", "language", "_commit_hash", "vocab_size_or_config_json_file",
        # How transformers computes and returns results.
        "use_cache", "use_bfloat16", "gradient_checkpointing", "output_past",
        "output_attentions", "output_hidden_states", "return_dict", "torchscript",
        "tf_legacy_loss", "attn_implementation", "_attn_implementation",
        "_attn_implementation_autoset", "chunk_size_feed_forward",
        "cross_attention_hidden_size", "tie_encoder_decoder", "xla_device", "is_composition",
        "function_to_apply", "return_all_scores", "model_max_length",
        # Unused in BERT's pooler, but present in files converted from TensorFlow.
        "directionality", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
        # Tokens and classes: the tokenizer has the first, :attr:`ConfigFile.labels` the second.
        "bos_token_id", "eos_token_id", "eos_token_ids", "sep_token_id", "cls_token_id",
        "unk_token_id", "mask_token_id", "bos_token", "eos_token", "sep_token", "cls_token",
        "pad_token", "unk_token", "mask_token", "num_choices",
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
        # Of cross-encoders: :func:`activation_of` reads them.
        "sentence_transformers", _OLD_ACTIVATION,
    )
)
# fmt: on
#: Keys that would change the computation, in files of any type; see :attr:`ConfigKeys.only`.
_COMMON_ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "auto_map": ((None, {}), "a program of the model's own"),
}
#: transformers' names of activations that compute the same as others.
_SAME_ACTIVATIONS = {
    **{"gelu_python": "gelu", "swish": "silu"},
    **{"gelu_fast": "gelu_new", "gelu_accurate": "gelu_new", "gelu_python_tanh": "gelu_new"},
}
#: The similarity to a known key from which an unknown one counts as misspelt; the second number
#: applies if the known key is in the file too. Dropout changes no answer.
_MISSPELT, _SLIP = 0.8, 0.9


@dataclass(frozen=True)
class ConfigKeys:
    """The keys of a model type in ``config.json``: how they are read and written.

    Attributes:
        required: the keys without which a file does not describe a model.
        only: keys that would change the computation → the values that our model implements, the
            usual one first, and a description of other values. They are not written.
        written: keys that are written in addition to the fields, with their values.
        renamed: our field → their key, where they differ.
        ignored: keys of this type that do not affect the model.
        absent: our fields that files of this type have no key for; they keep the defaults of the
            config's class.
        flatten: (file, its contents) → its contents with nested keys, or those of older versions,
            converted to our fields; None: there are none.
        nest: config → the keys that are written for such contents, in addition to the fields.
        ours: our fields that no other program knows; written if they differ from their
            defaults.
    """

    required: tuple[str, ...]
    only: Mapping[str, tuple[tuple[Any, ...], str]]
    written: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    flatten: Callable[[Path, dict[str, Any]], dict[str, Any]] | None = None
    nest: Callable[[Any], Mapping[str, Any]] | None = None
    ours: frozenset[str] = frozenset()

    def write(self, config: Config) -> dict[str, Any]:
        """Return the keys of `config`, and those in every file of the type.

        Raises:
            ValueError: a field without a key differs from its default and would be lost.
        """
        fields = config.to_dict()
        for name in self.absent:
            if fields.pop(name) != getattr(type(config), name):
                raise ValueError(f"{config.title}'s {CONFIG} has no key for {name}")
        for name in self.ours:
            if fields[name] == getattr(type(config), name):
                del fields[name]
        fields = {self.key(name): value for name, value in fields.items()}
        nested = {} if self.nest is None else self.nest(config)
        return fields | dict(nested) | {"model_type": config.model_type} | dict(self.written)

    def read(
        self, path: Path, values: dict[str, Any], kind: type[Config]
    ) -> tuple[Config, tuple[str, ...]]:
        """Read a config of the type `kind`.

        Returns:
            The config, and the unknown keys, which were not read.

        Raises:
            BertineError: a key looks like a known one (which is named), is missing or has the wrong
                type; a value asks for something that our model does not compute.
        """
        if self.flatten is not None:
            values = self.flatten(path, values)
        fields = {
            one.name: str(one.type)
            for one in dataclasses.fields(kind)
            if one.name not in self.absent
        }
        known = {self.key(name): name for name in fields}
        fixed = {name: ((getattr(kind, name),), "a value of its own") for name in self.absent}
        only = {**_COMMON_ONLY, **fixed, **self.only}
        for key, (allowed, meaning) in only.items():
            if key in values and values[key] not in allowed:
                raise BertineError(
                    f"{path}: {key} is {briefly(values[key])} ({meaning}), which Bertine's "
                    f"{kind.title} does not have; only {allowed[0]!r} can be loaded"
                )
        read = {"model_type", *known, *only}
        accounted = read | COMMON_IGNORED | self.ignored
        unknown = tuple(key for key in values if key not in accounted)
        # A field under its own name where files of this type use another counts as misspelt.
        meant = {name: key for key, name in known.items()} | {key: key for key in read}
        for key in unknown:
            for near in difflib.get_close_matches(key[:80], sorted(meant), n=1, cutoff=_MISSPELT):
                alike = difflib.SequenceMatcher(None, key[:80], near).ratio()
                if "drop" in near or (meant[near] in values and alike < _SLIP):
                    continue
                raise BertineError(
                    f"{path}: unknown key {briefly(key)}; did you mean {meant[near]!r}? Correct or "
                    "remove it"
                )
        for key in self.required:
            if key not in values:
                raise BertineError(f"{path}: has no {key}, without which there is no model")
        if values.get("pad_token_id", 0) is None:
            values["pad_token_id"] = kind.pad_token_id
        values_of_fields = {
            name: _value(path, key, fields[name], values[key])
            for key, name in known.items()
            if key in values
        }
        if (same := _SAME_ACTIVATIONS.get(str(values_of_fields.get("hidden_act")))) is not None:
            values_of_fields["hidden_act"] = same
        if values_of_fields.get("hidden_act", "gelu") not in ACTIVATIONS:
            raise BertineError(
                f"{path}: {self.key('hidden_act')} {values_of_fields['hidden_act']!r} is not "
                f"supported; only {', '.join(ACTIVATIONS)} are"
            )
        try:
            return kind(**values_of_fields), unknown
        except BertineError as error:
            raise BertineError(f"{path}: {self._in_their_words(str(error))}") from error

    def key(self, name: str) -> str:
        """Return the file's key for our field `name`."""
        return self.renamed.get(name, name)

    def _in_their_words(self, message: str) -> str:
        """Return `message` with our fields replaced by the file's keys."""
        return re.sub(r"\b\w+\b", lambda word: self.key(word[0]), message)


@dataclass(frozen=True)
class ConfigFile:
    """The contents of a ``config.json``.

    Attributes:
        config: the architecture.
        architecture: transformers' class of the saved model, "" if not given.
        labels: the classes of a classifier in the order of its outputs; empty if not given.
        problem_type: the kind of classifier for transformers; None if not given.
        activation: the activation on the outputs of a cross-encoder of sentence-transformers
            (:func:`activation_of`); None: it is not one.
        unknown: unknown keys, which were not read.
    """

    config: Config
    architecture: str
    labels: tuple[str, ...]
    problem_type: str | None = None
    activation: str | None = None
    unknown: tuple[str, ...] = ()


def _value(path: Path, name: str, kind: str, value: Any) -> Any:
    """Return `value` of the field `name` as the type of its annotation `kind`."""
    if value is None and "None" in kind:
        return None
    if kind in ("int", "int | None") and isinstance(value, int) and not isinstance(value, bool):
        return value
    if "float" in kind and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in ("str", "bool") and type(value).__name__ == kind:
        return value
    if kind.startswith("tuple[str") and isinstance(value, list):
        entries = tuple(entry for entry in value if isinstance(entry, str))
        if len(entries) == len(value):
            return entries
    raise BertineError(f"{path}: {name} is {briefly(value)}, but must be of type {kind}")


def activation_of(path: Path, values: Mapping[str, Any]) -> str | None:
    """Return the activation that sentence-transformers applies to the outputs of a cross-encoder:
    the name of a class of PyTorch's, in the form of any version (the latest has a file next to
    ``config.json``); "" for its default; None if the files do not describe a cross-encoder."""
    extra = path.with_name(SETTINGS)
    of_folder = read_json_object(extra) if extra.is_file() else {}
    if of_folder.get("model_type") == "CrossEncoder":
        return str(of_folder.get("activation_fn") or "")
    own, old = values.get("sentence_transformers"), values.get(_OLD_ACTIVATION)
    if isinstance(own, dict):
        return str(own.get("activation_fn") or old or "")
    return None if old is None else str(old)


def labels_of(path: Path, values: dict[str, Any]) -> tuple[str, ...]:
    """Return the classes in ``id2label``, whose keys must be 0, 1, 2, ..."""
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
