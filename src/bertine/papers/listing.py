"""List the tables that there are."""

from __future__ import annotations

from dataclasses import dataclass

from bertine.papers.table import PaperTable, read_table, table_names
from bertine.terminal.console import aligned
from bertine.terminal.shown import Shown


@dataclass(repr=False)
class PaperTables(Shown):
    """The tables that there are.

    Attributes:
        tables: in the order of their names.
    """

    tables: list[PaperTable]

    def lines(self) -> list[str]:
        """Return a line each: name, title, number of rows, paper."""
        rows = [[t.name, t.title, f"{len(t.rows)} rows", t.paper] for t in self.tables]
        return aligned(rows, left=(0, 1, 3))


def paper_tables() -> PaperTables:
    """List the tables of the papers that :func:`~bertine.paper` runs."""
    return PaperTables([read_table(name) for name in table_names()])
