"""The `tokenizers` object behind :class:`bertine.Tokenizer`: built, read, tested."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

# `tokenizers` warns at every fork after its threads have been used, unless this variable is set;
# and threads that did not survive a fork would be waited for without end. So: threads here (unless
# the user says otherwise), none in a child made by fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=lambda: os.environ.__setitem__("TOKENIZERS_PARALLELISM", "false")
    )

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from bertine.errors import BertineError
from bertine.files import os_errors, read_bounded, read_json_object
from bertine.terminal.console import warn
from bertine.terminal.text import briefly, shortened

#: The special tokens, in the order in which a vocabulary trained by Bertine begins with them.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

#: Bytes of a vocab.txt; one with a million pieces has about 10 MB.
_MAX_VOCAB_BYTES = 64 * 2**20

#: The settings of a tokenizer that are true, false or not said.
_SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")

#: Words of more characters become [UNK] (``max_input_chars_per_word`` of the published code).
MAX_CHARS_PER_WORD = 100


#: A tokenizer file may say more; the time for a word grows with the square of its characters.
_MOST_CHARS_PER_WORD = 1000


def normalizer(
    lowercase: bool, strip_accents: bool | None, split_chinese: bool
) -> normalizers.BertNormalizer:
    """BERT's normalization (``BasicTokenizer`` in google-research/bert, ``tokenization.py``)."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )


def check_special_tokens(tokens: Iterable[str], source: str) -> None:
    """Refuse a vocabulary without a special token; `source` names it in the message."""
    held = set(tokens)
    missing = [token for token in SPECIAL_TOKENS if token not in held]
    if missing:
        raise BertineError(
            f"{source}: the vocabulary lacks the special token{'s' * (len(missing) > 1)} "
            f"{' '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}, each once"
        )


def build(
    tokens: Sequence[str],
    *,
    lowercase: bool,
    strip_accents: bool | None,
    split_chinese: bool,
    source: str,
) -> tokenizers.Tokenizer:
    """WordPiece over `tokens`, whose positions are their ids; `source` names them in messages."""
    ids = {token: index for index, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        token = Counter(tokens).most_common(1)[0][0]
        lines = [str(number) for number, other in enumerate(tokens, 1) if other == token]
        raise BertineError(
            f"{source}: the token {token!r} is there {len(lines)} times (lines "
            f"{', '.join(lines[:5])}); each token must be there once"
        )
    check_special_tokens(tokens, source)
    backend = tokenizers.Tokenizer(
        models.WordPiece(vocab=ids, unk_token="[UNK]", max_input_chars_per_word=MAX_CHARS_PER_WORD)
    )
    backend.normalizer = normalizer(lowercase, strip_accents, split_chinese)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def read(path: Path) -> tuple[tokenizers.Tokenizer, str]:
    """Read what :meth:`bertine.Tokenizer.load` reads; also the file's name."""
    with os_errors(path, "loading the tokenizer"):
        path.stat()
        named = ("tokenizer.json", "vocab.txt")
        if path.is_dir() and not any((path / name).exists() for name in named):
            # The folder of a run holds its model directory.
            inner = path / "model"
            if any((inner / name).exists() for name in named):
                path = inner
    folder = path if path.is_dir() else path.parent
    config: dict[str, Any] = {}
    if (folder / "tokenizer_config.json").is_file():
        config = _read_settings(folder / "tokenizer_config.json")
    json_file = path / "tokenizer.json" if path.is_dir() else path
    if json_file.suffix == ".json" and json_file.exists():
        return _read_json(json_file, config), str(json_file)
    vocab_file = path / "vocab.txt" if path.is_dir() else path
    if not vocab_file.is_file():
        raise BertineError(f"{path}: no tokenizer.json and no vocab.txt in this folder")
    tokens = _read_vocab(vocab_file)
    lowercase = config.get("do_lower_case")
    backend = build(
        tokens,
        lowercase=_looks_uncased(tokens) if lowercase is None else bool(lowercase),
        strip_accents=config.get("strip_accents"),
        split_chinese=config.get("tokenize_chinese_chars") is not False,
        source=str(vocab_file),
    )
    return backend, str(vocab_file)


def _read_settings(file: Path) -> dict[str, Any]:
    """The contents of a ``tokenizer_config.json``, its switches checked."""
    values = read_json_object(file)
    for name in _SWITCHES:
        if not isinstance(values.get(name), bool | None):
            raise BertineError(
                f"{file}: {name} is {briefly(values[name])}, but must be true, false or null"
            )
    return values


def _read_json(file: Path, config: dict[str, Any]) -> tokenizers.Tokenizer:
    value = read_json_object(file)
    for part, wanted in (
        ("model", "WordPiece"),
        ("normalizer", "BertNormalizer"),
        ("pre_tokenizer", "BertPreTokenizer"),
    ):
        found = value.get(part)
        kind = found.get("type") if isinstance(found, dict) else None
        if kind != wanted:
            raise BertineError(
                f"{file}: its {part} is {shortened(str(kind or 'missing'), 80)}, not {wanted}; "
                "give a tokenizer of BERT's kind"
            )
    settings = value["normalizer"]
    for ours, theirs in (
        ("lowercase", "do_lower_case"),
        ("strip_accents", "strip_accents"),
        ("handle_chinese_chars", "tokenize_chinese_chars"),
    ):
        if theirs in config and config[theirs] != settings.get(ours):
            warn(
                f"{file.parent}: tokenizer_config.json has {theirs} {config[theirs]}, "
                f"tokenizer.json {settings.get(ours)}; the former is used"
            )
            settings[ours] = config[theirs]
    _check_model(file, value["model"])
    _check_added_tokens(file, value.get("added_tokens"))
    # Replaced in any case (:class:`bertine.Tokenizer`). What a file says of padding
    # may ask the library for more memory than there is, which ends the process.
    for part in ("truncation", "padding", "post_processor", "decoder"):
        value[part] = None
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(value))
    except Exception as error:  # `tokenizers` raises nothing more exact
        raise BertineError(f"{file}: not a tokenizer ({error})") from error


