"""Read another model's answers from a table: in each row the probability of each label, or a score.

There is a column for each label (named as the label, or ``probability_LABEL``, as ``bertine predict
--all-probabilities`` writes it), or one column with a dictionary by label, or a list; in csv and
tsv it is written as JSON.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.strict_json import parse_json
from bertine.core.text import briefly, number_in, row_at
from bertine.data.annotated_texts import PREFIX
from bertine.data.examples import (
    Example,
    Examples,
    SoftExample,
    as_columns,
    check_texts,
    open_table,
    refuse_both,
    refuse_damaged,
    refuse_plain,
    resolve_text_columns,
)
from bertine.data.in_memory import Source
from bertine.data.streams import listed, require_columns
from bertine.data.tables import Table, TableRow
from bertine.options.data import DataConfig

#: Usual names of a single column with all probabilities.
_USUAL = ("probabilities", "probs", "soft_labels", "soft_label", "scores")
#: Usual names of a column of scores.
_USUAL_SCORES = ("score", "prediction", "label")
#: Tolerance of a row's sum around 1: rounding ten labels to three digits causes it.
_SUM = 0.005


@dataclass(frozen=True)
class Probabilities:
    """The probabilities, or the scores, of a table.

    Attributes:
        source: the table, for messages.
        labels: K labels, in the order of the columns; empty for scores.
        values: fp64 [N, K]; each row sums to 1 if the labels exclude each other. For scores [N].
        lines: the line in the source of each row.
        texts: the texts of each row, if the table has the requested columns; else empty.
    """

    source: str
    labels: tuple[str, ...]
    values: npt.NDArray[np.float64]
    lines: list[int]
    texts: list[tuple[str, ...]]

    @classmethod
    def of(
        cls,
        source: str,
        labels: tuple[str, ...],
        values: npt.NDArray[np.float64],
        rows: Sequence[_AnsweredRow],
    ) -> Probabilities:
        """Combine the values of rows with their lines and texts."""
        texts = [row.texts for row in rows if row.texts]
        return cls(source, labels, values, [row.line for row in rows], texts)


def read_probabilities(
    path: Source,
    *,
    labels: Sequence[str] | None = None,
    column: str | None = None,
    text_columns: Sequence[str] = (),
    exclusive: bool = True,
) -> Probabilities:
    """Read the probabilities of every row of a table.

    Args:
        exclusive: the labels exclude each other, so that the probabilities of a row sum to 1.
        labels: in the wanted order; None: those of the columns or dictionaries, in their order.
        column: the column of dictionaries or lists; None: one of the usual names, if the table has
            it, or else a column for each label.
        text_columns: the columns of a row's texts, read if all exist, for comparison.

    Raises:
        BertineError: a column is missing or not recognized; a value is not a probability, or a row
            does not sum to 1 (names row and column); there is no row, or only one label.
    """
    with Table(path, wanted=[column] if column else []) as table:
        if table.layout.kind == "text":
            raise BertineError(
                f"{table.name}: is plain text; probabilities need a header with columns, or JSON "
                "lines"
            )
        name = column or next((usual for usual in _USUAL if usual in table.columns), None)
        if column is not None:
            require_columns(table.name, table.columns, [column])
        texts = [*text_columns] if set(text_columns) <= set(table.columns) else []
        if name is None:
            columns = _columns(table, labels)
            return _of_columns(table, columns, texts, exclusive=exclusive, hint=_hint())
        known = None if labels is None else tuple(labels)
        rows: list[_AnsweredRow] = []
        for row in table:
            where = row_at(table.name, row.line)
            known, values = _of_cell(where, _parsed(where, row, name), name, known)
            if exclusive:
                _check_sum(where, values, repr(name), _hint())
            rows.append(_AnsweredRow.of(table, row, values, texts))
        return _together(table.name, known, rows, exclusive)


def read_scores(
    path: Source,
    *,
    labels: Sequence[str] | None = None,
    column: str | None = None,
    text_columns: Sequence[str] = (),
) -> Probabilities:
    """Read the score of every row of a table.

    Args:
        labels: must be None.
        column: the column of scores; None: one of the usual names.
        text_columns: as for :func:`read_probabilities`.

    Raises:
        BertineError: there is no such column, or no row; a score is not a finite number.
    """
    if labels is not None:
        raise BertineError(f"{option('labels')} is for probabilities, but {path} is to have scores")
    with Table(path, wanted=[column] if column else []) as table:
        name = column or next((usual for usual in _USUAL_SCORES if usual in table.columns), None)
        if name is None:
            raise BertineError(
                f"{table.name}: cannot tell which column holds the score; name it with "
                f"{option('probability_column')}; it has {listed(table.columns)}"
            )
        require_columns(table.name, table.columns, [name])
        texts = [*text_columns] if set(text_columns) <= set(table.columns) else []
        rows = []
        for row in table:
            score = _finite(row.values.get(name))
            if not math.isfinite(score):
                raise BertineError(
                    f"{row_at(table.name, row.line)}: {name!r} is {briefly(row.values.get(name))}, "
                    "but must be a number"
                )
            rows.append(_AnsweredRow.of(table, row, [score], texts))
        if not rows:
            raise BertineError(f"{table.name}: has no rows")
        return Probabilities.of(table.name, (), np.array([row.values[0] for row in rows]), rows)


@dataclass(frozen=True, slots=True)
class _AnsweredRow:
    """The probabilities and the texts of a row."""

    line: int
    values: array[float]
    texts: tuple[str, ...]

    @classmethod
    def of(
        cls, table: Table, row: TableRow, values: list[float], texts: Sequence[str]
    ) -> _AnsweredRow:
        """Return a row with the texts of these columns."""
        return cls(row.line, array("d", values), tuple(table.text(row, name) for name in texts))


def _of_columns(
    table: Table,
    columns: Mapping[str, str],
    texts: Sequence[str],
    *,
    exclusive: bool = True,
    hint: str = "",
) -> Probabilities:
    """Read the `columns` of labels; `hint` ends the message about a row that does not sum to 1.
    Texts without annotators are left out."""
    rows = []
    for row in table:
        if table.layout.annotations and row.values[next(iter(columns.values()))] is None:
            continue
        where = row_at(table.name, row.line)
        values = [_number(where, row.values.get(name), name) for name in columns.values()]
        if exclusive:
            _check_sum(where, values, "the columns of the labels", hint)
        rows.append(_AnsweredRow.of(table, row, values, texts))
    return _together(table.name, tuple(columns), rows, exclusive)


def _hint() -> str:
    """Return the advice for a teacher's file whose probabilities do not sum to 1."""
    return f", unless a text may have several labels ({option('teacher_task', 'multi-label')})"


