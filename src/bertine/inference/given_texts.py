"""Texts that a program gives, told from what is none: gaps of a data frame, numbers, bytes,
dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from bertine.errors import BertineError

#: A text, or several that belong together: a pair, what is given and its choices, a list of words.
Text = str | tuple[str, ...]


def checked_texts(texts: Iterable[Any], first: int = 1) -> list[Text]:
    """`texts` as strings, and tuples of strings.

    Args:
        texts: N of them; several that belong together in any sequence, not by names.
        first: the number of the first one, for messages.

    Raises:
        BertineError: something else; its number is told, from `first` on.
    """
    return [
        text if isinstance(text, str) else _several(text, number)
        for number, text in enumerate(texts, first)
    ]


def checked_singles(texts: Iterable[Any]) -> list[str]:
    """`texts`, which are strings.

    Raises:
        BertineError: something else; its number is told, from 1 on.
    """
    singles = list(texts)
    for number, text in enumerate(singles, 1):
        if not isinstance(text, str):
            raise _no_text(text, number)
    return singles


def _several(texts: Any, number: int) -> tuple[str, ...]:
    # Of a mapping the keys would be read, of a set what comes first is chance.
    if isinstance(texts, bytes | Mapping | Set) or not isinstance(texts, Iterable):
        raise _no_text(texts, number)
    parts = tuple(texts)
    for part in parts:
        if not isinstance(part, str):
            raise _no_text(part, number)
    return parts


def _no_text(value: Any, number: int) -> BertineError:
    shown = f"{value!r:.40}"
    return BertineError(
        f"input:{number}: {shown} ({type(value).__name__}) is no text; give a string, an empty one "
        "where there is nothing"
    )
