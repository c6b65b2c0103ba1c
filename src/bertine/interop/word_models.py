"""Folders of models whose vectors are those of words or pieces, and that are no encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.files import read_json, read_json_object
from bertine.interop.config_file import CONFIG
from bertine.interop.elmo.published import published_files
from bertine.interop.sentence_modules import MODULES
from bertine.model_folders import locate
from bertine.registry import WORD_MODELS

#: The model type of a table with a vector for each piece.
STATIC = "model2vec"


def word_model_of(path: str | Path) -> str | None:
    """Return the type of the word model in a folder, one of
    :data:`bertine.registry.WORD_MODELS`; None where there is something else, or nothing.

    Raises:
        BertineError: a ``config.json`` that cannot be read, or several published files of a kind.
    """
    folder = locate(path)
    for place in (folder, folder / "model"):
        if (place / CONFIG).is_file():
            kind = read_json_object(place / CONFIG).get("model_type")
            return kind if isinstance(kind, str) and kind in WORD_MODELS else None
    if static_folder(folder) is not None:
        return STATIC
    return "elmo" if published_files(folder) else None


def static_folder(folder: Path) -> Path | None:
    """Return the folder of a table of vectors: `folder`, or the one of its model; None: there is
    none.

    Raises:
        BertineError: a ``config.json`` or ``modules.json`` that cannot be read.
    """
    for place in (folder, folder / "model"):
        if (place / CONFIG).is_file():
            same = read_json_object(place / CONFIG).get("model_type") == STATIC
            return place if same else None
        if (place / MODULES).is_file() and _begins_static(read_json(place / MODULES)):
            return place
    return None


def _begins_static(modules: Any) -> bool:
    """Tell whether the first module of sentence-transformers is a table of vectors."""
    first = modules[0] if isinstance(modules, list) and modules else None
    return isinstance(first, dict) and str(first.get("type")).endswith(".StaticEmbedding")
