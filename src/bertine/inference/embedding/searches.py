"""Many queries at once: their texts, read from a table, and their nearest rows, shown or written to
a file."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.inference.embedding.nearest import (
    COLUMNS,
    Neighbours,
    TextRow,
    found_column_names,
    id_before,
    query_column_names,
)
from bertine.inference.files.rows import other_columns
from bertine.records.table_writer import TableWriter, check_output, json_text, open_writer
from bertine.tables.column_names import untold
from bertine.tables.given import TableLike, as_source
from bertine.tables.layout import LINE_COLUMN, TableLayout, named_kind
from bertine.tables.table import Table
from bertine.tables.text_columns import USUAL_TEXT_COLUMNS
from bertine.terminal.console import counted
from bertine.terminal.shown import Shown

#: The usual name of the column of queries, tried before those of texts.
QUERY_COLUMN = "query"


@dataclass(repr=False)
class Searches(Shown):
    """The nearest rows of several queries.

    Attributes:
        items: of each query; empty where they are written to a file.
        queries: how many there are.
        notes: what was cut, or mended in the input.
        output: where they are written; None: nowhere.
    """

    items: list[Neighbours] = field(default_factory=list)
    queries: int = 0
    notes: list[str] = field(default_factory=list)
    output: Path | str | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Neighbours]:
        return iter(self.items)

    def __getitem__(self, at: int) -> Neighbours:
        return self.items[at]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows that a file of them has, as ``pandas.DataFrame`` takes them: those of
        :meth:`~bertine.inference.embedding.nearest.Neighbours.records`."""
        return [row for number, each in enumerate(self.items, 1) for row in each.records(number)]

    def lines(self) -> list[str]:
        """Return the queries, each with its rows below."""
        if self.output is not None:
            where = "" if str(self.output) == "-" else f": {self.output}"
            return [f"answered {counted(self.queries, 'query')}{where}", *self.notes]
        lines: list[str] = []
        for each in self.items:
            query = id_before(each.columns, f"  {' '.join(each.query.split())}")
            lines += [query.strip(), *(f"  {line}" for line in each.lines())]
        return lines + self.notes


def read_queries(
    query: str | Sequence[str] | None, queries: Path | str | TableLike | None
) -> tuple[list[TextRow], list[str]]:
    """Return the queries, and what was mended in their table.

    Args:
        query: a text, or several; None: those of `queries`.
        queries: a table of them, with a column ``query``, ``text``, ``sentence``, or a single one.

    Raises:
        BertineError: there is none; what reading the table raises.
    """
    notes: list[str] = []
    hint = ""
    if queries is None:
        texts = [query] if isinstance(query, str) else [] if query is None else list(query)
        for number, each in enumerate(texts, 1):
            if not isinstance(each, str):
                raise BertineError(f"query {number} is {each!r}, but must be a text")
        given = [TextRow(text) for text in texts]
    else:
        with Table(as_source(queries, "queries")) as table:
            column = _query_column(table)
            given = [TextRow(table.text(row, column), other_columns(row, column)) for row in table]
            layout = table.layout
        notes = table.stats.notes(table.name)
        usual = (QUERY_COLUMN, *USUAL_TEXT_COLUMNS)
        if layout.kind in ("csv", "tsv") and column.strip().lower() not in usual:
            hint = (
                f"its first line, {column!r}, was read as the header; if that is a query, write "
                f"{QUERY_COLUMN!r} on a line above it"
            )
            notes.append(f"{table.name}: {hint}")
    if not given:
        where = "" if queries is None else f"{table.name}: "
        raise BertineError(f"{where}there is no query; {hint or 'give at least one'}")
    return given, notes


def _query_column(table: Table) -> str:
    """Choose the column of the queries.

    Raises:
        BertineError: none is recognized.
    """
    if table.layout.kind == "text":
        return LINE_COLUMN
    single = table.columns if len(table.columns) == 1 else ()
    for usual in (QUERY_COLUMN, *USUAL_TEXT_COLUMNS, *single):
        if usual in table.columns:
            return usual
    raise untold(table.name, table.columns, "queries", f"the name {QUERY_COLUMN!r} in its header")


def check_search_output(output: Path | str, read: Mapping[str, object]) -> None:
    """Refuse a file whose name is that of another format, or one that is read, before anything is
    computed.

    Args:
        read: what is read, by the name of the argument.

    Raises:
        BertineError: it is one.
    """
    if str(output) == "-":
        return
    check_output(output)
    for name, source in read.items():
        if isinstance(source, Path | str) and _is_same_file(output, source):
            raise BertineError(f"{output}: is the file of {name}; name another for the answers")
    if named_kind(output) is None:
        raise BertineError(
            f"{output}: nearest rows are csv, tsv, JSON lines or Parquet; name the output .csv, "
            ".tsv, .jsonl or .parquet"
        )


def _is_same_file(output: Path | str, source: Path | str) -> bool:
    try:
        return Path(output).samefile(source)
    except OSError:  # one of them is not there
        return False


@dataclass
class SearchWriter:
    """A writer of nearest rows.

    Attributes:
        writer: of the file.
        lost: how many of the rows have a column that the file has not, by its name: keys of JSON
            lines may change from row to row.
    """

    writer: TableWriter
    lost: Counter[str] = field(default_factory=Counter)

    def write(self, number: int, neighbours: Neighbours) -> None:
        """Write the nearest rows of the query of this number, from 1 on."""
        whole = self.writer.layout.kind == "jsonl"
        for values in neighbours.records(number):
            if "text" not in self.writer.columns:
                del values["text"]
            if not whole:
                self.lost.update(values.keys() - set(self.writer.columns))
                values = {name: _cell(values.get(name)) for name in self.writer.columns}
            self.writer.write(values)

    def notes(self) -> list[str]:
        """Return what is to be said of columns that were left out."""
        return [
            f"the column {name!r} of {counted(rows, 'row')} is left out, as the first row of its "
            "table has none; write .jsonl"
            for name, rows in sorted(self.lost.items())
        ]


def _cell(value: Any) -> str | None:
    """Return a value as text: of lists, objects and truth values their JSON."""
    return value if value is None or isinstance(value, str) else json_text(value)


@contextlib.contextmanager
def open_searches(
    output: Path | str, *, texts: Sequence[str] | None, queries: Sequence[str]
) -> Iterator[SearchWriter]:
    """Open a file of nearest rows.

    Args:
        output: JSON lines where it is ``-``, else what its name says.
        texts: the other columns of the texts; None: there are no texts.
        queries: the other columns of the queries.

    Raises:
        BertineError: it cannot be written; a text in tsv that needs quotes.
    """
    kind = "jsonl" if str(output) == "-" else named_kind(output)
    assert kind is not None
    layout = TableLayout(kind, {"csv": ",", "tsv": "\t"}.get(kind, ""), kind == "csv")
    asked = [*query_column_names(queries).values()]
    first = COLUMNS[:-1] if texts is None else COLUMNS
    columns = [*first, *found_column_names(texts or [], asked).values(), *asked]
    with open_writer(output, layout, columns) as writer:
        yield SearchWriter(writer)
