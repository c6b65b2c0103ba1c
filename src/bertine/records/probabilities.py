"""Read what another model holds likely: a table with the probability of each label in each row.

A column for each label (named as the label, or ``probability_LABEL``, as ``bertine predict
--all-probabilities`` writes it), or one column with a dictionary by label, or a list; in csv and
tsv written as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.records.examples import (
    Example,
    Examples,
    SoftExample,
    as_columns,
    note_empty_texts,
    refuse_both,
    refuse_plain,
    resolve_text_columns,
)
from bertine.tables.column_names import listed, require_columns
from bertine.tables.given import Source
from bertine.tables.table import Table, TableRow
from bertine.terminal.text import briefly

#: What a column of a label may be called beside the label itself.
PREFIX = "probability_"
#: Usual names of one column with all of them.
_USUAL = ("probabilities", "probs", "soft_labels", "soft_label", "scores")
#: How far the sum of a row may be from 1: what rounding to three digits does to ten labels.
_SUM = 0.005


@dataclass(frozen=True)
class Probabilities:
    """The probabilities of a table.

    Attributes:
        source: the table, for messages.
        labels: K of them, in the order of the columns.
        values: fp64 [N, K]; each row sums to 1 where labels exclude each other.
        lines: of the source, one for each row.
        texts: the texts of each row, where the table has the columns that were asked for; else
            empty.
    """

    source: str
    labels: tuple[str, ...]
    values: npt.NDArray[np.float64]
    lines: list[int]
    texts: list[tuple[str, ...]]


def read_probabilities(
    path: Source,
    *,
    labels: Sequence[str] | None = None,
    column: str | None = None,
    text_columns: Sequence[str] = (),
    label_columns: Sequence[str] | None = None,
    **reading: Any,
) -> Probabilities:
    """Read the probabilities of every row of a table.

    Args:
        labels: in the order wanted; None: those of the columns or dictionaries, in their order.
        column: that holds a dictionary or a list; None: one of the usual names, if the table has
            it, or else a column for each label.
        text_columns: of the texts of a row, read where all of them are there, to be compared.
        label_columns: the column of each of `labels`; None: see above.
        reading: `format`, `quotes` and `strict` of :class:`~bertine.tables.table.Table`.

    Raises:
        BertineError: a column is missing or its meaning unclear; a value is no probability, or a
            row does not sum to 1, named by row and column; there is no row, or but one label.
    """
    with Table(path, wanted=[column] if column else [], **reading) as table:
        if table.layout.kind == "text":
            raise BertineError(
                f"{table.name}: is plain text; probabilities need a header with columns, or JSON "
                "lines"
            )
        name = column or next((usual for usual in _USUAL if usual in table.columns), None)
        if column is not None:
            require_columns(table.name, table.columns, [column])
        columns: dict[str, str] | None = None
        if label_columns is not None and labels is not None:
            name, columns = None, dict(zip(labels, label_columns, strict=True))
        elif name is None:
            columns = _columns(table, labels, text_columns)
        texts = [*text_columns] if set(text_columns) <= set(table.columns) else []
        known = None if labels is None else tuple(labels)
        rows: list[list[float]] = []
        lines: list[int] = []
        read: list[tuple[str, ...]] = []
        for row in table:
            where = f"{table.name}:{row.line}"
            if columns is not None:
                known = tuple(columns)
                values = [_number(where, row.values.get(c), c) for c in columns.values()]
            else:
                assert name is not None
                known, values = _of_cell(where, _parsed(where, row, name), name, known)
            if abs(sum(values) - 1.0) > _SUM:
                shown = ", ".join(f"{value:g}" for value in values[:5])
                what = "the columns of the labels" if columns is not None else repr(name)
                raise BertineError(
                    f"{where}: {what} sum to {sum(values):.4g} ({shown}"
                    f"{', …' * (len(values) > 5)}), but the probabilities of a row must sum to 1"
                )
            rows.append(values)
            lines.append(row.line)
            if texts:
                read.append(tuple(table.text(row, column) for column in texts))
        if not rows or known is None:
            raise BertineError(f"{table.name}: has no rows")
    if len(known) < 2:
        raise BertineError(f"{path}: has probabilities of one label; at least two are needed")
    table_of_all = np.array(rows, dtype=np.float64)
    table_of_all /= table_of_all.sum(1, keepdims=True)
    return Probabilities(str(path), known, table_of_all, lines, read)


def _columns(table: Table, labels: Sequence[str] | None, texts: Sequence[str]) -> dict[str, str]:
    """Return the column of each label.

    Raises:
        BertineError: one is missing, or it is not clear which they are.
    """
    if labels is not None:
        chosen = {}
        for label in labels:
            both = [name for name in (PREFIX + label, label) if name in table.columns]
            if not both:
                raise BertineError(
                    f"{table.name}: has no column for the probability of {label!r} ({PREFIX}"
                    f"{label} or {label}), nor one with all of them; it has {listed(table.columns)}"
                )
            chosen[label] = both[0]
        return chosen
    named = [name for name in table.columns if name.startswith(PREFIX)]
    if named:
        return {name.removeprefix(PREFIX): name for name in named}
    raise BertineError(
        f"{table.name}: cannot tell which columns hold probabilities; name the labels with "
        f"{option('labels')}, or the columns {PREFIX}LABEL; it has {listed(table.columns)}"
    )


def _parsed(where: str, row: TableRow, name: str) -> Any:
    """Return what the column of all probabilities holds in a row."""
    require_columns(where, list(row.values), [name])
    value = row.values[name]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BertineError(
            f"{where}: {name!r} is {briefly(value)}, but must be a dictionary or a list of "
            'probabilities in JSON, such as {"joy": 0.9, "anger": 0.1}'
        ) from error


def _of_cell(
    where: str, value: Any, name: str, known: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[float]]:
    """Return the labels, and the probability of each, of a dictionary or a list."""
    if isinstance(value, dict):
        # Parquet has every label in every row, and null where a row's dictionary had none.
        shares = {str(key): inner for key, inner in value.items() if inner is not None}
        labels = tuple(shares) if known is None else known
        for label in shares:
            if label not in labels:
                raise BertineError(
                    f"{where}: {name!r} has the label {briefly(label)}, which is not one of "
                    f"{listed(labels)}; name all labels with {option('labels')}"
                )
        return labels, [_number(where, shares.get(key, 0.0), f"{name}.{key}") for key in labels]
    if isinstance(value, list):
        if known is None:
            raise BertineError(
                f"{where}: {name!r} holds a list, which does not say whose probabilities these "
                f"are; name the labels in their order with {option('labels')}"
            )
        if len(value) != len(known):
            raise BertineError(
                f"{where}: {name!r} has {len(value)} probabilities, but there are {len(known)} "
                f"labels ({listed(known)})"
            )
        return known, [_number(where, item, f"{name}[{n}]") for n, item in enumerate(value)]
    raise BertineError(
        f"{where}: {name!r} is {briefly(value)}, but must be a dictionary or a list of "
        "probabilities"
    )


def _number(where: str, value: Any, name: str) -> float:
    """Return a probability.

    Raises:
        BertineError: it is not a probability; names row and column.
    """
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, str | int | float):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not 0.0 <= number <= 1.0:
        raise BertineError(
            f"{where}: {name!r} is {briefly(value)}, but must be a probability, from 0 to 1"
        )
    return number


def read_soft_examples(
    path: Source,
    columns: Sequence[str],
    *,
    text_columns: Sequence[str] | str | None = None,
    **reading: Any,
) -> Examples[Example]:
    """Read a table of texts with a column of the probability of each label.

    Args:
        columns: of the labels, in their order.
        text_columns: as for :func:`~bertine.records.examples.read_examples`.
        reading: `format`, `quotes` and `strict` of :class:`~bertine.tables.table.Table`.

    Raises:
        BertineError: what :func:`read_probabilities` raises; a column of texts is missing.
    """
    labels = [name.removeprefix(PREFIX) for name in columns]
    with Table(path, wanted=[*as_columns(text_columns), *columns], **reading) as table:
        refuse_plain(table)
        texts = resolve_text_columns(table, text_columns)
        for column in columns:
            refuse_both(table, texts, column)
        require_columns(table.name, table.columns, columns)
        name = table.name
    read = read_probabilities(
        path, labels=labels, text_columns=texts, label_columns=columns, **reading
    )
    best = read.values.argmax(1).tolist()
    rows = zip(read.texts, best, read.lines, read.values.tolist(), strict=True)
    items: list[Example] = [
        SoftExample(text, labels[number], line, tuple(values))
        for text, number, line, values in rows
    ]
    examples = Examples(name, texts, None, items, class_names=tuple(labels))
    note_empty_texts(examples)
    return examples
