"""The kinds of tokenizers by name, and which of them a folder holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import os_errors, read_json_object
from bertine.names import TokenizerKind
from bertine.terminal.text import briefly, shortened
from bertine.text.added_tokens import (
    ADDED,
    NAMED,
    SETTINGS,
    add_tokens,
    named_tokens,
    read_settings,
    with_tokens,
)
from bertine.text.byte_bpe import ByteBpe
from bertine.text.kind import Kind, check_added_tokens
from bertine.text.unigram.tokenizing import Unigram
from bertine.text.word_bpe.tokenizing import WordBpe
from bertine.text.wordpiece import WordPiece

KINDS: dict[TokenizerKind, type[Kind]] = {
    kind.name: kind for kind in (WordPiece, ByteBpe, Unigram, WordBpe)
}

#: In the names of the classes of tokenizers that divide text into words by a program of their own;
#: and the settings that those have.
_DIVIDING = re.compile(
    "japanese|mecab|sudachi|juman|janome|jieba|roformer|wobert|cpm|bertweet|phobert|flaubert|^XLMTok"
    "|kobert",
    re.IGNORECASE,
)
_DIVIDING_KEYS = ("word_tokenizer_type", "mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs")

#: The files that a tokenizer's folder may hold.
FILES = frozenset(
    {
        *("tokenizer.json", SETTINGS, NAMED, ADDED),
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
    folder = path if path.is_dir() else path.parent
    config = read_settings(folder)
    _refuse_dividing(folder / SETTINGS, config)
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
    return with_tokens(kind, file, config, named_tokens(folder, config)), str(file)


def _refuse_dividing(file: Path, config: dict[str, Any]) -> None:
    """Refuse a tokenizer that divides text into words by a program of its own, which is in none of
    its files: read without it, texts would have other ids than the model was trained with."""
    name = config.get("tokenizer_class")
    keys = [f"{key} {briefly(config[key])}" for key in _DIVIDING_KEYS if config.get(key)]
    if keys or _DIVIDING.search(str(name)):
        said = ", ".join([f"tokenizer_class {briefly(name)}", *keys])
        raise BertineError(
            f"{file}: {shortened(said, 200)}: it divides text into words by itself (as MeCab or "
            "Jieba do), which Bertine does not; ids would be other ones than the model was trained "
            "with"
        )


def _read_json(file: Path, config: dict[str, Any]) -> tuple[Kind, str]:
    value = read_json_object(file)
    model = value.get("model")
    name = model.get("type") if isinstance(model, dict) else None
    for kind in KINDS.values():
        if kind.is_of_json(value):
            check_added_tokens(file, value.get("added_tokens"))
            add_tokens(file, value, named_tokens(file.parent, config))
            return kind.from_json(file, value, config), str(file)
    known = " or ".join(dict.fromkeys(kind.model for kind in KINDS.values()))
    raise BertineError(
        f"{file}: its model is {shortened(str(name or 'missing'), 80)}, not {known}; give a "
        "tokenizer of a kind that Bertine knows"
    )
