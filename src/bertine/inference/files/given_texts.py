"""Texts that a program gives: strings, tuples of strings, dictionaries by column. Anything else
(gaps of a data frame, numbers, bytes) is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from bertine.errors import BertineError
from bertine.tables.column_names import missing_column
from bertine.tables.given import as_table, is_frame
from bertine.tables.text_columns import USUAL_TEXT_COLUMNS

#: A text, or several that belong together: a pair, what is given and its choices, a list of words.
Text = str | tuple[str, ...]
#: The same, or its texts by the names of the model's columns.
TextOrDict = Text | Mapping[str, str]
#: One text, as a string or in a dictionary.
Single = str | Mapping[str, str]


def is_one(texts: object) -> bool:
    """Return whether `texts` is one text, or the texts of one example in a dictionary, and not
    several examples."""
    if isinstance(texts, str):
        return True
    return isinstance(texts, Mapping) and all(isinstance(each, str) for each in texts.values())


def several(texts: Any) -> list[Any]:
    """Return the texts of a list, of a generator or of anything else that gives them once; one text
    in a list; of a data frame or a dictionary of columns its rows.

    Raises:
        BertineError: it gives none.
    """
    if is_one(texts):
        return [texts]
    if is_frame(texts):
        return list(as_table(texts, "texts").rows())
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise BertineError(
            f"texts is {texts!r:.40} ({type(texts).__name__}); give a text or a list of texts"
        )
    return list(texts)


def with_names(texts: Mapping[str, Any], columns: Sequence[str], optional: int, where: str) -> Any:
    """Return the texts of a dictionary in the order of `columns`; other keys are left out.

    Args:
        columns: of the model's texts.
        optional: so many of the last columns may be missing.
        where: the dictionary is, for messages.

    Raises:
        BertineError: a column is missing.
    """
    needed = len(columns) - optional
    for column in columns[:needed]:
        if column not in texts:
            raise BertineError(missing_column(where, list(map(str, texts)), column))
    chosen = [texts.get(column) for column in columns]
    while len(chosen) > needed and chosen[-1] in (None, ""):
        chosen.pop()
    return chosen[0] if len(columns) == 1 else tuple(chosen)


def checked_texts(texts: Iterable[Any], first: int = 1) -> list[Text]:
    """Return `texts` as strings, and tuples of strings.

    Args:
        texts: N of them; several that belong together in any sequence, not by names.
        first: the number of the first one, for messages.

    Raises:
        BertineError: something else; the message has its number, from `first` on.
    """
    return [
        text if isinstance(text, str) else _several(text, number)
        for number, text in enumerate(texts, first)
    ]


def checked_singles(texts: Iterable[Any]) -> list[str]:
    """Return `texts` as strings: each is one, or a dictionary with its text under ``text`` or
    ``sentence``, or as its only entry.

    Raises:
        BertineError: something else; the message has its number, from 1 on.
    """
    if hasattr(texts, "columns"):
        raise BertineError(
            "a table is given, but texts are needed; give its column, such as table['text']"
        )
    singles = list(texts)
    for number, text in enumerate(singles, 1):
        if isinstance(text, Mapping):
            singles[number - 1] = text = _only_text(text, number)
        if not isinstance(text, str):
            raise _no_text(text, number)
    return singles


def _only_text(texts: Mapping[str, Any], number: int) -> Any:
    names = [name for name in USUAL_TEXT_COLUMNS if name in texts]
    if not names and len(texts) != 1:
        raise BertineError(missing_column(f"input:{number}", list(map(str, texts)), "text"))
    return texts[names[0]] if names else next(iter(texts.values()))


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
        f"input:{number}: {shown} ({type(value).__name__}) is not a text; give a string, an empty "
        "one where there is nothing"
    )
