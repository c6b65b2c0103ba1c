"""Rows of JSON lines, or of a list of JSON: parsed, and their values named in messages."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bertine.errors import BertineError
from bertine.tables.column_names import listed


def json_row(line: str, where: str, only: str | None = None) -> dict[str, Any]:
    """Parse a row of JSON lines.

    Args:
        only: the one key that is read; None: any may be.

    Raises:
        BertineError: not JSON, no object, or a key that is read is there twice; begins with
            `where`.
    """
    # Hooks cost as much as all the rest of it.
    simple = only is not None and line.count(f'"{only}"') < 2
    hook = None if simple else functools.partial(_object, only=only)
    try:
        values = json.loads(line, object_pairs_hook=hook)
    except _KeyTwice as error:
        raise BertineError(f"{where}: {error}; rename or remove one") from error
    except (ValueError, RecursionError) as error:
        raise BertineError(
            f"{where}: not valid JSON ({error}); JSON lines have one whole object on each line"
        ) from error
    if not isinstance(values, dict):
        raise BertineError(
            f"{where}: {json_kind(values)}, but each line, or each item of a list, must be one "
            'object ({"text": ...})'
        )
    return values


#: A file of one list of objects begins so, and a text hardly ever.
_LIST = re.compile(r'\s*\[\s*(\{\s*("|$)|$)')
_SPACE = re.compile(r"\s*")


def begins_list(first: str) -> bool:
    """Tell whether the first line of a file is that of one list of JSON objects."""
    return _LIST.match(first) is not None


def list_items(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Divide a list of JSON into the texts of its items, each with the line that it begins on.

    Raises:
        BertineError: it is broken; names the line.
    """
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0

    def skip(at: int) -> int:
        match = _SPACE.match(text, at)
        return at if match is None else match.end()

    def place(at: int) -> str:
        return f"{name}:{text.count(chr(10), 0, at) + 1}"

    at = skip(at)
    while text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            where = place(error.pos) if isinstance(error, json.JSONDecodeError) else place(at)
            raise BertineError(
                f"{where}: not valid JSON ({error}), in a list of objects"
            ) from error
        yield line, text[at:end]
        at = skip(end)
        if text[at : at + 1] == ",":
            at = skip(at + 1)
            if text[at : at + 1] != "]":
                continue
        elif text[at : at + 1] == "]":
            break
        raise BertineError(
            f"{place(at)}: not valid JSON: between the items of a list stands one comma, and ] "
            "ends it; is the file cut off?"
        )
    if rest := text[at + 1 :].strip():
        raise BertineError(f"{place(skip(at + 1))}: {rest[:20]!r} stands behind the list of JSON")


class _KeyTwice(ValueError):
    """Still valid JSON, so not reported as a bad line."""


def _object(pairs: list[tuple[str, Any]], only: str | None) -> dict[str, Any]:
    """Make a JSON object; a key that is there twice would lose its first value in silence."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(key for key, _ in pairs if only in (None, key))
        for twice in [key for key, count in counts.items() if count > 1][:1]:
            raise _KeyTwice(f"the key {listed([twice])} is there twice in an object")
    return values


def without_surrogates(text: str) -> str:
    """Return `text` with U+FFFD in the place of halves of surrogate pairs: legal in JSON, but
    neither UTF-8 nor a tokenizer takes them."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def json_kind(value: Any) -> str:
    """Name the kind of JSON that a value is, for messages."""
    names = {dict: "an object", list: "a list", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a text" if isinstance(value, str) else "a number")
