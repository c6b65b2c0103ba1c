"""Several labels in one cell: lists, tuples and sets that were written as a text, and lists that
hold 0 or 1 for each label (as the multi-label heads of other programs want them)."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence

from bertine.errors import BertineError
from bertine.tables.json_rows import without_surrogates

#: What Python, NumPy, pandas and PyTorch write around the brackets.
_NAMED = re.compile(r"\w+\((\s*[\[({].*?[\])}])(?:,\s*\w+=[^()]*)?\)", re.DOTALL)
_EMPTY = re.compile(r"(?:frozenset|set|list|tuple)\(\)")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_NUMBER = r"[+-]?\d+(?:\.\d*)?|True|False|true|false"
#: Items in quotes or numbers, with commas or, as NumPy writes them, blanks between.
_ITEMS = re.compile(rf"\s*(?:(?:{_QUOTED}|{_NUMBER})(?:\s*,\s*|\s+|$))*", re.DOTALL)
_ITEM = re.compile(rf"{_QUOTED}|{_NUMBER}", re.DOTALL)
_BARE = re.compile(r"[^'\"\[\]{}():]+")
_BITS, _DIGITS = re.compile(r"[01](?:\s+[01])+"), re.compile("[01]{3,}")
#: How it is written that a label is not there, the last three in data for the hinge loss, and that
#: it is.
NO = frozenset(("0", "0.", "0.0", "false", "False", "FALSE", "-1", "-1.", "-1.0"))
YES = frozenset(("1", "1.", "1.0", "true", "True", "TRUE"))


def parsed_list(text: str) -> list[str] | None:
    """Return the labels of a list, a tuple or a set that is written as a text, as Python, JSON,
    NumPy and Postgres write them; those of a set, whose order is chance, sorted. None: it is none
    of these.
    """
    text = text.strip()
    if _EMPTY.fullmatch(text):
        return []
    if named := _NAMED.fullmatch(text):
        text = named[1].strip()
    if text[:1] + text[-1:] not in ("[]", "()", "{}") or len(text) < 2:
        return None
    inside = text[1:-1].strip()
    if text[0] == "(" and inside and not re.search("[,'\"]", inside):
        return None  # a label in parentheses
    if _ITEMS.fullmatch(inside):
        items = [_item(match[0]) for match in _ITEM.finditer(inside)]
    elif _BARE.fullmatch(inside):
        items = [item.strip() for item in inside.split(",")]
    else:
        return None
    return sorted(set(items)) if text[0] == "{" else items


def _item(text: str) -> str:
    """Return one of the items of a list without its quotes."""
    if text[0] not in "'\"":
        return text
    try:
        value: str = json.loads(text) if text[0] == '"' else ast.literal_eval(text)
    except (ValueError, SyntaxError):  # escapes of neither
        return text[1:-1]
    return without_surrogates(value)


def numbers_in(texts: Sequence[str]) -> list[list[str]] | None:
    """Return the numbers of texts that all are 0 and 1 with blanks between, or of one length (three
    or more) without; None of others."""
    filled = [text.strip() for text in texts if text]
    if filled and all(map(_BITS.fullmatch, filled)):
        return [text.split() for text in texts]
    if len({*map(len, filled)}) == 1 and all(map(_DIGITS.fullmatch, filled)):
        return [[*text.strip()] for text in texts]
    return None


def one_for_each(rows: Sequence[tuple[int, Sequence[str]]], file: str, column: str) -> int:
    """Tell for how many labels the lists of a column hold 0 or 1 each; 0 where they hold labels.

    Args:
        rows: the line of each row that has any, and what its list holds.
        file, column: for messages.

    Raises:
        BertineError: they hold 0 and 1 for each label, but one has fewer than another.
    """
    if not rows or not all(part in NO or part in YES for _, parts in rows for part in parts):
        return 0
    lengths = Counter(len(parts) for _, parts in rows)
    most = max(lengths, key=lambda length: (lengths[length], length))
    if len(lengths) == 1:
        return most if most > 1 else 0
    # Lists of the labels 0 and 1, of which none has one twice.
    if all(len(parts) == len({part in YES for part in parts}) for _, parts in rows):
        return 0
    line, parts = next((line, parts) for line, parts in rows if len(parts) != most)
    raise BertineError(
        f"{file}:{line}: {column!r} holds {len(parts)} numbers of 0 and 1, but most rows have "
        f"{most}; give one for each label in every row"
    )


def chosen(parts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names for which a list holds 1."""
    return [name for name, part in zip(names, parts, strict=True) if part in YES]
