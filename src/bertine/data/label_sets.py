"""Read tables whose rows have any number of labels.

The labels are separated in one column, or a list in JSON lines or Parquet, or there is a column of
0 and 1 for each label. An example's label is one string, its labels joined by :data:`JOINT`; it is
empty for no labels.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import briefly, row_at
from bertine.data.examples import (
    ClassLabels,
    Example,
    Examples,
    as_columns,
    check_texts,
    open_table,
    refuse_both,
    resolve_label_column,
    resolve_text_columns,
    row_texts,
)
from bertine.data.in_memory import Source
from bertine.data.streams import json_kind, require_columns, without_surrogates
from bertine.data.tables import Table, TableRow
from bertine.options.data import DEFAULTS, DataConfig

# Lists in cells: parse lists, tuples and sets written as text, and lists that hold 0 or 1 for each
# label (as the multi-label heads of other programs need them).

#: The text of Python, NumPy, pandas and PyTorch around the brackets.
_NAMED = re.compile(r"\w+\((\s*[\[({].*?[\])}])(?:,\s*\w+=[^()]*)?\)", re.DOTALL)
_EMPTY = re.compile(r"(?:frozenset|set|list|tuple)\(\)")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_NUMBER = r"[+-]?\d+(?:\.\d*)?|True|False|true|false"
#: Items in quotes or numbers, separated by commas or, as NumPy writes them, blanks.
_ITEMS = re.compile(rf"\s*(?:(?:{_QUOTED}|{_NUMBER})(?:\s*,\s*|\s+|$))*", re.DOTALL)
_ITEM = re.compile(rf"{_QUOTED}|{_NUMBER}", re.DOTALL)
_BARE = re.compile(r"[^'\"\[\]{}():]+")
_BITS, _DIGITS = re.compile(r"[01](?:\s+[01])+"), re.compile("[01]{3,}")
#: Texts that mean that a label is absent (the last three in data for the hinge loss), and texts
#: that mean that it is present.
NO = frozenset(("0", "0.", "0.0", "false", "False", "FALSE", "-1", "-1.", "-1.0"))
YES = frozenset(("1", "1.", "1.0", "true", "True", "TRUE"))


def parsed_list(text: str) -> list[str] | None:
    """Parse a list, tuple or set written as text by Python, JSON, NumPy or Postgres, and return its
    labels; those of a set, whose order is random, are sorted. None if it is not such a text."""
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
    """Return an item of a list without its quotes."""
    if text[0] not in "'\"":
        return text
    try:
        value: str = json.loads(text) if text[0] == '"' else ast.literal_eval(text)
    except (ValueError, SyntaxError):  # escapes of neither Python nor JSON
        return text[1:-1]
    return without_surrogates(value)


def numbers_in(texts: Sequence[str]) -> list[list[str]] | None:
    """Return the digits of texts that all hold 0 and 1, separated by blanks, or without blanks and
    of one length (three or more); None for other texts."""
    filled = [text.strip() for text in texts if text]
    if filled and all(map(_BITS.fullmatch, filled)):
        return [text.split() for text in texts]
    if len({*map(len, filled)}) == 1 and all(map(_DIGITS.fullmatch, filled)):
        return [[*text.strip()] for text in texts]
    return None


def one_for_each(rows: Sequence[tuple[int, Sequence[str]]], file: str, column: str) -> int:
    """Return the number of labels if a column's lists hold 0 or 1 for each label; 0 if they hold
    labels.

    Args:
        rows: line number and list of each row that has a list.
        file, column: for messages.

    Raises:
        BertineError: they hold 0 and 1 for each label, but their lengths differ.
    """
    if not rows or not all(part in NO or part in YES for _, parts in rows for part in parts):
        return 0
    lengths = Counter(len(parts) for _, parts in rows)
    most = max(lengths, key=lambda length: (lengths[length], length))
    if len(lengths) == 1:
        return most if most > 1 else 0
    # Lists of the labels 0 and 1, none of which has a label twice.
    if all(len(parts) == len({part in YES for part in parts}) for _, parts in rows):
        return 0
    line, parts = next((line, parts) for line, parts in rows if len(parts) != most)
    raise BertineError(
        f"{row_at(file, line)}: {column!r} holds {len(parts)} numbers of 0 and 1, but most rows "
        f"have {most}; give one for each label in every row"
    )


def chosen(parts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names at the positions where a list holds 1."""
    return [name for name, part in zip(names, parts, strict=True) if part in YES]


#: Separates the labels of one example in memory: ASCII's unit separator, which no label contains.
JOINT = "\x1f"
#: Separators that are tried in this order if none is named.
SEPARATORS = ("|", ";", ",", "\n", "；", "，", "、")
#: Other possible separators, which may also be part of a label.
_PERHAPS = ("/", "+", "&", "\t", " and ", " ")
_LIST = re.compile(r"\s*(?:\[.*\]|\{.*\}|\(.*['\"].*\))\s*", re.DOTALL)


