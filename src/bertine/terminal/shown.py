"""How results look where Python shows them: at a prompt, in ``print()`` and in a notebook.

A result has ``lines()``, what its command prints. :class:`Shown` makes text and HTML of them, so no
result has a look of its own to keep up. Tables are known by
:class:`bertine.terminal.console.TableLine`.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from bertine.errors import BertineError
from bertine.terminal.console import TableLine
from bertine.terminal.text import printable

Item = TypeVar("Item")

#: Lines, or rows of a table, that are shown; of more it is said how many there are.
_MOST = 60
# No colours but shades of what is there already, so that light and dark notebooks are the same.
_TABLE = "border-collapse: collapse; margin: 0.5em 0; color: inherit; font-size: inherit"
_CELL = "padding: 0.15em 0.8em 0.15em 0; vertical-align: top; text-align: "
_HEAD = "; border-bottom: 1px solid rgba(128, 128, 128, 0.6)"
_TEXT = "white-space: pre-wrap"


class Shown:
    """Base of results, which are shown as their lines.

    A dataclass that has this base is made with ``repr=False``; it would get a method of its own.
    """

    __slots__ = ()

    def lines(self) -> list[str]:
        """Return the result for people."""
        raise NotImplementedError

    def shown_lines(self) -> list[str]:
        """Return what Python shows, where that is not what the command prints."""
        return self.lines()

    def __str__(self) -> str:
        return "\n".join(map(printable, _bounded(_lines_of(self))))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return HTML of the lines, for notebooks: tables are tables."""
        return html_of(_lines_of(self))


class ShownList(Shown, list[Item]):
    """A list of results that is shown as one table."""

    __slots__ = ()


def html_of(lines: Sequence[str]) -> str:
    """Make HTML of lines for people: escaped, without scripts or colours.

    Args:
        lines: those of :func:`bertine.terminal.console.aligned` become a table.
    """
    return f"<div>{''.join(_blocks(lines))}</div>"


def _lines_of(result: Shown) -> list[str]:
    try:
        return result.shown_lines()
    except (BertineError, OSError) as error:
        # Such as a run's folder that is gone: what shows a result must not fail.
        return [f"{type(result).__name__}: {error}"]


def _bounded(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - _MOST
    return list(lines) if rest <= 0 else [*lines[:_MOST], f"… and {rest:,} more lines"]


def _table_of(line: str) -> int:
    """Return which table a line is of; 0: it is of none."""
    return id(line.table) if isinstance(line, TableLine) else 0


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    for table, group in groupby(lines, _table_of):
        if table:
            rows = [line for line in group if isinstance(line, TableLine)]
            body = "".join(_row(line) for line in rows[:_MOST])
            yield f'<table style="{_TABLE}">{body}</table>'
            if len(rows) > _MOST:
                yield f"<div>… and {len(rows) - _MOST:,} more rows</div>"
        else:
            text = html.escape(printable("\n".join(_bounded(list(group)))))
            yield f'<div style="{_TEXT}">{text}</div>'


def _row(line: TableLine) -> str:
    table = line.table
    head = table.head and line.number == 0
    tag, more = ("th", _HEAD) if head else ("td", "")
    cells = (
        f'<{tag} style="{_CELL}{"left" if column in table.left else "right"}{more}">'
        f"{html.escape(printable(cell))}</{tag}>"
        for column, cell in enumerate(line.cells)
    )
    return f"<tr>{''.join(cells)}</tr>"