def _check_sum(where: str, values: list[float], what: str, hint: str) -> None:
    """Refuse probabilities of a row that do not sum to 1; `what` names them.

    Raises:
        BertineError: they do not sum to 1.
    """
    if abs(sum(values) - 1.0) > _SUM:
        shown = ", ".join(f"{item:g}" for item in values[:5])
        raise BertineError(
            f"{where}: {what} sum to {sum(values):.4g} ({shown}"
            f"{', …' * (len(values) > 5)}), but the probabilities of a row must sum to 1{hint}"
        )


def _together(
    source: str, labels: tuple[str, ...] | None, rows: list[_AnsweredRow], exclusive: bool
) -> Probabilities:
    """Combine the probabilities of all rows.

    Raises:
        BertineError: there is no row, or only one label, or a lone surrogate in one.
    """
    if not rows or labels is None:
        raise BertineError(f"{source}: has no rows")
    if len(labels) < 2:
        raise BertineError(f"{source}: has probabilities of one label; at least two are needed")
    for label in labels:
        refuse_damaged(label, source, "label of a probability")
    values = np.array([row.values for row in rows], dtype=np.float64)
    if exclusive:
        values /= values.sum(1, keepdims=True)
    return Probabilities.of(source, labels, values, rows)


def _columns(table: Table, labels: Sequence[str] | None) -> dict[str, str]:
    """Find the column of each label.

    Raises:
        BertineError: one is missing, or the columns are not recognized.
    """
    if labels is not None:
        chosen, there = {}, set(table.columns)
        for label in labels:
            both = [name for name in (PREFIX + label, label) if name in there]
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
    """Parse the value in a row of the column with all probabilities."""
    require_columns(where, list(row.values), [name])
    value = row.values[name]
    if not isinstance(value, str):
        return value
    where = f'{where}: {name!r} is {briefly(value)}, but must be JSON such as {{"joy": 0.9}}'
    return parse_json(value.encode("utf-8", "surrogatepass"), where)