def joined(labels: Iterable[str], separator: str = JOINT) -> str:
    """Join several labels into one string."""
    return separator.join(labels)


def labels_in(label: str) -> list[str]:
    """Split an example's label string into its labels."""
    return label.split(JOINT) if label else []


def read_label_sets(
    path: Source,
    config: DataConfig = DEFAULTS,
    *,
    known: Sequence[str] | None = None,
    one_hot: bool | None = None,
) -> tuple[Examples, str]:
    """Read the examples of a table, each with its labels, and the separator. If the lists in the
    label column hold 0 or 1 for each label, `class_names` of the examples are the `known` labels,
    if their number fits, else their positions from 0 on.

    Args:
        config: columns and separator; without one it is the first of :data:`SEPARATORS` that occurs
            in the label column, which is noted.
        known: the possible labels; see
            :class:`~bertine.data.examples.ClassLabels`.
        one_hot: whether lists hold 0 or 1 for each label; None: detected.

    Raises:
        BertineError: both kinds of columns are named; a column is missing or cannot be recognized;
            a cell is neither 0 nor 1, or is not a text, or (if no separator is named) looks like a
            list but is not one; lists of 0 and 1 differ in length from the labels; there is no row.
    """
    own_columns, separator = as_columns(config.label_columns), config.label_separator
    if own_columns and config.label_column:
        raise BertineError("give label_column or label_columns, not both")
    wanted = [*as_columns(config.text_columns), *own_columns] if own_columns else None
    with open_table(path, config, wanted) as table:
        texts = resolve_text_columns(table, config.text_columns)
        if own_columns:
            examples = _from_columns(table, texts, own_columns)
        else:
            column = resolve_label_column(table, config.label_column)
            examples, separator = _from_one_column(table, texts, column, separator, known, one_hot)
        if not examples.items:
            raise BertineError(f"{table.name}: has a header, but no rows")
        examples.notes = [*table.stats.notes(table.name), *examples.notes]
    check_texts(examples)
    bare = sum(not item.label for item in examples.items)
    if bare:
        examples.notes.append(f"{examples.source}: {bare} of {len(examples)} rows have no label")
    return examples, separator or SEPARATORS[0]


def _from_columns(table: Table, texts: tuple[str, ...], columns: Sequence[str]) -> Examples:
    """Read the rows of a table with a column for each label."""
    require_columns(table.name, table.columns, columns)
    for column in columns:
        refuse_both(table, texts, column)
    examples: Examples = Examples(table.name, texts, None)
    for row in table:
        names = [column for column in columns if _present(table, row, column)]
        examples.items.append(Example(row_texts(table, row, texts), joined(names), row.line))
    return examples


def _from_one_column(
    table: Table,
    texts: tuple[str, ...],
    column: str,
    separator: str | None,
    known: Sequence[str] | None,
    one_hot: bool | None,
) -> tuple[Examples, str | None]:
    """Read the rows of a table with all labels of a text in one column; see
    :func:`read_label_sets`."""
    refuse_both(table, texts, column)
    numbers = ClassLabels(table, column, known)
    examples: Examples = Examples(table.name, texts, column)
    cells: list[str | list[Any]] = []
    for row in numbers.rows(table):
        cells.append(_cell(table, row, column))
        examples.items.append(Example(row_texts(table, row, texts), None, row.line))
    examples.notes += numbers.notes()
    lines = [item.line for item in examples.items]
    lists, separator = _lists(examples, cells, separator, known)
    filled = [(line, labels) for line, labels in zip(lines, lists, strict=True) if labels]
    width = 0
    if one_hot or (one_hot is None and not {"0", "1"} <= set(known or ())):
        width = one_for_each(filled, table.name, column)
    if one_hot and filled and width != len(known or ()):
        raise BertineError(
            f"{table.name}: {column!r} must hold 0 or 1 for each of {len(known or ())} labels, as "
            f"in training; in line {filled[0][0]} it holds {len(filled[0][1])} values"
        )
    if width and known is not None and width != len(known):
        width = 0
    if width:
        places = [str(place) for place in range(width)]
        examples.class_names = tuple(places if known is None else known)
        if known is None:
            examples.note(
                f"{table.name}: the lists in {column!r} hold 0 or 1 for each of {width} labels, "
                f"which are called by their places, 0 to {width - 1}"
            )
        lists = [labels and chosen(labels, examples.class_names) for labels in lists]
    else:
        _refuse_odd(table, column, lines, cells)
    examples.items = [
        replace(item, label=joined(dict.fromkeys(filter(None, map(str.strip, labels)))))
        for item, labels in zip(examples.items, lists, strict=True)
    ]
    return examples, separator


