"""Recognize the models of contrib in a folder, by their files' names and settings alone.

Every model that is opened is asked for here, so nothing heavy is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.files import os_errors, read_json, read_json_object
from bertine.core.model_folders import locate
from bertine.data.streams import COMPRESSIONS
from bertine.models.config_file import CONFIG, MODULES

#: The formats of files of word vectors by their suffix, and the settings of a folder of them.
FORMATS = {".bin": "binary", ".txt": "text", ".vec": "text"}
SETTINGS = "word2vec.json"
#: The ends of the published names of an ELMo's two files.
OPTIONS, WEIGHTS = "options.json", ".hdf5"
#: The model type of a table with a vector for each piece.
STATIC = "model2vec"


# Tables of word vectors.


def file_format(path: Path | str) -> str | None:
    """Return "binary" or "text" by the suffix of `path`, without that of a compression; None for
    any other."""
    path = Path(path)
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return FORMATS.get(path.suffix.lower())


def holds_word_vectors(path: Path | str) -> bool:
    """Return whether `path` is a folder of word vectors, or a file of the word2vec program."""
    return is_word_vectors(path) or (file_format(path) is not None and Path(path).is_file())


def is_word_vectors(path: Path | str) -> bool:
    """Return whether `path` is a folder of word vectors."""
    return (Path(path) / SETTINGS).is_file()


# ELMo.


@dataclass(frozen=True)
class PublishedFiles:
    """The two published files of a folder.

    Attributes:
        options: the JSON.
        weights: the HDF5.
    """

    options: Path
    weights: Path


def published_files(folder: Path) -> PublishedFiles | None:
    """Return the two files of an ELMo in `folder`; None if it has none.

    Raises:
        BertineError: it has several of a kind.
    """
    if not folder.is_dir():
        return None
    with os_errors(folder, "looking at it"):
        names = sorted(entry.name for entry in folder.iterdir())
    options = [name for name in names if name.endswith(OPTIONS)]
    weights = [name for name in names if name.endswith(WEIGHTS)]
    if len(weights) > 1:  # there may also be vectors
        weights = [name for name in weights if name.endswith("weights" + WEIGHTS)] or weights
    if not options or not weights:
        return None
    for kind, result in (("options", options), ("weights", weights)):
        if len(result) > 1:
            raise BertineError(
                f"{folder}: has several files of {kind} ({', '.join(result[:4])}); leave one there"
            )
    return PublishedFiles(folder / options[0], folder / weights[0])


def elmo_folder(path: str | Path) -> Path | None:
    """Return the folder of an ELMo that `path` is or names, or that the run's folder `path` holds;
    None if that is something else, or nothing.

    Raises:
        BertineError: a ``config.json`` cannot be read, or there are several published files of a
            kind.
    """
    folder = locate(path)
    for place in (folder, folder / "model"):
        if (place / CONFIG).is_file():
            values = read_json_object(place / CONFIG)
            return place if values.get("model_type") == "elmo" else None
    return folder if published_files(folder) else None


# Tables of static vectors.


def static_folder(path: Path | str) -> Path | None:
    """Return the folder of a table of vectors that `path` is or names, or that the run's folder
    `path` holds; None if there is none.

    Raises:
        BertineError: a ``config.json`` or ``modules.json`` that cannot be read.
    """
    folder = locate(path)
    for place in (folder, folder / "model"):
        if (place / CONFIG).is_file():
            same = read_json_object(place / CONFIG).get("model_type") == STATIC
            return place if same else None
        if (place / MODULES).is_file() and _begins_static(read_json(place / MODULES)):
            return place
    return None


def _begins_static(modules: Any) -> bool:
    """Return whether the first module of sentence-transformers is a table of vectors."""
    first = modules[0] if isinstance(modules, list) and modules else None
    return isinstance(first, dict) and str(first.get("type")).endswith(".StaticEmbedding")
