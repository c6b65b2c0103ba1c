"""Prepare texts and rows for a model: check given texts, read tables in chunks, show progress."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertine.core.console import progress
from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.names import later, option, text_option
from bertine.core.text import Index, row_at
from bertine.data.examples import as_columns, columns_of_training, open_table
from bertine.data.in_memory import InMemoryTable, Source, as_table, is_frame
from bertine.data.lines import LINE_COLUMN, TableLayout
from bertine.data.parquet import count_rows, is_parquet
from bertine.data.streams import COMPRESSIONS, missing_column
from bertine.data.tables import Table, TableRow
from bertine.datasets.multiple_choice import open_texts_of, texts_of
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import DriftOptions, ExplainOptions, PlainTexts, PredictOptions
from bertine.tasks.base import Task
from bertine.tokenization.documents import USUAL_TEXT_COLUMNS, choose_text_column

if TYPE_CHECKING:
    from bertine.inference.compute import unmeasured_threads
    from bertine.models.precision import resolve_device
else:
    later(globals(), "inference.compute:unmeasured_threads models.precision:resolve_device")

# Given texts: strings, tuples of strings, dictionaries by column. Anything else (gaps of a data
# frame, numbers, bytes) is refused by name.

#: A text, or several that belong together: a pair, a given text and its choices, a list of words.
Text = str | tuple[str, ...]
#: The same, or its texts by the names of the model's columns.
TextOrDict = Text | Mapping[str, str]
#: One text, as a string or in a dictionary.
Single = str | Mapping[str, str]


def is_one(texts: object) -> bool:
    """Return whether `texts` is one text, or the texts of one example in a dictionary, and not
    several examples."""
    if isinstance(texts, str):
        return True
    return isinstance(texts, Mapping) and all(isinstance(item, str) for item in texts.values())


def several(texts: Any) -> list[Any]:
    """Return the texts of a list, of a generator or of another iterable as a list; a single text in
    a list; for a data frame or a dictionary of columns its rows.

    Raises:
        BertineError: there are no texts.
    """
    if is_one(texts):
        return [texts]
    if is_frame(texts):
        return list(as_table(texts, "texts").rows())
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise BertineError(
            f"texts is {texts!r:.40} ({type(texts).__name__}); give a text or a list of texts"
        )
    return list(texts)


def in_order(task: Task[Any], texts: Any, where: str) -> Any:
    """Return the texts of a dictionary in the order of the task's columns, without its other keys;
    anything else unchanged. In messages the dictionary is called `where`.

    Raises:
        BertineError: a column is missing.
    """
    if not isinstance(texts, Mapping):
        return texts
    columns, optional = task.columns_in(texts)
    needed = len(columns) - optional
    for column in columns[:needed]:
        if column not in texts:
            raise BertineError(missing_column(where, list(map(str, texts)), column))
    chosen = [texts.get(column) for column in columns]
    while len(chosen) > needed and chosen[-1] in (None, ""):
        chosen.pop()
    return chosen[0] if len(columns) == 1 else tuple(chosen)


def checked_texts(task: Task[Any], texts: Iterable[Any], first: int = 0) -> list[Text]:
    """Return `texts` as strings and tuples of strings, if they are texts.

    Args:
        task: defines the columns of texts by names.
        texts: the N texts; several that belong together in any sequence, or by names.
        first: the number of the first one, for messages.

    Raises:
        BertineError: an item is something else; the message has its number, from `first`.
    """
    return [
        text if isinstance(text, str) else _several(task, text, number)
        for number, text in enumerate(texts, first)
    ]


def checked_singles(texts: Iterable[Any]) -> list[str]:
    """Return `texts` as strings: each is one, or a dictionary with its text under ``text`` or
    ``sentence``, or as its only entry.

    Raises:
        BertineError: an item is something else; the message has its number, from 1.
    """
    if hasattr(texts, "columns"):
        raise BertineError(
            "a table is given, but texts are needed; give its column, such as table['text']"
        )
    singles = list(texts)
    for number, text in enumerate(singles):
        if isinstance(text, Mapping):
            singles[number] = text = _only_text(text, number)
        if not isinstance(text, str):
            raise _no_text(text, number)
    return singles


def _at(number: int) -> str:
    """Return the place of a text among those that are given."""
    return row_at("texts", Index(number))


def _only_text(texts: Mapping[str, Any], number: int) -> Any:
    names = [name for name in USUAL_TEXT_COLUMNS if name in texts]
    if not names and len(texts) != 1:
        raise BertineError(missing_column(_at(number), list(map(str, texts)), "text"))
    return texts[names[0]] if names else next(iter(texts.values()))


def _several(task: Task[Any], texts: Any, number: int) -> Text:
    texts = in_order(task, texts, _at(number))
    if isinstance(texts, str):
        return texts
    # A mapping would give its keys, a set an arbitrary order.
    if isinstance(texts, bytes | Mapping | Set) or not isinstance(texts, Iterable):
        raise _no_text(texts, number)
    parts = tuple(texts)
    for part in parts:
        if not isinstance(part, str):
            raise _no_text(part, number)
    return parts


def _no_text(value: Any, number: int) -> BertineError:
    shown = f"{value!r:.40}"
    return BertineError(
        f"{_at(number)}: {shown} ({type(value).__name__}) is not a text; give a string, an empty "
        "one where there is nothing"
    )


# Few texts: where measuring the fastest way of computing takes longer than computing.

#: This much is computed in fp32 in the time in which other precisions are tried: about a thousand
#: tokens, since they are tried on some hundred and the weights are packed anew for each.
_FEW_BYTES = 4096


def unmeasured(
    model: object, size: int | None, device: str | None, precision: str
) -> dict[str, Any]:
    """Return ``precision`` and ``threads``, as arguments for loading, to compute a few texts
    without measurements. With more texts, or where the precision is given or decided already,
    return the given `precision` alone.

    Args:
        model: a model directory, or a model that is loaded already.
        size: the bytes of text; None: not known.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
        precision: ``"auto"`` and others.
    """
    open_choice = isinstance(model, Path | str) and precision == "auto"
    few = size is not None and size <= _FEW_BYTES
    if not open_choice or not few or resolve_device(device).type != "cpu":
        return {"precision": precision}
    return {"precision": "fp32", "threads": unmeasured_threads()}


def bytes_to_come(input: object) -> int | None:
    """Return the size of a file, or of the rest of standard input; None where it is not known: for
    a pipe whose other end is still open, a compressed file and a table in memory."""
    if not isinstance(input, Path | str):
        return None
    try:
        if str(input) != "-":
            path = Path(input)
            known = path.is_file() and path.suffix.lower() not in COMPRESSIONS
            return path.stat().st_size if known else None
        if sys.stdin is None:
            return None
        descriptor = sys.stdin.fileno()
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
        return _in_pipe(descriptor) if stat.S_ISFIFO(status.st_mode) else None
    except (OSError, ValueError):
        return None


def _in_pipe(descriptor: int) -> int | None:
    """Return the rest of a pipe whose other end was closed."""
    if not hasattr(select, "poll"):
        return None
    import array
    import fcntl
    import termios

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = any(event & select.POLLHUP for _, event in poll.poll(0))
    if not ended:
        return None
    waiting = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    return waiting[0]


# Tables: rows in chunks, with a progress bar.

#: A chunk of rows: enough to sort by length, few enough to hold in memory.
CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 1 << 22


def chunks(
    rows: Iterable[TableRow],
    size: Callable[[TableRow], int],
    most: int,
    most_rows: int | None = None,
) -> Iterator[list[TableRow]]:
    """Divide `rows` into parts of at least the total size `most`, or of `most_rows` rows."""
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
    """Divide a table of texts into parts of `most` characters or slightly more, or of
    :data:`CHUNK_ROWS` rows: the rows and their texts."""
    for rows in chunks(table, lambda row: len(table.text(row, column)), most, CHUNK_ROWS):
        yield rows, [table.text(row, column) for row in rows]


def other_columns(row: TableRow, *read: str | None) -> dict[str, Any]:
    """Return the values of a row in the columns that are not in `read`, by name."""
    return {name: value for name, value in row.values.items() if name not in read}


@contextlib.contextmanager
def text_progress(
    what: str, path: Source, layout: TableLayout | None = None, *, show: bool
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over the texts of `path`; call the result with the number of further
    texts done.

    Args:
        what: the name of the work.
        path: the path of the file, or a table in memory.
        layout: the layout of the table; None: each line counts as one, as in a column file.
        show: whether to show a bar.
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
    """Count the rows of a table, for the estimate of the remaining time; None where it can be read
    only once, is compressed, or is one list of JSON. Blank and damaged rows count too.

    Args:
        path: the path of the file, or a table in memory.
        layout: the layout of the table; None: the lines are counted.
    """
    if isinstance(path, InMemoryTable):
        return len(path)
    if is_parquet(path):
        return count_rows(path)
    if layout is not None and layout.sheet is not None:
        return layout.sheet.rows
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
        BertineError: the table cannot be read; the column is missing, or none can be chosen; a
            column is named, but the file is plain text.
    """
    column = reading.text_column
    config = DataConfig.of(reading, DEFAULTS)
    with open_table(path, config, [column] if column else []) as table:
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
        table: the table as it is read.
        rows: its rows; for multiple choice those that have choices.
        columns: the columns of their texts.
        notes: notes on the choice of the columns.
    """

    table: Table
    rows: Iterable[TableRow]
    columns: tuple[str, ...]
    notes: list[str]


@contextlib.contextmanager
def open_task_table(
    task: Task[Any], path: Source, options: PredictOptions | ExplainOptions | DriftOptions
) -> Iterator[TaskTable]:
    """Open a table of texts for a model of `task`: with the named columns, else with those of its
    training.

    Raises:
        BertineError: the table cannot be read; a column is missing; plain text for a model of
            pairs, or with a column named.
    """
    named = as_columns(options.text_columns)
    columns = named or task.text_columns
    config = DataConfig.of(options, DEFAULTS)
    with columns_of_training(() if named else columns, advice=task.advice):
        opening = open_texts_of(task, path, config, columns)
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
        columns, rows, notes = texts_of(task, table, columns, named)
        yield TaskTable(table, rows, columns, notes)


def unused(name: str, taken: Container[str], prefix: str) -> str:
    """Return `name`, with as many times `prefix` before it as needed to differ from all of
    `taken`."""
    while name in taken:
        name = prefix + name
    return name


def joined(
    source: str, row: TableRow, added: Mapping[str, Any], read: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the values of a row of the table `source`, followed by those `added`. If the columns
    `read` are given, the others stay as in the file, to the byte.

    Raises:
        BertineError: the row has one of these names. Keys of JSON lines may change from row to
            row, and the names were chosen by the first one's.
    """
    for name in added:
        if name in row.values:
            raise BertineError(
                f"{row_at(source, row.line)}: has a key {name!r}, but the first row has none, so "
                "it is the name of a column to add; rename it"
            )
    if read is None or row.exact is None:
        return {**row.values, **added}
    return {**row.exact, **{name: row.values[name] for name in read if name in row.exact}, **added}
