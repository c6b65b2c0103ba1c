"""What a directory of sentence-transformers says beside its encoder: pooling, normalizing, prompts.

``modules.json`` lists the modules that a text passes; each has a folder with its ``config.json``.
The transformer's own settings are in ``sentence_bert_config.json``, prompts and the number of
dimensions in ``config_sentence_transformers.json``. Old and new keys are read (versions 1 to 6).
Every key is accounted for: it is honoured, or has the one value that means nothing, or is refused,
for a vector that is silently another one is worse than none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from bertine.errors import BertineError
from bertine.files import read_json, read_json_object
from bertine.model_folders import locate
from bertine.models.pooling import PUBLISHED_POOLINGS
from bertine.terminal.text import briefly

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"

_MODES = ("cls", "max", "mean", *PUBLISHED_POOLINGS)
# In the order in which several are joined.
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_WIDTHS = ("word_embedding_dimension", "embedding_dimension")
# Keys that change what is computed: the values that ask for nothing.
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
# Keys that say nothing about a vector.
_TRANSFORMER_IGNORED = frozenset({"max_seq_length", "do_lower_case", "unpad_inputs"})
_SETTINGS_IGNORED = frozenset({"__version__", "model_type", "similarity_fn_name"})


@dataclass(frozen=True)
class SentenceModules:
    """The settings that the modules of a directory come to.

    Attributes:
        transformer: the folder of the encoder, mostly the directory itself.
        modes: the pooling modes, joined in this order; empty where there is no pooling module.
        normalize: whether vectors are brought to length 1.
        dimensions: how many of the first numbers are kept; None: all.
        max_length: pieces of a text, special tokens included; None: not said.
        lowercase: whether texts are to be lowercased whatever the tokenizer does.
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
    """Return what a model directory says, one that `model` is or names, or that the run's folder
    `model` holds; None where it is none of sentence-transformers.

    A module that is not computed here (``Dense`` for one) does not stop reading, as somebody may
    want the encoder alone: ``refused`` names it.

    Raises:
        BertineError: a file is missing or broken, a key is unknown or asks for what is not
            computed here.
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
        elif kind != "Dropout":  # which does nothing where nothing is learned
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
    if modality is not None and text not in _TEXT_ONLY:  # other kinds of input do not matter
        raise _not_computed(path, "modality_config", text)
    longest = values.get("max_seq_length")
    if longest is None:
        # Newer versions leave it to the tokenizer, which may say "no limit" by a huge number.
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
    values = _checked(path, (*_OLD_MODES, *_WIDTHS, "pooling_mode", "include_prompt"), needed=True)
    asked = values.get("pooling_mode")
    if asked is None:
        modes = [mode for key, mode in _OLD_MODES.items() if values.get(key)] or ["mean"]
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
    """Read the JSON object of a file, all of whose keys are `known` or have one of the values in
    `only`; {} where there is no file and none is `needed`."""
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
    """Read the JSON object of a file; {} where there is none."""
    return read_json_object(path) if path.is_file() else {}


def _not_computed(path: Path, key: str, value: Any) -> BertineError:
    return BertineError(f"{path}: {key} is {briefly(value)}, which is not computed here")