def _of_cell(
    where: str, value: Any, name: str, known: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[float]]:
    """Return the labels, and the probability of each, from a dictionary or a list."""
    if isinstance(value, dict):
        # Parquet has every label in every row, with null if a row's dictionary lacked it.
        by_label = {str(key): inner for key, inner in value.items() if inner is not None}
        labels = tuple(by_label) if known is None else known
        if unknown := by_label.keys() - labels:
            label = next(item for item in by_label if item in unknown)
            raise BertineError(
                f"{where}: {name!r} has the label {briefly(label)}, which is not among "
                f"{listed(labels)}; name all labels with {option('labels')}"
            )
        return labels, [
            _number(where, by_label.get(item, 0.0), f"{name}.{item}") for item in labels
        ]
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
    number = _finite(value)
    if not 0.0 <= number <= 1.0:
        raise BertineError(
            f"{where}: {name!r} is {briefly(value)}, but must be a probability, from 0 to 1"
        )
    return number


def _finite(value: Any) -> float:
    """Return the number in a cell; nan if there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    return number_in(value)


def columns_of_labels(table: Table, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the columns with the probabilities of all these labels, named as the labels or
    ``probability_LABEL``; () if the table lacks one."""
    there = set(table.columns)
    columns = tuple(
        next((name for name in (PREFIX + label, label) if name in there), "") for label in labels
    )
    return columns if all(columns) else ()


def columns_of_annotators(path: Source, config: DataConfig) -> tuple[str, ...]:
    """Return the columns with the share of annotators that gave each label.

    Raises:
        BertineError: the table cannot be read, or no text has several annotators.
    """
    with open_table(path, config) as table:
        columns = tuple(name for name in table.columns if name.startswith(PREFIX))
    if not columns:
        raise BertineError(
            f"{path}: no text has labels of several annotators; leave out "
            f"{option('annotators', 'soft')}"
        )
    return columns


def read_soft_examples(
    path: Source, config: DataConfig, *, known: Sequence[str] | None = None
) -> Examples[Example]:
    """Read a table of texts with a column for the probability of each label. If labels of a row are
    equally probable, the first one is its label, which is counted in the notes.

    Args:
        config: its `probability_columns` are those of the labels, in their order.
        known: the labels of a model, in whose order the probabilities are returned; None: in the
            order of the columns.

    Raises:
        BertineError: an error of :func:`read_probabilities`; a column of texts is missing; the
            columns are not those of the `known` labels.
    """
    there, columns = set(known or ()), as_columns(config.probability_columns)
    named = {name if name in there else name.removeprefix(PREFIX): name for name in columns}
    labels = [*named] if known is None else [*known]
    if set(labels) != set(named):
        raise BertineError(
            f"{path}: the probabilities are those of {listed(list(named))}, but the model's labels "
            f"are {listed(labels)}; name a column for each of them with "
            f"{option('probability_columns')}"
        )
    with open_table(path, config, [*as_columns(config.text_columns), *columns]) as table:
        refuse_plain(table)
        texts = resolve_text_columns(table, config.text_columns)
        for column in columns:
            refuse_both(table, texts, column)
        require_columns(table.name, table.columns, columns)
        read = _of_columns(table, {label: named[label] for label in labels}, texts)
    best = read.values.argmax(1).tolist()
    rows = zip(read.texts, best, read.lines, read.values.tolist(), strict=True)
    items: list[Example] = [
        SoftExample(text, labels[number], line, tuple(values))
        for text, number, line, values in rows
    ]
    examples = Examples(read.source, texts, None, items, class_names=tuple(labels))
    examples.notes = table.stats.notes(table.name)
    highest = np.sort(read.values, axis=1)
    ties = int((highest[:, -1] == highest[:, -2]).sum())
    if ties:
        examples.notes.append(
            f"{read.source}: in {plural(ties, 'row')} two labels or more are equally probable; "
            "the first of them counts as the label"
        )
    check_texts(examples)
    return examples
