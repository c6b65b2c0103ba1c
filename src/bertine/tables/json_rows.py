"""Rows of JSON lines: parsed, and their values named in messages."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from bertine.errors import BertineError
from bertine.tables.column_names import listed


def json_row(line: str, where: str) -> dict[str, Any]:
    """Parse a row of JSON lines.

    Raises:
        BertineError: not JSON, no object, or a key is there twice; begins with `where`.
    """
    try:
        values = json.loads(line, object_pairs_hook=_object)
    except _KeyTwice as error:
        raise BertineError(f"{where}: {error}; rename or remove one") from error
    except (ValueError, RecursionError) as error:
        raise BertineError(
            f"{where}: not valid JSON ({error}); JSON lines have one whole object on each line"
        ) from error
    if not isinstance(values, dict):
        raise BertineError(
            f"{where}: {json_kind(values)}, but JSON lines have one object "
            '({"text": ...}) on each line'
        )
    return values


class _KeyTwice(ValueError):
    """Still valid JSON, so not reported as a bad line."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; a key that is there twice would lose its first value in silence."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _KeyTwice(f"the key {listed([twice])} is there twice in an object")
    return values


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
