"""Read the tokens that files next to a vocabulary add to it, as `transformers` reads them.

These are the tokens of ``added_tokens_decoder`` in tokenizer_config.json; in older folders those of
added_tokens.json and special_tokens_map.json. A text is split at them first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.core.console import briefly, logger, visible_list
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object
from bertine.tokenization.base import Kind

SETTINGS, NAMED, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"

_DECODER = "added_tokens_decoder"
#: The settings for unnamed special tokens, in newer and older versions.
_MORE = _EXTRA, _ADDITIONAL = ("extra_special_tokens", "additional_special_tokens")
#: Most tokens named in a message.
_SHOWN = 5
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class NamedToken:
    """A token named by a file next to a vocabulary.

    Attributes:
        content: its text.
        index: its id; None: its id in the vocabulary, else the next free one.
        flags: the flags of its search in a text that are true.
        needed: whether it is added if the vocabulary lacks it.
        decisive: whether its flags override those of a tokenizer.json.
    """

    content: str
    index: int | None = None
    flags: Mapping[str, bool] = field(default_factory=dict)
    needed: bool = True
    decisive: bool = False


def read_settings(folder: Path) -> dict[str, Any]:
    """Read tokenizer_config.json, special_tokens_map.json where it applies, and the tokenizer class
    if only config.json names it; {} if there are none."""
    settings: dict[str, Any] = {}
    if (folder / SETTINGS).is_file():
        settings = read_json_object(folder / SETTINGS)
    if _ADDITIONAL in settings and not settings.get(_EXTRA):
        settings[_EXTRA] = settings.pop(_ADDITIONAL)
    if _DECODER not in settings and (folder / NAMED).is_file():
        settings |= read_json_object(folder / NAMED)
    if "tokenizer_class" not in settings and (folder / "config.json").is_file():
        settings["tokenizer_class"] = read_json_object(folder / "config.json").get(
            "tokenizer_class"
        )
    return settings


def content_of(token: Any) -> str | None:
    """Return the text of a token, written as a string or an object; None if it is neither."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) and text else None


def named_tokens(folder: Path, settings: Mapping[str, Any]) -> list[NamedToken]:
    """List the tokens that the files of a folder name, those with ids first, in order.

    Args:
        folder: the folder of the vocabulary.
        settings: the result of :func:`read_settings`.

    Raises:
        BertineError: an entry is not a token.
    """
    more = {key: list(_more(folder / SETTINGS, settings, key)) for key in _MORE}
    special = [*more[_EXTRA], *_named(settings)]
    tokens: list[NamedToken] = []
    if settings.get(_DECODER) is not None:
        tokens += _of_decoder(folder / SETTINGS, settings[_DECODER])
    elif (folder / ADDED).is_file():
        # The tokens of an older special_tokens_map.json are not among the special ones there.
        tokens += _of_added(folder / ADDED, {token.content for token in special})
    return [*sorted(tokens, key=lambda token: token.index or 0), *special, *more[_ADDITIONAL]]


def _named(settings: Mapping[str, Any]) -> Iterator[NamedToken]:
    """Yield the named tokens, such as ``bos_token``: if the vocabulary lacks them, no model has
    been trained with them."""
    for key, value in settings.items():
        if key.endswith("_token") and (content := content_of(value)):
            yield NamedToken(content, None, {"special": True}, needed=False)


def _more(file: Path, settings: Mapping[str, Any], key: str) -> Iterator[NamedToken]:
    listed = settings.get(key) or []
    if isinstance(listed, dict):
        listed = list(listed.values())
    for value in listed if isinstance(listed, list) else [listed]:
        if (content := content_of(value)) is None:
            raise BertineError(f"{file}: {key} has {briefly(value)}, which is no token")
        yield NamedToken(content, None, _flags(file, value) | {"special": True})


def _of_decoder(file: Path, tokens: Any) -> Iterator[NamedToken]:
    if not isinstance(tokens, dict):
        raise BertineError(f"{file}: {_DECODER} is {briefly(tokens)}, but must be tokens by id")
    for key, value in tokens.items():
        content = content_of(value) if isinstance(value, dict) else None
        if content is None or not (key.isascii() and key.isdigit()) or len(key) > 9:
            raise BertineError(f"{file}: {_DECODER} has {briefly({key: value})}, not a token by id")
        yield NamedToken(content, int(key), _flags(file, value), decisive=True)


def _of_added(file: Path, special: Collection[str]) -> Iterator[NamedToken]:
    for content, index in read_json_object(file).items():
        if not content or type(index) is not int or index < 0:
            raise BertineError(f"{file}: has {briefly({content: index})}, not a token and its id")
        flag = "special" if content in special else "normalized"
        yield NamedToken(content, index, {flag: True})


def _flags(file: Path, token: Any) -> dict[str, bool]:
    """Return the flags of a token that are true."""
    flags = {name: token.get(name, False) for name in _FLAGS} if isinstance(token, dict) else {}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise BertineError(f"{file}: in {briefly(token)} a flag is neither true nor false")
    return {name: flag for name, flag in flags.items() if flag}


def add_tokens(file: Path, value: dict[str, Any], tokens: Sequence[NamedToken]) -> None:
    """Add missing tokens to `value`, the contents of a tokenizer.json.

    Raises:
        BertineError: an id differs from the one that a token has, or would get; `file` names the
            vocabulary.
    """
    ids = _ids(value["model"].get("vocab"))
    held = {token["content"]: token for token in value.get("added_tokens") or []}
    following = 1 + max([*ids.values(), *(token["id"] for token in held.values())], default=-1)
    decisive = {token.content for token in tokens if token.decisive}
    more = [content for content in held if content not in ids and content not in decisive]
    if decisive and more:
        logger.warning(
            f"{file}: adds {visible_list(more[:_SHOWN])}, which {_DECODER} in {SETTINGS} lacks; "
            "they are read here, but transformers may ignore them"
        )
    for token in tokens:
        entry = held.get(token.content)
        if entry is None and not (token.needed or token.content in ids):
            continue
        index = ids.get(token.content, following) if entry is None else entry["id"]
        if token.index not in (None, index):
            raise BertineError(
                f"{file}: the token {briefly(token.content)} has the id {token.index} in {ADDED} "
                f"or {SETTINGS}, but {index} in this vocabulary; they do not belong together"
            )
        flags = {**dict.fromkeys(_FLAGS, False), **token.flags}
        if entry is None:
            following += index == following
            held[token.content] = {**flags, "content": token.content, "id": index}
        elif token.decisive:
            entry |= flags
    value["added_tokens"] = sorted(held.values(), key=lambda token: int(token["id"]))


def _ids(vocab: Any) -> dict[str, int]:
    """Return the ids of a vocabulary's tokens, given as such or as a list of pieces with scores;
    without invalid entries, which the reader of the vocabulary refuses."""
    if isinstance(vocab, list):
        vocab = {
            str(entry[0]): at for at, entry in enumerate(vocab) if isinstance(entry, list) and entry
        }
    entries = vocab.items() if isinstance(vocab, dict) else ()
    return {token: index for token, index in entries if type(index) is int}


def with_tokens(
    kind: Kind, file: Path, settings: dict[str, Any], tokens: Sequence[NamedToken]
) -> Kind:
    """Return a kind read from a vocabulary `file`, with tokens added to it; the kind itself if they
    are its own special tokens."""
    if {token.content for token in tokens} <= set(kind.special.tokens):
        return kind
    value = json.loads(kind.backend.to_str())
    add_tokens(file, value, tokens)
    return kind.from_json(file, value, settings)
