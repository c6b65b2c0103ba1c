"""The kinds of tokenizers by name, and which of them a folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import os_errors, read_json_object
from bertine.names import TokenizerKind
from bertine.terminal.text import shortened
from bertine.text.byte_bpe import ByteBpe
from bertine.text.kind import Kind, check_added_tokens
from bertine.text.unigram.tokenizing import Unigram
from bertine.text.word_bpe.tokenizing import WordBpe
from bertine.text.wordpiece import WordPiece

KINDS: dict[TokenizerKind, type[Kind]] = {
    kind.name: kind for kind in (WordPiece, ByteBpe, Unigram, WordBpe)
}

#: The files that a tokenizer's folder may hold.
FILES = frozenset(
    {
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
        *(name for kind in KINDS.values() for names in kind.vocabularies for name in names),
    }
)


def holds_tokenizer(folder: Path) -> bool:
    """Tell whether a folder holds the files of a tokenizer."""
    return any(
        all((folder / name).exists() for name in names)
        for names in (
            ("tokenizer.json",),
            *(names for kind in KINDS.values() for names in kind.vocabularies),
        )
    )


def read(path: Path) -> tuple[Kind, str]:
    """Read what :meth:`bertine.Tokenizer.load` reads.

    Returns:
        The kind, and the name of the file that it was read from.
    """
    with os_errors(path, "loading the tokenizer"):
        path.stat()
        # The folder of a run holds its model directory.
        if path.is_dir() and not holds_tokenizer(path) and holds_tokenizer(path / "model"):
            path = path / "model"
    folder = path if path.is_dir() else path.parent
    config: dict[str, Any] = {}
    if (folder / "tokenizer_config.json").is_file():
        config = read_json_object(folder / "tokenizer_config.json")
    if path.is_dir():
        if (path / "tokenizer.json").exists():
            return _read_json(path / "tokenizer.json", config)
        fitting = [
            kind
            for kind in KINDS.values()
            if any(all((path / name).is_file() for name in names) for names in kind.vocabularies)
        ]
        if not fitting:
            groups = dict.fromkeys(n for kind in KINDS.values() for n in kind.vocabularies)
            names = " and no ".join(" with ".join(group) for group in groups)
            raise BertineError(f"{path}: no tokenizer.json and no {names} in this folder")
    else:
        fitting = [
            kind
            for kind in KINDS.values()
            if any(path.name in names for names in kind.vocabularies)
            or (kind.suffix and path.suffix == kind.suffix)
        ]
        if not fitting and path.suffix == ".json":
            return _read_json(path, config)
    if len(fitting) > 1:
        fitting = [kind for kind in fitting if kind.is_of_files(path)] or fitting
    kind, file = (fitting or [WordPiece])[0].from_vocabulary(path, config)
    return kind, str(file)


def _read_json(file: Path, config: dict[str, Any]) -> tuple[Kind, str]:
    value = read_json_object(file)
    model = value.get("model")
    name = model.get("type") if isinstance(model, dict) else None
    for kind in KINDS.values():
        if kind.is_of_json(value):
            check_added_tokens(file, value.get("added_tokens"))
            return kind.from_json(file, value, config), str(file)
    known = " or ".join(dict.fromkeys(kind.model for kind in KINDS.values()))
    raise BertineError(
        f"{file}: its model is {shortened(str(name or 'missing'), 80)}, not {known}; give a "
        "tokenizer of a kind that Bertine knows"
    )