def _check_model(file: Path, model: dict[str, Any]) -> None:
    """Check what the library takes as it is."""
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab:
        raise BertineError(f"{file}: vocab in its model must be an object of ids by token")
    wrong = next((token for token, index in vocab.items() if type(index) is not int), None)
    if wrong is not None:
        raise BertineError(
            f"{file}: the id of the token {briefly(wrong)} is {briefly(vocab[wrong])}, but must be "
            "a whole number"
        )
    check_special_tokens(vocab, str(file))
    unknown = model.get("unk_token", "[UNK]")
    if unknown != "[UNK]":
        raise BertineError(f"{file}: unk_token is {briefly(unknown)}, but must be '[UNK]'")
    prefix = model.get("continuing_subword_prefix", "##")
    if not isinstance(prefix, str):
        raise BertineError(
            f"{file}: continuing_subword_prefix is {briefly(prefix)}, but must be a text"
        )
    longest = model.get("max_input_chars_per_word", MAX_CHARS_PER_WORD)
    if type(longest) is not int or not 1 <= longest <= _MOST_CHARS_PER_WORD:
        raise BertineError(
            f"{file}: max_input_chars_per_word is {briefly(longest)}, but must be a whole number "
            f"from 1 to {_MOST_CHARS_PER_WORD:,}"
        )


def _check_added_tokens(file: Path, tokens: Any) -> None:
    for token in [] if tokens is None else tokens if isinstance(tokens, list) else [None]:
        if (
            not isinstance(token, dict)
            or type(token.get("id")) is not int
            or not isinstance(token.get("content"), str)
            or not token["content"]
        ):
            raise BertineError(
                f"{file}: added_tokens must be a list of objects with an id and a content that is "
                "not empty"
            )


def _read_vocab(file: Path) -> list[str]:
    with os_errors(file, "loading the vocabulary"):
        try:
            tokens = read_bounded(file, _MAX_VOCAB_BYTES).decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise BertineError(
                f"{file}: not UTF-8 text ({error.reason}); give a vocab.txt"
            ) from error
    if not tokens[-1]:
        tokens.pop()  # after the last line end there is no token
    # Stripped as in the published code, since one vocabulary (Chinese) has U+2028 in two tokens.
    return [token.rstrip() for token in tokens]


def _looks_uncased(tokens: Iterable[str]) -> bool:
    """Whether no token has a capital letter A-Z, but those in brackets ([CLS], <S>)."""
    brackets = {"[": "]", "<": ">"}
    return not any(
        re.search("[A-Z]", token)
        for token in tokens
        if not (token[:1] in brackets and token.endswith(brackets[token[0]]))
    )
