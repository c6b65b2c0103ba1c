"""Rows of a table on their way through a model: the texts found, in chunks, with a bar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertine.console import progress
from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.tasks.layout import LINE_COLUMN
from bertine.tasks.parquet import count_rows, is_parquet
from bertine.tasks.tables import Row, Table, require_columns
from bertine.text.streams import COMPRESSIONS

#: A chunk of rows: enough to sort by length, few enough to hold in memory.
CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 1 << 22
#: Columns that are taken for the text where none is named.
_TEXT_COLUMNS = (LINE_COLUMN, "sentence")


def chunks(
    rows: Iterable[Row], size: Callable[[Row], int], most: int, most_rows: int | None = None
) -> Iterator[list[Row]]:
    """`rows` in parts that end where their sizes reach `most` in all, or they are `most_rows`."""
    chunk: list[Row] = []
    total = 0
    for row in rows:
        chunk.append(row)
        total += size(row)
        if total >= most or len(chunk) == most_rows:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


@contextlib.contextmanager
def line_progress(what: str, path: str | Path, *, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar over the lines of the file `path`; call what it gives with the line that is reached."""
    total = lines_of_file(path) if show else None
    reached = 0
    with progress(show=show) as bar:
        job = bar.add_task(what, total=total)

        def update(line: int) -> None:
            nonlocal reached
            reached = line
            bar.update(job, completed=line)

        yield update
        bar.update(job, completed=total or reached, total=total or reached)


def lines_of_file(path: str | Path) -> int | None:
    """Lines of a file, of Parquet rows, for the estimate of the time left; None for what can be
    read but once, or would have to be unpacked."""
    if not Path(path).is_file() or Path(path).suffix.lower() in COMPRESSIONS:
        return None
    if is_parquet(path):
        return count_rows(path)
    count = 0
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            count += block.count(b"\n")
    return count


@contextlib.contextmanager
def open_texts(
    path: str | Path,
    column: str | None,
    *,
    format: str | None,
    quotes: bool | None,
    strict: bool,
) -> Iterator[tuple[Table, str]]:
    """A table of texts, and the column of the text: the one named, ``text``, ``sentence``, or the
    only one.

    Raises:
        BertineError: what reading the table raises; the column is not there, or none can be told;
            a column is named, and the file is plain text.
    """
    wanted = [column] if column else []
    with Table(path, format=format, wanted=wanted, quotes=quotes, strict=strict) as table:
        yield table, _text_column(table, column)


def _text_column(table: Table, name: str | None) -> str:
    if table.layout.kind == "text":
        if name not in (None, LINE_COLUMN):
            raise BertineError(
                f"{table.name}: is plain text (no header with {name}), a text on each line; leave "
                "out text_column (--text-column), or give the format (csv, tsv or jsonl)"
            )
        return LINE_COLUMN
    if name is not None:
        require_columns(table.name, table.columns, [name])
        return name
    for usual in (*_TEXT_COLUMNS, *(table.columns if len(table.columns) == 1 else ())):
        if usual in table.columns:
            return usual
    raise BertineError(
        f"{table.name}: cannot tell which column holds the text; name it with text_column "
        f"(--text-column); the columns are {', '.join(map(repr, table.columns))}"
    )


def unused(name: str, taken: Container[str], prefix: str) -> str:
    """`name`, with `prefix` before it as often as it takes to be none of `taken`."""
    while name in taken:
        name = prefix + name
    return name


def joined(source: str, row: Row, added: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row of the table `source` and, behind them, those `added`.

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
    return {**row.values, **added}
