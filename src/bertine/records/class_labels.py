"""Labels as the column of a table has them: class names that the `datasets` library writes beside
a Parquet table (its ``ClassLabel``), in place of the numbers in the column; truth values as they
are spelled in the labels that are known; none with a damaged character."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from bertine.errors import BertineError
from bertine.tables.json_rows import encodable
from bertine.tables.lines import first_numbers
from bertine.tables.table import Table, TableRow
from bertine.terminal.console import visible_list
from bertine.terminal.text import briefly

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
        #: true and false as the known labels spell them: a frame's True is "True" in its csv.
        self._truth_values = {
            label.lower(): label for label in known or () if label.lower() in ("true", "false")
        }
        self._numbered = False
        self._rows = 0
        self._unlabelled: list[int] = []

    def rows(self, rows: Iterable[TableRow]) -> Iterator[TableRow]:
        """Yield `rows` with the names in place of the numbers and truth values as they are known,
        without those that are marked as unlabelled.

        Raises:
            BertineError: a number has no name; a label has a damaged character; all rows are
                marked as unlabelled.
        """
        marked = bool(self._of_file) and str(UNLABELLED) not in (self._known or ())
        for row in rows:
            self._rows += 1
            value = row.values.get(self._column)
            if marked and type(value) is int and value == UNLABELLED:
                self._unlabelled.append(row.line)
                continue
            label = self._label(value, row.line)
            if label is not value:
                row = replace(row, values={**row.values, self._column: label})
            yield row
        if self._unlabelled and len(self._unlabelled) == self._rows:
            raise BertineError(
                f"{self._name}: no row has a label: {self._column!r} is {UNLABELLED} in all "
                f"{self._rows}, by which the datasets library marks what has none"
            )

    def _label(self, value: Any, line: int) -> Any:
        """Return a value as the label that it stands for, a list with each of its own."""
        if isinstance(value, list):
            return [self._label(inner, line) for inner in value]
        if type(value) is int and self.names:
            return self._named(value, line)
        if isinstance(value, bool):
            return self._truth_values.get(str(value).lower(), value)
        if not isinstance(value, str) or self._known == ():
            return value
        text = value.strip()
        refuse_damaged(text, f"{self._name}:{line}", f"label in {self._column!r}")
        if text.lower() in self._truth_values and text not in (self._known or ()):
            return self._truth_values[text.lower()]
        return value

    def _named(self, value: int, line: int) -> str:
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


def refuse_damaged(label: str, where: str, what: str) -> None:
    """Refuse a label or a tag with a damaged character, by which several would become one.

    Args:
        where: it stands.
        what: it is, for the message.

    Raises:
        BertineError: it has one.
    """
    if "\ufffd" in label or not encodable(label):
        raise BertineError(
            f"{where}: the {what} is {briefly(label)}, with a damaged character (U+FFFD, where "
            "bytes were not UTF-8, or half a surrogate pair); correct it"
        )
