"""Columns that a table must have, and messages where it has not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bertine.errors import BertineError

#: A table with more columns is none, or has another separator.
MOST_COLUMNS = 10_000
#: So many names of columns, of so many characters, are in a message.
_NAMES, _NAME = 30, 60


class MissingColumn(BertineError):
    """The error that a table has no column of that name."""

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message)  # with which alone it is made again in another process
        self.column = column


def untold(name: str, columns: Sequence[str], what: str, how: str) -> BertineError:
    """Make the error for a table of which nobody says which column holds `what`.

    Args:
        name: of the table.
        columns: that it has.
        how: the option that names the column.
    """
    return BertineError(
        f"{name}: cannot tell which column holds the {what}; name it with {how}; the columns are "
        f"{listed(columns)}"
    )


def require_columns(name: str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise a :class:`MissingColumn` that names the first of `wanted` that `columns` lacks."""
    there = set(columns)
    for column in wanted:
        if column not in there:
            raise MissingColumn(missing_column(name, columns, column), column)


def missing_column(name: str, columns: Sequence[str], column: str) -> str:
    """Write the message for a column that is not there: names the nearest one and all there are."""
    if any("\ufffd" in known for known in columns[:MOST_COLUMNS]):
        return (
            f"{name}: there is no column {column!r}; characters of the header are damaged "
            f"({listed(columns)}), so correct it"
        )
    near = difflib.get_close_matches(column[:_NAME], columns[:MOST_COLUMNS], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{name}: there is no column {column!r}{hint}; it has {listed(columns)}"


def listed(columns: Sequence[str]) -> str:
    """Write the names of columns, for messages: not all of very many, nor all of very long ones,
    such as a first line that is no header."""
    shown = [repr(name if len(name) <= _NAME else name[:_NAME] + "…") for name in columns[:_NAMES]]
    return ", ".join([*shown, *["…"] * (len(columns) > _NAMES)]) or "no columns"
