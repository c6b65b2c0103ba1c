"""Read tables of text row by row: csv, tsv, JSON, Parquet, workbooks, lines, annotations.

Memory holds one row (of annotations the file), so a table may be of any length and may come from
stdin. Quotes follow
RFC 4180 in csv and are ordinary characters in tsv; `quotes` reverses either. Fixes (invalid UTF-8,
NUL bytes) and blank lines are counted in :class:`~bertine.data.lines.TableStats`.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.published import name_in_cache
from bertine.core.text import Index, briefly, row_at
from bertine.data.annotations import annotation_tool, read_annotations
from bertine.data.in_memory import InMemoryTable, Source
from bertine.data.lines import (
    KNOWN_COLUMNS,
    LINE_COLUMN,
    TableLayout,
    TableLines,
    TableStats,
    detect_layout,
    inner_suffix,
    is_typed,
    named_separator,
    needs_quotes,
    split_cells,
    strip_newline,
)
from bertine.data.parquet import class_names, open_parquet
from bertine.data.streams import (
    MOST_COLUMNS,
    STDIN,
    Stream,
    TextDecoder,
    cleaned,
    json_kind,
    json_row,
    list_items,
    missing_column,
    open_text,
    require_columns,
)
from bertine.data.workbooks import (
    Sheet,
    find_header,
    is_workbook,
    open_sheet,
    sheet_notes,
    shown,
    stamp_of,
)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: `line` is the number (from 1) of the line it starts on; `values` by column name.

    Values are strings, except in JSON lines, Parquet and workbooks, where they have the file's
    types. For the latter two, `line` is the number of the row. `exact` are the values of a row of
    text before fixes, with bytes that are not UTF-8 as lone surrogates, to be written unchanged.
    None: there is no difference. `raw` are the lines of a row of csv or tsv.
    """

    line: int
    values: dict[str, Any]
    exact: dict[str, Any] | None = None
    raw: str = ""

    @property
    def as_read(self) -> dict[str, Any]:
        """The values as they are in the file."""
        return self.exact or self.values


