"""Rows of a table on their way through a model: the texts found, in chunks, with a bar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bertine.datasets.choice_data import choice_rows, choices_of, open_choices
from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.options.answering import ExplainOptions, PlainTexts, PredictOptions
from bertine.options.names import option, text_option
from bertine.records.examples import as_columns, columns_of_training
from bertine.tables.given import GivenTable, Source
from bertine.tables.layout import LINE_COLUMN, TableLayout
from bertine.tables.parquet import count_rows, is_parquet
from bertine.tables.streams import COMPRESSIONS
from bertine.tables.table import Table, TableRow
from bertine.tables.text_columns import choose_text_column
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.terminal.console import progress

#: A chunk of rows: enough to sort by length, few enough to hold in memory.
CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 1 << 22


def chunks(
    rows: Iterable[TableRow],
    size: Callable[[TableRow], int],
    most: int,
    most_rows: int | None = None,
) -> Iterator[list[TableRow]]:
    """Divide `rows` into parts that end where their sizes reach `most` in all, or they are
    `most_rows`."""
    chunk: list[TableRow] = []
    total = 0
    for row in rows:
        chunk.append(row)
        total += size(row)
        if total >= most or len(chunk) == most_rows:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def text_chunks(
    table: Table, column: str, most: int = CHUNK_CHARACTERS
) -> Iterator[tuple[list[TableRow], list[str]]]:
    """Divide a table of texts into parts of at most so many characters, or :data:`CHUNK_ROWS`: the
    rows and their texts."""
    for rows in chunks(table, lambda row: len(table.text(row, column)), most, CHUNK_ROWS):
        yield rows, [table.text(row, column) for row in rows]


def other_columns(row: TableRow, *read: str | None) -> dict[str, Any]:
    """Return the values of a row in the columns that were not `read`, by name."""
    return {name: value for name, value in row.values.items() if name not in read}


@contextlib.contextmanager
def text_progress(
    what: str, path: Source, layout: TableLayout | None = None, *, show: bool
) -> Iterator[Callable[[int], None]]:
    """Show a bar over the texts of `path`; call what it gives with how many more are done.

    Args:
        what: is done.
        path: of the file, or a table in memory.
        layout: of the table; None: each line counts as one, as in a column file.
        show: whether there is a bar at all.
    """
    total = count_texts(path, layout) if show else None
    done = 0
    with progress(show=show) as bar:
        job = bar.add_task(what, total=total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(job, completed=done)

        yield advance
        bar.update(job, completed=done, total=done)


def count_texts(path: Source, layout: TableLayout | None = None) -> int | None:
    """Count the rows of a table, for the estimate of the time left; None for what can be read but
    once, would have to be unpacked, or is one list of JSON. Blank and damaged rows count too.

    Args:
        path: of the file, or a table in memory.
        layout: of the table; None: the lines are counted.
    """
    if isinstance(path, GivenTable):
        return len(path)
    if is_parquet(path):
        return count_rows(path)
    one_list = layout is not None and layout.one_list
    if not Path(path).is_file() or Path(path).suffix.lower() in COMPRESSIONS or one_list:
        return None
    quotes = layout is not None and layout.quotes
    count = parity = 0
    last = b""
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            last = block
            if not quotes:
                count += block.count(b"\n")
                continue
            # Line ends inside quotes belong to a cell: those after an odd number of quotes.
            between = block.split(b'"')
            count += sum(part.count(b"\n") for part in between[parity::2])
            parity = (parity + len(between) - 1) % 2
    count += bool(last) and not last.endswith(b"\n")
    header = layout is not None and layout.kind in ("csv", "tsv")
    return max(0, count - header)


@contextlib.contextmanager
def open_texts(path: Source, reading: PlainTexts) -> Iterator[tuple[Table, str]]:
    """Open a table of texts, and find the column of the text: the one named, ``text``,
    ``sentence``, or the only one.

    Raises:
        BertineError: what reading the table raises; the column is not there, or none can be chosen;
            a column is named, and the file is plain text.
    """
    column = reading.text_column
    with Table(
        path,
        format=reading.format,
        wanted=[column] if column else [],
        quotes=reading.quotes,
        strict=reading.strict,
    ) as table:
        yield table, _text_column(table, column)


def _text_column(table: Table, name: str | None) -> str:
    if table.layout.kind == "text":
        if name not in (None, LINE_COLUMN):
            raise BertineError(
                f"{table.name}: is plain text (no header with {name}), a text on each line; leave "
                f"out {option('text_column')}, or give the format (csv, tsv or jsonl)"
            )
        return LINE_COLUMN
    return choose_text_column(table.name, table.columns, name)


@dataclass(frozen=True)
class TaskTable:
    """A table of texts that a model is to answer.

    Attributes:
        table: as it is read.
        rows: of it; of multiple choice those that have choices.
        columns: of their texts.
        notes: what was met in choosing them.
    """

    table: Table
    rows: Iterable[TableRow]
    columns: tuple[str, ...]
    notes: list[str]


@contextlib.contextmanager
def open_task_table(
    task: Task[Any], path: Source, options: PredictOptions | ExplainOptions
) -> Iterator[TaskTable]:
    """Open a table of texts for a model of `task`: with the columns that are named, else with
    those of its training.

    Raises:
        BertineError: what reading the table raises; a column is missing; plain text for a model of
            pairs, or with a column named.
    """
    named = as_columns(options.text_columns)
    columns = named or task.text_columns
    reading: dict[str, Any] = {
        name: getattr(options, name) for name in ("format", "quotes", "strict")
    }
    with columns_of_training(() if named else columns):
        opening = (
            open_choices(path, cast(MultipleChoice, task), named, **reading)
            if task.has_choices
            else Table(path, wanted=columns, **reading)
        )
    with opening as table:
        if table.layout.kind == "text":
            if len(columns) != 1:
                several = "pairs" if len(columns) == 2 else f"{len(columns)} texts"
                raise BertineError(
                    f"{table.name}: is plain text (no header with {' and '.join(columns)}), but "
                    f"the model takes {several}; give csv, tsv or jsonl"
                )
            if named and columns != (LINE_COLUMN,):
                raise BertineError(
                    f"{table.name}: is plain text (no header with {columns[0]}), a text on each "
                    f"line; leave out {text_option()}, or give the format (csv, tsv or jsonl)"
                )
            columns = (LINE_COLUMN,)
        if not task.has_choices:
            yield TaskTable(table, table, columns, [])
            return
        choosing = cast(MultipleChoice, task)
        columns, notes = choices_of(table, choosing, named)
        yield TaskTable(table, choice_rows(table, choosing, columns, named), columns, notes)


def unused(name: str, taken: Container[str], prefix: str) -> str:
    """Return `name`, with `prefix` before it as often as it takes to be none of `taken`."""
    while name in taken:
        name = prefix + name
    return name


def joined(
    source: str, row: TableRow, added: Mapping[str, Any], read: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the values of a row of the table `source` and, behind them, those `added`. Where it is
    said which columns were `read`, the others stand as in the file, to the byte.

    Raises:
        BertineError: the row has one of these names. Keys of JSON lines may change from row to
            row, and the names were chosen by the first one's.
    """
    for name in added:
        if name in row.values:
            raise BertineError(
                f"{source}:{row.line}: has a key {name!r}, but the first row has none, so it is "
                "the name of a column to add; rename it"
            )
    if read is None or row.exact is None:
        return {**row.values, **added}
    return {**row.exact, **{name: row.values[name] for name in read if name in row.exact}, **added}
