"""Read tables whose rows have any number of labels: separated in one column, a list in JSON
lines or Parquet, or a column of 0 and 1 for each label.

An example's label is then one string, its labels joined by :data:`JOINT`; the empty one has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.records.class_labels import ClassLabels
from bertine.records.examples import (
    Example,
    Examples,
    as_columns,
    note_empty_texts,
    refuse_both,
    resolve_label_column,
    resolve_text_columns,
    row_texts,
)
from bertine.tables.column_names import require_columns
from bertine.tables.given import Source
from bertine.tables.json_rows import json_kind
from bertine.tables.table import Table, TableRow

#: Between the labels of one example, in memory: ASCII's unit separator, which no label holds.
JOINT = "\x1f"
#: Separators that are looked for, in this order, where none is named.
SEPARATORS = ("|", ";", ",")
_LIST = re.compile(r"\s*\[.*\]\s*", re.DOTALL)
_YES = frozenset(("1", "1.0", "true", "True", "TRUE"))
_NO = frozenset(("0", "0.0", "false", "False", "FALSE", ""))


def joined(labels: Iterable[str], separator: str = JOINT) -> str:
    """Join several labels into one string."""
    return separator.join(labels)


def labels_in(label: str) -> list[str]:
    """Split the one string of an example into its labels."""
    return label.split(JOINT) if label else []


def read_label_sets(
    path: Source,
    *,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    label_columns: Sequence[str] | str | None = None,
    separator: str | None = None,
    known: Sequence[str] | None = None,
    **reading: Any,
) -> tuple[Examples, str]:
    """Read the examples of a table, each with its labels, and the separator.

    Args:
        label_columns: a column for each label, with 0 or 1.
        separator: between labels in `label_column`; None: the first of :data:`SEPARATORS` that
            occurs there, which is noted.
        known: the labels that there may be; see
            :class:`~bertine.records.class_labels.ClassLabels`.
        reading: `format`, `quotes` and `strict` of :class:`~bertine.tables.table.Table`.

    Raises:
        BertineError: both kinds of columns are named; a column is missing or cannot be recognized;
        a
            cell is neither 0 nor 1, or no text, or (where no separator is named) a list written
            as one; there is no row.
    """
    own_columns = as_columns(label_columns)
    if own_columns and label_column:
        raise BertineError("give label_column or label_columns, not both")
    wanted = [*as_columns(text_columns), *own_columns, *([label_column] if label_column else [])]
    with Table(path, wanted=wanted, **reading) as table:
        texts = resolve_text_columns(table, text_columns)
        if own_columns:
            require_columns(table.name, table.columns, own_columns)
            for column in own_columns:
                refuse_both(table, texts, column)
            examples: Examples = Examples(table.name, texts, None)
            for row in table:
                names = [column for column in own_columns if _present(table, row, column)]
                examples.items.append(
                    Example(row_texts(table, row, texts), joined(names), row.line)
                )
        else:
            column = resolve_label_column(table, label_column)
            refuse_both(table, texts, column)
            examples = Examples(table.name, texts, column)
            cells: list[str | list[str]] = []
            names_of_numbers = ClassLabels(table, column, known)
            for row in names_of_numbers.rows(table):
                cells.append(_cell(table, row, column))
                if separator is None:
                    _refuse_list(table, row, column)
                examples.items.append(Example(row_texts(table, row, texts), None, row.line))
            examples.notes += names_of_numbers.notes()
            used = separator or next(
                (s for s in SEPARATORS if any(isinstance(c, str) and s in c for c in cells)), None
            )
            if separator is None and used is not None:
                examples.notes.append(
                    f"{table.name}: the labels in {column!r} are taken to be separated by "
                    f"{used!r}; name another with {option('label_separator')}"
                )
            separator = used
            examples.items = [
                Example(item.texts, joined(_split(cell, separator)), item.line)
                for item, cell in zip(examples.items, cells, strict=True)
            ]
        if not examples.items:
            raise BertineError(f"{table.name}: has a header, but no rows")
        examples.notes = [*table.stats.notes(table.name), *examples.notes]
    note_empty_texts(examples)
    bare = sum(not item.label for item in examples.items)
    if bare:
        examples.notes.append(f"{examples.source}: {bare} of {len(examples)} rows have no label")
    return examples, separator or SEPARATORS[0]


def _split(cell: str | list[str], separator: str | None) -> list[str]:
    """Return the labels of a cell, each once, without the space around them."""
    parts = cell if isinstance(cell, list) else cell.split(separator) if separator else [cell]
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _cell(table: Table, row: TableRow, column: str) -> str | list[str]:
    """Return what the label column holds: a text, or a list of texts and whole numbers, as texts;
    nothing is an empty text."""
    require_columns(f"{table.name}:{row.line}", list(row.values), [column])
    value = row.values[column]
    if value is None:
        return ""
    if isinstance(value, list):
        wrong = [label for label in value if not isinstance(label, str) and type(label) is not int]
        if wrong:
            raise BertineError(
                f"{table.name}:{row.line}: {column!r} holds {json_kind(wrong[0])}, but a list of "
                "labels must hold texts or whole numbers"
            )
        return [str(label) for label in value]
    if isinstance(value, str):
        return value
    return table.label(row, column)


def _refuse_list(table: Table, row: TableRow, column: str) -> None:
    """Refuse a list that is written as a text, as pandas writes one into csv: cut at its commas, it
    would give labels with brackets, and one for none."""
    cell = row.values[column]
    if isinstance(cell, str) and _LIST.fullmatch(cell):
        raise BertineError(
            f"{table.name}:{row.line}: {column!r} is {cell[:40]!r}, a list written as a text; put "
            "a separator between the labels (a|b), or give JSON lines or Parquet (if the brackets "
            f"belong to a label, name the separator: {option('label_separator')})"
        )


def _present(table: Table, row: TableRow, column: str) -> bool:
    require_columns(f"{table.name}:{row.line}", list(row.values), [column])
    value = row.values[column]
    text = "" if value is None else str(value).strip()
    if text not in _YES and text not in _NO:
        raise BertineError(
            f"{table.name}:{row.line}: {column!r} is {value!r}, but a column of a label must hold "
            f"0 or 1; name one column of separated labels with {option('label_column')}"
        )
    return text in _YES