class Table:
    """A table opened for reading: iterate once over its :class:`TableRow`; use it in ``with``.

    A column without a name is accepted: the first one has the name "", further ones have names of
    blanks; they are written without a name.

    Args:
        path: a file, plain or compressed (.gz, .zst, .xz), or ``-`` for stdin; or rows in memory.
        format: ``csv``, ``tsv``, ``jsonl`` or ``text``; by default detected from the suffix, and
            for other suffixes and stdin from the first line: a JSON object, or a header with
            `wanted` or a usual column name, separated by ``;``, tab or ``,``. Anything else is
            plain text, one text per line, in the column ``text``. JSON lines may be one list of
            objects. Parquet is recognized by the suffix (.parquet, .pq), and the file of an
            annotation tool (or a folder of brat's) by its contents, unless a `format` says
            otherwise; output in their layout is JSON lines. So are workbooks (.xlsx, .xls, .ods) by
            the suffix; output in their layout is csv.
        wanted: columns that must exist, except in plain text, which has only one. They also help
            to detect a header and its delimiter.
        quotes: whether ``"`` quotes cells; None means yes, but no for tab-separated files, unless
            the file can be read only with quotes.
        strict: refuse invalid UTF-8 and NUL bytes instead of fixing and counting them.
        encoding: the encoding of a text file; None: see
            :func:`~bertine.data.streams.open_text`.
        header: the column names of a csv or tsv file whose first line is already a row.
        skip_damaged: leave out rows with the wrong number of cells, and count them.
        sheet: the name or number (from 1) of the sheet of a workbook; by default the first one with
            a table.
        optional: columns in which a missing value (null, or in JSON lines no such key) is an empty
            text. Rows without such a key are counted.

    Attributes:
        name: the path as given, or ``<stdin>``.
        layout: the given or detected format.
        columns: the column names, in order (for JSON lines: the keys of the first row).
        head: the lines of the header of csv and tsv, and of the separator line before it.
        stats: counts so far; complete after the last row.
        strict: whether damaged text is refused instead of fixed or left out.
        class_names: the names of the numbers in a column, or in its lists, if the data have them;
            else empty.

    Raises:
        BertineError: the file is missing, empty or unreadable, a wanted column does not exist,
            `quotes` is given for a format without cells; while iterating, a row has the wrong
            number of cells, invalid quotes or invalid JSON.
    """

    def __init__(
        self,
        path: Source,
        *,
        format: str | None = None,
        wanted: Sequence[str] = (),
        quotes: bool | None = None,
        strict: bool = False,
        encoding: str | None = None,
        header: Sequence[str] | None = None,
        skip_damaged: bool = False,
        optional: Sequence[str] = (),
        sheet: str | None = None,
    ) -> None:
        self.name = STDIN if str(path) == "-" else name_in_cache(path) or str(path)
        self.stats = TableStats()
        self.head = ""
        self._stack = contextlib.ExitStack()
        self._wanted = tuple(wanted)
        self._header, self._skip_damaged = header, skip_damaged
        self.strict, self._optional = strict, tuple(optional)
        self._may_lack: tuple[str, ...] = ()
        self._stream: Stream | None = None
        #: Whether every row has all columns, with values of their own types.
        self._typed = is_typed(path) or isinstance(path, InMemoryTable)
        self.class_names: Callable[[str], tuple[str, ...]] = lambda column: ()
        options = {"format": format, "quotes": quotes, "encoding": encoding}
        if isinstance(path, InMemoryTable):
            _refuse(path, "is a table in memory, not a file", options)
            names = path.class_names
            self.class_names = lambda column: names.get(column, ())
            counted = zip(map(Index, count()), path.rows(), strict=False)
            self._start_typed(list(path.columns), counted, path.rows)
            return
        if not is_workbook(path):
            _refuse(path, "is no workbook with sheets", {"sheet": sheet})
        else:
            _refuse(path, "is a workbook by its name", options)
            self._open_workbook(path, sheet)
            return
        if self._typed:
            _refuse(path, "is Parquet by its name", options)
            self.class_names = lambda column: class_names(path, column)
            columns, rows = open_parquet(path)
            self._start_typed(columns, enumerate(rows, 1), lambda: open_parquet(path)[1])
            return
        inner_suffix(path)  # refuses a file that is not text
        if tool := annotation_tool(path, format):
            _refuse(path, f"is a file of {tool}", {"quotes": quotes, "encoding": encoding})
            self._open_annotations(path, tool)
            return
        try:
            stream = self._stack.enter_context(open_text(path, encoding))
            self._stream = None if str(path) == "-" else stream
            self._lines = TableLines(stream.reader, self.name, strict, self.stats, stream.codec)
            self._decoder = self._lines.decoder
            first = next(self._lines, None)
            if not first:
                raise BertineError(f"{self.name}: the file is empty")
            self.layout = replace(
                detect_layout(path, first, format, self._wanted, quotes),
                codec=stream.codec,
                mark=stream.mark,
                line_end="\r\n" if first.endswith("\r\n") else "\n",
            )
            if self.layout.kind in ("csv", "tsv") and named_separator(first):
                self.head, first = first, next(self._lines, "")
            if self.layout.kind != "jsonl":
                self._lines.check_length()
            if self.layout.kind == "tsv" and quotes is None and Path(path).is_file():
                self.stats.quoted = needs_quotes(Path(path), stream.codec)
                self.layout = replace(self.layout, quotes=self.stats.quoted)
            if self.layout.kind not in ("csv", "tsv"):
                what = "JSON lines" if self.layout.kind == "jsonl" else "plain text"
                what = f"is {what}, which has no quotes around cells"
                _refuse(self.name, what, {"quotes": quotes})
            self.columns: list[str] = []
            self.allow_empty(optional)
            self._rows = self._start(first)
            if self.layout.kind != "text":
                self.require(self._wanted)
        except BaseException:
            self.close()
            raise

    def _open_workbook(self, path: str | Path, wanted: str | None) -> None:
        stamp = stamp_of(path)
        facts, lines = open_sheet(path, wanted)
        titles, (header, names), lines = find_header(lines, {*self._wanted, *KNOWN_COLUMNS})
        self.columns = self._named(header, [*map(shown, names)])
        notes = sheet_notes(facts, wanted, titles, header)
        self.stats.remarks = [f"{self.name}: {note}" for note in notes]
        cells = ((number, dict(zip(self.columns, row, strict=True))) for number, row in lines)
        self._start_typed(self.columns, cells, lambda: iter(()))
        place = Path(path), facts["sheet"], header, tuple(self.columns)
        rows = facts["rows"] - len(titles) - 1
        sheet = Sheet(*place, facts["columns"][-1], rows, stamp)
        self.layout = TableLayout("csv", ",", True, sheet=sheet)

    def _open_annotations(self, path: str | Path, tool: str) -> None:
        read = read_annotations(Path(path), tool, strict=self.strict, stats=self.stats)
        self._typed, self.stats.remarks = True, read.notes
        self._start_typed(read.columns, enumerate(read.rows, 1), lambda: iter(read.rows))
        self.layout = TableLayout("jsonl", one_list=True, annotations=read)

    def _start_typed(
        self,
        columns: list[str],
        rows: Iterator[tuple[int, dict[str, Any]]],
        again: Callable[[], Iterator[dict[str, Any]]],
    ) -> None:
        self._decoder = TextDecoder(
            self.name,
            self.stats,
            strict=self.strict,
            blocks=lambda: chain.from_iterable(_bytes_in(row) for row in again()),
            rows=True,
        )
        self.layout = TableLayout("jsonl")
        self.columns = columns
        self._rows = (TableRow(number, self._decoder.clean(row, number)) for number, row in rows)
        self.require(self._wanted)

    def allow_empty(self, columns: Sequence[str]) -> None:
        """Make `columns` the optional ones from here on, if they are known only when the table is
        open."""
        self._optional = tuple(columns)
        self._may_lack = self._optional if self.keys_vary else ()

    @property
    def position(self) -> int:
        """The number of bytes read from disk of a csv, tsv, JSON lines or plain text file; 0 for
        any other source."""
        return 0 if self._stream is None else self._stream.position

    @property
    def keys_vary(self) -> bool:
        """Whether rows may have other keys than the first row: those of JSON lines."""
        return self.layout.kind == "jsonl" and not self._typed

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[TableRow]:
        for row in self._rows:
            self.stats.rows += 1
            self.stats.count_twice(row.values.values())
            for column in self._may_lack:
                if column not in row.values:
                    self.stats.lack(column, row.line)
            yield row

    def require(self, columns: Sequence[str]) -> None:
        """Refuse a table without one of `columns`; optional ones may be missing in the first row of
        JSON lines.

        Raises:
            BertineError: one does not exist; names the first.
        """
        wanted = [column for column in columns if column not in self._may_lack]
        require_columns(self.name, self.columns, wanted)

    def text(self, row: TableRow, column: str) -> str:
        """Return the value of `column`, which must exist (unless it is optional) and be a string,
        or null, which is an empty text like an empty cell. Numbers and truth values in a workbook
        are texts."""
        if column in self._optional and row.values.get(column) is None:
            return ""
        value = self._value(row, column)
        if value is None:
            return ""
        if self.layout.sheet is not None:
            return shown(value)
        if not isinstance(value, str):
            raise BertineError(
                f"{row_at(self.name, row.line)}: {column!r} is {json_kind(value)}, but must be a "
                "text"
            )
        return value

    def label(self, row: TableRow, column: str) -> str:
        """Return the value of `column` as a label: a string (without surrounding space), number or
        truth value, or a list with only that; not empty."""
        value = self._value(row, column)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, int) or (isinstance(value, float) and not math.isnan(value)):
            return shown(value)
        if isinstance(value, str) and value.strip():
            return value.strip()
        what = "empty" if isinstance(value, str) else json_kind(value)
        if isinstance(value, float):
            what = "NaN"
        needed = "; every row needs one"
        if isinstance(value, list):
            needed = ", but must be one text or number; lists are for the task multi-label"
        raise BertineError(f"{row_at(self.name, row.line)}: the label {column!r} is {what}{needed}")

    def has_label(self, row: TableRow, column: str) -> bool:
        """Return whether `column` has a value: the cell is not empty, the value is not null or NaN,
        and in JSON lines the key exists."""
        value = row.values.get(column)
        if isinstance(value, str):
            return bool(value.strip())
        if value is None or value == []:
            return column not in row.values and not self.keys_vary
        return not (isinstance(value, float) and math.isnan(value))

    def _value(self, row: TableRow, column: str) -> Any:
        if column not in row.values:
            raise BertineError(
                missing_column(row_at(self.name, row.line), list(row.values), column)
            )
        return row.values[column]

    # One reader for each kind. Each sets `columns` at once and yields rows later.

    def _start(self, first: str) -> Iterator[TableRow]:
        if self.layout.kind == "text":
            self.columns = [LINE_COLUMN]
            return self._plain_rows(first)
        if self.layout.kind == "jsonl":
            rows = self._json_rows(first)
            head = next(rows, None)
            if head is None:
                raise BertineError(f"{self.name}: the file is empty")
            self.columns = list(head.values)
            return chain([head], rows)
        cells = split_cells(first, self._lines, self.layout)
        if self._header is not None:
            self.columns = list(self._header)
            return self._cell_rows(cells)
        _, header, raw = next(cells, (1, list[str](), ""))
        self.head += raw
        if not header:
            raise BertineError(f"{self.name}: the file is empty")
        names = [cleaned(name) for name in header] if self._decoder.damaged else header
        self.columns = self._named(1, names, f" (separator {self.layout.delimiter!r})")
        return self._cell_rows(cells)

    def _named(self, line: int, header: Sequence[str], separated: str = "") -> list[str]:
        """Return the names of the columns in a header; missing ones are blanks, one more blank for
        each."""
        if len(header) > MOST_COLUMNS:
            raise BertineError(
                f"{self.name}:{line}: the header has {len(header):,} columns{separated}; at most "
                f"{MOST_COLUMNS:,} are read"
            )
        distinct: list[str] = []
        for name in header:
            blank = not name.strip()
            while blank and name in distinct:
                name += " "
            distinct.append(name)
        repeated = sorted(name for name, count in Counter(distinct).items() if count > 1)
        if repeated:
            raise BertineError(
                f"{self.name}:{line}: two columns are called {briefly(repeated[0])}; rename one"
            )
        return distinct

    def _plain_rows(self, first: str) -> Iterator[TableRow]:
        for line in chain([first], self._lines):
            yield self._text_row(self._lines.number, {LINE_COLUMN: strip_newline(line)})

    def _json_rows(self, first: str) -> Iterator[TableRow]:
        if self.layout.one_list:
            for number, item in list_items(self._lines.whole(), self.name):
                yield self.json_row(number, item)
            return
        for line in chain([first], self._lines):
            if line.strip():
                yield self.json_row(self._lines.number, line)
            else:
                self._lines.skip_blank()

    def json_row(self, number: int, text: str) -> TableRow:
        """Convert the object in a line of JSON to a row; NUL bytes and lone surrogates in its
        texts are fixed and counted.

        Raises:
            BertineError: it is not an object, or lists are nested too deeply; in strict reading
                also a lone surrogate.
        """
        if not self._decoder.damaged or (clean := cleaned(text)) == text:
            return TableRow(number, self._json_object(text, number))
        # An escape could not be distinguished from a byte kept as a surrogate.
        exact = None if "\\u" in text else json_row(text.replace("\0", ""), self.name)
        return TableRow(number, self._json_object(clean, number), exact)

    def _text_row(self, number: int, values: dict[str, Any], raw: str = "") -> TableRow:
        if self._decoder.damaged:
            clean = {name: cleaned(value) for name, value in values.items()}
            if clean != values:
                return TableRow(number, clean, values, raw)
        return TableRow(number, values, raw=raw)

    def _json_object(self, line: str, number: int) -> dict[str, Any]:
        values = json_row(line, f"{self.name}:{number}")
        if "\\u" in line:  # a NUL byte or lone surrogate can only come from an escape
            try:
                values = self._decoder.clean(values, number)
            except RecursionError as error:
                raise BertineError(
                    f"{self.name}:{number}: lists and objects in each other too deeply to be read"
                ) from error
        return values

    def _cell_rows(self, cells: Iterator[tuple[int, list[str], str]]) -> Iterator[TableRow]:
        width = len(self.columns)
        for line, values, raw in cells:
            if len(values) != width:
                if self._skip_damaged:
                    self.stats.damaged.append(line)
                    continue
                hint = "; quote the cells that hold it" if self.layout.quotes else ""
                if not hint and any('"' in cell for cell in values):
                    hint = f"; if cells are quoted, read with {option('quotes', True)}"
                raise BertineError(
                    f"{self.name}:{line}: {plural(len(values), 'cell')} where the header "
                    f"has {width} (separator {self.layout.delimiter!r}{hint})"
                )
            yield self._text_row(line, dict(zip(self.columns, values, strict=True)), raw)


def _refuse(name: object, what: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a table which is `what` does not have."""
    for option_name, value in options.items():
        if value is not None:
            raise BertineError(f"{name}: {what}; leave out {option(option_name, value)}")


def _bytes_in(value: Any) -> Iterator[bytes]:
    """Yield the original bytes of the texts in a value, each with a line end."""
    if isinstance(value, str):
        try:
            yield value.encode("utf-8", "surrogateescape") + b"\n"
        except UnicodeEncodeError:
            yield value.encode("utf-8", "replace") + b"\n"
    elif isinstance(value, list):
        for inner in value:
            yield from _bytes_in(inner)
    elif isinstance(value, dict):
        yield from _bytes_in(list(value.values()))
