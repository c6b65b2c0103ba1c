"""Class names that the `datasets` library writes beside a Parquet table (its ``ClassLabel``), in
place of the numbers in the column of labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from bertine.errors import BertineError
from bertine.tables.lines import first_numbers
from bertine.tables.table import Table, TableRow
from bertine.terminal.console import visible_list

#: The number by which the library marks a row without a label.
UNLABELLED = -1
#: So many names are in a message.
_SHOWN = 10


class ClassLabels:
    """The labels of one column of a table, as its rows are read.

    Args:
        table: whose rows they are.
        column: of the labels: a number, or a list of them, in each row.
        known: the labels that a model, or the training file, has. If the names of the file are
            none of these, the numbers themselves are the labels, as when there are no names. Empty:
            the numbers are meant (a score, the place of a choice). None: none is known yet.

    Attributes:
        names: that are the labels, in the order of their numbers; empty where none are.
    """

    def __init__(self, table: Table, column: str, known: Sequence[str] | None = None) -> None:
        self._name, self._column, self._known = table.name, column, known
        self._of_file = tuple(name.strip() for name in table.class_names(column))  # as labels are
        fits = known is None or not set(known).isdisjoint(self._of_file)
        self.names = self._of_file if fits else ()
        self._numbered = False
        self._rows = 0
        self._unlabelled: list[int] = []

    def rows(self, rows: Iterable[TableRow]) -> Iterator[TableRow]:
        """Yield `rows` with the names in place of the numbers, without those that are marked as
        unlabelled.

        Raises:
            BertineError: a number has no name; all rows are marked as unlabelled.
        """
        if not self._of_file:
            yield from rows
            return
        minus = self._known is not None and str(UNLABELLED) in self._known
        for row in rows:
            self._rows += 1
            value = row.values.get(self._column)
            if type(value) is int and value == UNLABELLED and not minus:
                self._unlabelled.append(row.line)
                continue
            if self.names:
                value = self._named(value, row.line)
                row = replace(row, values={**row.values, self._column: value})
            yield row
        if self._unlabelled and len(self._unlabelled) == self._rows:
            raise BertineError(
                f"{self._name}: no row has a label: {self._column!r} is {UNLABELLED} in all "
                f"{self._rows}, by which the datasets library marks what has none"
            )

    def _named(self, value: Any, line: int) -> Any:
        if isinstance(value, list):
            return [self._named(inner, line) for inner in value]
        if type(value) is not int:
            return value
        self._numbered = True
        if not 0 <= value < len(self.names):
            raise BertineError(
                f"{self._name}:{line}: {self._column!r} holds {value}, but its names are those of "
                f"0 to {len(self.names) - 1}"
            )
        return self.names[value]

    def notes(self) -> list[str]:
        """Say what a person should know, once the rows are read: that names, or in spite of names
        numbers, were taken, where that is not what is known already; and the rows left out."""
        notes = []
        shown = visible_list(self._of_file[:_SHOWN]) + ", …" * (len(self._of_file) > _SHOWN)
        if self._known is None and self._numbered:
            notes.append(
                f"{self._name}: the numbers in {self._column!r} stand for the names that the file "
                f"gives with them, which are the labels: {shown}"
            )
        if self._known and self._of_file and not self.names:
            notes.append(
                f"{self._name}: the names that the file gives for the numbers in "
                f"{self._column!r} ({shown}) are none of the known labels, so the numbers are "
                "taken for these"
            )
        if count := len(self._unlabelled):
            notes.append(
                f"{self._name}: {count} of {self._rows} rows have no label ({self._column!r} is "
                f"{UNLABELLED}) and were left out ({first_numbers(self._unlabelled, what='rows')})"
            )
        return notes
