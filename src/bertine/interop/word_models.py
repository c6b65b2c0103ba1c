"""Folders of models whose vectors are those of words, and that are no encoders of pieces."""

from __future__ import annotations

from pathlib import Path

from bertine.bundled import locate
from bertine.files import read_json_object
from bertine.interop.config_file import CONFIG
from bertine.interop.elmo.published import published_files
from bertine.registry import WORD_MODELS


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
    return "elmo" if published_files(folder) else None