def _lists(
    examples: Examples,
    cells: Sequence[str | list[Any]],
    separator: str | None,
    known: Sequence[str] | None,
) -> tuple[list[list[str]], str | None]:
    """Return the labels of each cell of a column, unchanged, and their separator in texts; note
    what was detected."""
    source, column = examples.source, examples.label_column
    lists: list[list[str] | None] = [
        [_text(label) for label in cell] if isinstance(cell, list) else None for cell in cells
    ]
    plain: list[str] = []
    written = None
    for at, cell in enumerate(cells):
        if not isinstance(cell, str):
            continue
        # If a separator is named, brackets may belong to a label: to a known one, or to one that is
        # the whole cell.
        if separator is None or not set(_split(cell, separator)) <= set(known or [cell]):
            lists[at] = parsed_list(cell)
            if lists[at] is None and separator is None and _LIST.fullmatch(cell):
                raise BertineError(
                    f"{source}:{examples.items[at].line}: {column!r} is {cell[:40]!r}, which looks "
                    "like a list and is none; put a separator between the labels (a|b), or give "
                    "JSON lines or Parquet (if the brackets belong to a label, name the separator: "
                    f"{option('label_separator')})"
                )
        if lists[at] is None:
            plain.append(cell)
        else:
            written = written or (examples.items[at].line, cell)
    if written is not None and known is None:
        examples.note(
            f"{source}: {column!r} holds lists that are written as texts ({written[1][:40]!r} in "
            f"line {written[0]}), which are read as lists"
        )
    all_known = known is not None and set(map(str.strip, plain)) <= {*known, ""}
    divided = separator is not None and known is None
    numbers = None if divided or all_known else numbers_in(plain)
    if separator is None and numbers is None and not all_known:
        separator = next((s for s in SEPARATORS if any(s in cell.strip() for cell in plain)), None)
        if separator is not None:
            examples.note(
                f"{source}: the labels in {column!r} are taken to be separated by {separator!r}; "
                f"name another with {option('label_separator')}"
            )
        elif known is None and (result := _undivided(plain)):
            examples.note(
                f"{source}: {column!r} has {briefly(result[1])}, which is taken for one label; if "
                f"it is several, name what separates them: {option('label_separator', result[0])}"
            )
    parts = iter([_split(cell, separator) for cell in plain] if numbers is None else numbers)
    return [next(parts) if labels is None else labels for labels in lists], separator


def _undivided(cells: Sequence[str]) -> tuple[str, str] | None:
    """Find a character that may separate labels: all parts that it separates also occur as whole
    cells. Return it and a cell with it; None if there is none."""
    distinct = dict.fromkeys(cells)
    for sign in _PERHAPS:
        lists = [_split(cell, sign) for cell in distinct]
        counts = Counter(part for parts in lists for part in {*parts})
        several = [parts for parts in lists if len(parts) > 1]
        if several and all(counts[part] > 1 for parts in several for part in parts):
            return sign, next(cell for cell in distinct if len(_split(cell, sign)) > 1)
    return None


def _split(cell: str, separator: str | None) -> list[str]:
    """Split a cell into its labels, without the space around them."""
    parts = cell.split(separator) if separator else [cell]
    return [part.strip() for part in parts if part.strip()]


def _cell(table: Table, row: TableRow, column: str) -> str | list[Any]:
    """Return the value of the label column: a text or a list; a missing value is an empty text."""
    require_columns(row_at(table.name, row.line), list(row.values), [column])
    value = row.values[column]
    if value is None:
        return ""
    return value if isinstance(value, list | str) else table.label(row, column)


def _text(label: Any) -> str:
    """Return an item of a JSON list as a text."""
    return json.dumps(label) if isinstance(label, bool) else str(label)


def _refuse_odd(
    table: Table, column: str, lines: Sequence[int], cells: Sequence[str | list[Any]]
) -> None:
    """Refuse lists with items other than texts and whole numbers."""
    for line, cell in zip(lines, cells, strict=True):
        for label in cell if isinstance(cell, list) else ():
            if not isinstance(label, str) and type(label) is not int:
                raise BertineError(
                    f"{row_at(table.name, line)}: {column!r} holds {json_kind(label)}, but a list "
                    "of labels must hold texts or whole numbers"
                )


def _present(table: Table, row: TableRow, column: str) -> bool:
    require_columns(row_at(table.name, row.line), list(row.values), [column])
    value = row.values[column]
    text = "" if value is None else str(value).strip()
    if text and text not in YES and text not in NO:
        raise BertineError(
            f"{row_at(table.name, row.line)}: {column!r} is {value!r}, but a column of a label "
            f"must hold 0 or 1; name one column of separated labels with {option('label_column')}"
        )
    return text in YES
