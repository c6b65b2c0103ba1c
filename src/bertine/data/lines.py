"""Read the lines of a table: decode and count them, detect the format, split cells."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal, cast, get_args

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.text import Index
from bertine.data.annotated_texts import Annotations
from bertine.data.encodings import Fixes, find_codec
from bertine.data.in_memory import InMemoryTable, Source
from bertine.data.parquet import is_parquet
from bertine.data.streams import (
    COMPRESSIONS,
    TextDecoder,
    begins_list,
    line_blocks,
    open_text,
    reading,
    refuse_old_ends,
    text_begin,
)
from bertine.data.workbooks import SUFFIXES as WORKBOOKS
from bertine.data.workbooks import Sheet, is_workbook

#: Most bytes of a line. A text with quoted line breaks never needs more; an unclosed quote does.
MAX_LINE_BYTES = 16 * 2**20
#: Most bytes of one JSON text, whose Python objects take about ten times as much. SQuAD has 42 MB.
MAX_JSON_BYTES = 512 * 2**20
#: Most blank lines in a table: this number, plus two for each row.
_MOST_BLANK_LINES = 100_000
#: Most bytes beyond ASCII kept from a pipe, to detect its encoding if it turns out to be damaged.
_KEPT = 1 << 14
#: The end-of-file byte of old programs (^Z).
_END_OF_DOS = b"\x1a"
#: Most line numbers in a note.
_SHOWN = 10


@dataclass
class TableStats(Fixes):
    """Counts of special cases and fixes while reading.

    Attributes:
        damaged: the lines of rows left out.
        lacking: for each optional column, the number of JSON lines rows without that key, and the
            first of their lines.
        quoted: whether tsv was read with quotes around cells because no other way was possible.
        quoted_cells: number of tsv cells that look quoted and were read with their quotes.
        remarks: whole notes on what the file is and how it was read.
    """

    rows: int = 0
    blank_lines: int = 0
    damaged: list[int] = field(default_factory=list)
    lacking: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    quoted: bool = False
    quoted_cells: int = 0
    remarks: list[str] = field(default_factory=list)

    def lack(self, column: str, line: int) -> None:
        """Count a row without the key `column`."""
        count, lines = self.lacking.get(column, (0, []))
        self.lacking[column] = count + 1, [*lines, line] if count < _SHOWN else lines

    def notes(self, name: str) -> list[str]:
        """Return one line for each note to the user about the table `name`."""
        notes = [*self.remarks, *(f"{name}: {note}" for note in self.fix_notes("row"))]
        if self.blank_lines:
            notes.append(f"{name}: {plural(self.blank_lines, 'blank line', 'was', 'were')} skipped")
        if self.damaged:
            notes.append(
                f"{name}: {plural(len(self.damaged), 'damaged row', 'was', 'were')} left out, with "
                f"more or fewer cells than there are columns ({first_numbers(self.damaged)})"
            )
        notes += [
            f"{name}: {count} of {self.rows} rows have no key {column!r} and are read without it "
            f"({first_numbers(lines, count)})"
            for column, (count, lines) in self.lacking.items()
        ]
        if self.quoted:
            notes.append(f'{name}: " quotes cells, as in csv: only so do its rows fit the header')
        elif self.quoted_cells:
            cells = plural(self.quoted_cells, "cell", "looks", "look")
            notes.append(
                f'{name}: {cells} quoted (" around and "" inside), but the quotes are read as a '
                f"part of the text; {option('quotes', True)} takes them off"
            )
        return notes


def first_numbers(
    numbers: Sequence[int], count: int | None = None, what: str = "lines", most: int = _SHOWN
) -> str:
    """Format line numbers for a message: the first of `count`, or of all `numbers`, at most `most`;
    of rows in memory they are indices, whatever `what` is."""
    more = ", …" if (len(numbers) if count is None else count) > most else ""
    one = len(numbers) == 1 and not more
    if numbers and isinstance(numbers[0], Index):
        what = "index" if one else "indices"
    what = what.removesuffix("s") if one else what
    return f"{what} {', '.join(map(str, numbers[:most]))}{more}"


class TableLines:
    """Lines of a binary stream as text, checked and counted. Only ``\\n`` ends a line.

    Damage is kept as it was read, for output that repeats the input.

    Attributes:
        number: the number of the last line, from 1 on.
        decoder: the decoder of the lines.
    """

    def __init__(
        self, handle: BinaryIO, name: str, strict: bool, stats: TableStats, codec: str
    ) -> None:
        self._handle, self.name, self._stats = handle, name, stats
        self._path = Path(name)
        self.number = 0
        self._raw = b""
        self._once = not self._path.is_file()  # a pipe
        self._before, self._passed = b"", 0
        blocks = self._rest if self._once else None
        self.decoder = TextDecoder(name, stats, strict=strict, blocks=blocks, codec=codec)

    def __iter__(self) -> TableLines:
        return self

    def __next__(self) -> str:
        with reading(self._path):
            raw = self._handle.readline(MAX_LINE_BYTES + 1)
        if raw in (b"", _END_OF_DOS):
            raise StopIteration
        self.number += 1
        if self.number == 1:
            raw = text_begin(raw, self.name)
        self._raw = raw
        if self.number == 1 and len(raw) > MAX_LINE_BYTES and raw.startswith(b"["):
            return "["  # perhaps a JSON list, which `whole` reads
        self.check_length()
        if self.number == 1:
            refuse_old_ends(raw, f"{self.name}:1")
        if self._once:
            if raw.isascii() or len(self._before) >= _KEPT:
                self._passed += len(raw)
            else:
                self._before += raw
        return self.decoder.decode(raw, self.number, as_read=True)

    def check_length(self) -> None:
        """Refuse a line that is too long."""
        if len(self._raw) > MAX_LINE_BYTES:
            raise BertineError(
                f"{self.name}:{self.number}: the line is longer than {MAX_LINE_BYTES // 2**20} "
                "MiB; split it"
            )

    def whole(self) -> str:
        """Return the first line, which was already read, with the rest of the file, which is one
        JSON value.

        Raises:
            BertineError: it is larger than :data:`MAX_JSON_BYTES`.
        """
        with reading(self._path):
            self._raw += self._handle.read(MAX_JSON_BYTES + 1 - len(self._raw))
        if len(self._raw) > MAX_JSON_BYTES:
            raise BertineError(
                f"{self.name}: one JSON value of more than {MAX_JSON_BYTES >> 20} MiB; give JSON "
                "lines"
            )
        self._stats.invalid_utf8 = self._stats.nul = 0  # discard the counts of the first line
        return self.decoder.decode(self._raw, 1, as_read=True)

    def _rest(self) -> Iterator[bytes]:
        """Yield the rest of a pipe, after the kept lines; the rest is buffered in a temporary
        file."""
        # For lines no longer kept, only their length is counted.
        for start in range(0, self._passed, MAX_LINE_BYTES):
            yield b" " * min(self._passed - start, MAX_LINE_BYTES)
        yield self._before
        if not self._before.endswith(self._raw):
            yield self._raw
        rest = tempfile.TemporaryFile(prefix="bertine-")  # noqa: SIM115 - kept open
        for block in line_blocks(self._handle):
            rest.write(block)
            yield block
        rest.seek(0)
        self._handle = cast(BinaryIO, rest)

    def count_quoted(self, cells: int) -> None:
        """Count cells that look quoted."""
        self._stats.quoted_cells += cells

    def skip_blank(self) -> None:
        """Count a blank line; a file of blank lines would otherwise be read for minutes without
        output.

        Raises:
            BertineError: there are too many of them.
        """
        self._stats.blank_lines += 1
        if self._stats.blank_lines > _MOST_BLANK_LINES + 2 * self._stats.rows:
            raise BertineError(
                f"{self.name}: {self._stats.blank_lines:,} lines are blank; remove them (grep .)"
            )


# Format: detect a table's format from its file name or first line.

Kind = Literal["csv", "tsv", "jsonl", "text"]

#: The format of the column files that :mod:`bertine.data.column_files` reads.
_WORDS = "columns"
#: The column that holds the lines of a plain-text file.
LINE_COLUMN = "text"

_SUFFIXES: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
#: Suffixes of tables that are not text, with advice.
_BINARY = {
    **dict.fromkeys((".parquet", ".pq"), "Parquet compresses by itself, so unpack it"),
    **dict.fromkeys((".arrow", ".feather"), "convert it to Parquet, csv or JSON lines"),
    **dict.fromkeys(WORKBOOKS, "a workbook compresses by itself, so unpack it"),
    ".numbers": "save it as .xlsx",
    ".fods": "save it as .ods or .xlsx",
    **dict.fromkeys((".zip", ".tar", ".bz2", ".7z"), "unpack it, or compress with gzip"),
}
#: For the kind of the rows: its name, and further suffixes for a file of them.
_WRITTEN: dict[Kind, tuple[str, str]] = {
    "csv": ("csv", ".csv, "),
    "tsv": ("tsv", ".tsv, .csv, "),
    "jsonl": ("JSON lines or Parquet", ""),
    "text": ("plain text", ".txt, .csv, "),
}
# Column names that identify a header line if no columns are named.
KNOWN_COLUMNS = {"text", "text_a", "text_b", "text_pair", "sentence", "sentence1", "sentence2"}
KNOWN_COLUMNS |= {"premise", "hypothesis", "label", "label_name"}
#: Excel's separator line, with or without quotes.
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?[,;\t]*\r?\n?', re.IGNORECASE)
_COLUMN_NAME = re.compile(r"\w(?:[\w.\- ]{0,38}\w)?")


@dataclass(frozen=True)
class TableLayout:
    """The layout of a table: its kind, for csv and tsv the delimiter and the use of quotes,
    whether it is one JSON list instead of one line per row, for the file of an annotation tool what
    was read from it, for a workbook its sheet, its encoding (Python's codec), whether it begins
    with a byte order mark, and its line end."""

    kind: Kind
    delimiter: str = ""
    quotes: bool = False
    one_list: bool = False
    annotations: Annotations | None = None
    sheet: Sheet | None = None
    codec: str = "utf-8"
    mark: bool = False
    line_end: str = "\n"


def detect_layout(
    path: str | Path,
    first: str,
    format: str | None,
    wanted: Sequence[str],
    quotes: bool | None,
) -> TableLayout:
    """Detect the layout of `path`, whose first line is `first`; see
    :class:`bertine.data.tables.Table`.

    Raises:
        BertineError: `format` is not a kind of table.
    """
    if format == _WORDS:
        raise BertineError(f"{path}: the format {_WORDS} is that of words, for taggers alone")
    if format is not None and format not in get_args(Kind):
        raise BertineError(f"unknown format {format!r}; known: {', '.join(get_args(Kind))}")
    kind = format or _SUFFIXES.get(inner_suffix(path))
    if kind is None:
        if is_json_object(first) or begins_list(first):
            kind = "jsonl"
        elif separator := named_separator(first):
            return _delimited(separator, quotes)
        else:
            delimiter = _header_delimiter(first, wanted)
            if delimiter is None:
                return TableLayout("text")
            return _delimited(delimiter, quotes)
    if kind == "csv":
        delimiter = named_separator(first) or _csv_delimiter(first, wanted)
        return TableLayout("csv", delimiter, quotes is not False)
    if kind == "tsv":
        return TableLayout("tsv", "\t", bool(quotes))
    if kind == "jsonl":
        return TableLayout("jsonl", one_list=first.lstrip().startswith("["))
    return TableLayout("text")


def named_separator(first: str) -> str | None:
    """Return the separator that the first line of a csv file declares for Excel (``sep=;``); None
    if it declares none."""
    match = _SEPARATOR.fullmatch(first)
    return match[1] if match else None


def is_typed(path: object) -> bool:
    """Return whether `path` is, by its name, the path of a file whose values have types, and which
    is not text: Parquet or a workbook."""
    return is_parquet(path) or is_workbook(path)


def named_kind(path: str | Path) -> Kind | None:
    """Return the kind of rows in an output file by its name; Parquet and workbooks are JSON lines
    until they are converted. None if the name does not say it."""
    return "jsonl" if is_typed(path) else _SUFFIXES.get(Path(path).suffix.lower())


def written_layout(
    path: str | Path,
    layout: TableLayout,
    what: str | None = None,
    *,
    encoding: str | None = None,
) -> TableLayout:
    """Choose the layout in which rows read in `layout` are written to `path`: the same, unless the
    name says otherwise. `what` names the rows for the message; None: unchanged rows. `encoding` is
    the wanted one; None: that of `layout`, but of JSON lines and Parquet made of another kind
    UTF-8.

    Raises:
        BertineError: the name is that of a format in which not all such rows can be written; there
            is no such encoding.
    """
    suffix, kind = Path(path).suffix.lower(), named_kind(path)
    read = layout.annotations
    keeps = read is not None and suffix == read.suffix and str(path) != "-"
    codec, mark = layout.codec, layout.mark
    if encoding is not None:
        codec, mark = find_codec(encoding)
        if keeps or is_typed(path):
            raise BertineError(
                f"{path}: is always in the same encoding; leave out "
                f"{option('output_encoding', encoding)}"
            )
    if is_typed(path):
        return TableLayout("jsonl", sheet=layout.sheet if is_workbook(path) else None)
    one_list = layout.one_list and suffix == ".json"
    kept = read if keeps else None
    layout = replace(
        layout, one_list=one_list, annotations=kept, sheet=None, codec=codec, mark=mark
    )
    if kind == layout.kind or (kind is None and suffix not in _BINARY):
        return layout
    if kind == "jsonl":
        new = TableLayout("jsonl")
        return new if encoding is None else replace(new, codec=codec, mark=mark)
    if kind == "csv" and layout.kind != "jsonl":
        return replace(layout, kind="csv", delimiter=",", quotes=True)
    rows, names = _WRITTEN[layout.kind]
    raise BertineError(
        f"{path}: {what or f'rows of {rows}'} are not written as {suffix}; name the output "
        f"{names}.jsonl, .parquet or .xlsx"
    )


def quotes_for(
    paths: Sequence[Source], format: str | None, quotes: bool | None
) -> list[bool | None]:
    """Return the option `quotes` for each file of a data set: None for files that by their names
    are JSON lines, Parquet or workbooks, whose cells have no quotes, if another file may have some.
    If no file has, `quotes` is kept, for the reader to refuse."""
    cells = [
        not isinstance(path, InMemoryTable)
        and not is_typed(path)
        and (format or _SUFFIXES.get(inner_suffix(path))) != "jsonl"
        for path in paths
    ]
    return [quotes if has or not any(cells) else None for has in cells]


def inner_suffix(path: str | Path) -> str:
    """Return the suffix of a file in lower case, that of the content if it is compressed.

    Raises:
        BertineError: it is the suffix of a table that is not text.
    """
    name = Path(path)
    if name.suffix.lower() in COMPRESSIONS:
        name = name.with_suffix("")
    suffix = name.suffix.lower()
    if suffix in _BINARY:
        raise BertineError(f"{path}: tables are read as text, not {suffix}; {_BINARY[suffix]}")
    return suffix


def _delimited(delimiter: str, quotes: bool | None) -> TableLayout:
    kind: Kind = "tsv" if delimiter == "\t" else "csv"
    return TableLayout(kind, delimiter, kind == "csv" if quotes is None else quotes)


def _header_delimiter(first: str, wanted: Sequence[str]) -> str | None:
    """Find the delimiter if a first line is certainly a header, else return None.

    Every cell must look like a name, and a wanted or usual name must be among them: a sentence with
    commas has spaces after them.
    """
    for delimiter in (";", "\t", ","):
        cells = [_unquoted(cell) for cell in strip_newline(first).split(delimiter)]
        if len(cells) < 2 or not all(_COLUMN_NAME.fullmatch(cell) for cell in cells):
            continue
        if (wanted and set(wanted) <= set(cells)) or KNOWN_COLUMNS & set(cells):
            return delimiter
    return None


def _csv_delimiter(first: str, wanted: Sequence[str]) -> str:
    """Return ``,`` unless the header indicates ``;`` or tab, which some spreadsheets write in
    csv."""
    split = {
        delimiter: [_unquoted(cell) for cell in strip_newline(first).split(delimiter)]
        for delimiter in (",", ";", "\t")
    }
    for delimiter, cells in split.items():
        if wanted and len(cells) > 1 and set(wanted) <= set(cells):
            return delimiter
    return next((delimiter for delimiter, cells in split.items() if len(cells) > 1), ",")


def is_json_object(line: str) -> bool:
    """Return whether a line is a whole JSON object."""
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def strip_newline(line: str) -> str:
    """Return a line without its final ``\\n`` or ``\\r\\n``; a ``\\r`` of the text itself stays."""
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def _unquoted(cell: str) -> str:
    return cell.removeprefix('"').removesuffix('"')


# Cells: split the lines of csv and tsv.

#: Most lines of one csv row, whose cells may hold line breaks; more indicate an unclosed quote.
_MOST_LINES_OF_A_ROW = 100_000
#: The same if it is not known whether there are quotes at all.
_MOST_LINES_TRIED = 200
#: A whole quoted tsv cell; and a single one.
_QUOTED = re.compile(rb'(?<![^\t\n])"[^"]*+(?:""[^"]*+)*+"(?=[\t\r\n]|\Z)')
_QUOTED_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')

csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


def split_cells(
    first: str, lines: TableLines, layout: TableLayout
) -> Iterator[tuple[int, list[str], str]]:
    """Yield the line number, the cells and the lines of the header and of every non-blank row.

    Args:
        first: the line already read to detect the layout.
        lines: the lines after it.
        layout: the delimiter and the use of quotes.

    Raises:
        BertineError: quotes are not closed or not doubled.
    """
    if not layout.quotes:
        for raw in chain([first], lines):
            line = strip_newline(raw)
            if line:
                cells = line.split(layout.delimiter)
                if '""' in line:
                    lines.count_quoted(sum(map(_looks_quoted, cells)))
                yield lines.number, cells, raw
            else:
                lines.skip_blank()
        return
    before = lines.number - 1  # `first` may not be the first line of the file
    start = 1
    taken: list[str] = []

    def bounded() -> Iterator[str]:
        """Yield the lines while they can belong to one row."""
        for line in chain([first], lines):
            if reader.line_num - start + 2 > _MOST_LINES_OF_A_ROW:  # including this line
                raise BertineError(
                    f"{lines.name}:{lines.number - _MOST_LINES_OF_A_ROW}: a quoted cell goes "
                    f"on for more than {_MOST_LINES_OF_A_ROW:,} lines; close or double the quotes, "
                    f'or read with {option("quotes", False)} if " is an ordinary character'
                )
            taken.append(line)
            yield line

    reader = csv.reader(bounded(), delimiter=layout.delimiter, doublequote=True, strict=True)
    while True:
        start = reader.line_num + 1
        taken.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BertineError(
                f"{lines.name}:{before + start}: not valid csv ({error}); double the quotes inside "
                f'a cell, or read with {option("quotes", False)} if " is an ordinary character'
            ) from error
        if cells:
            yield before + start, cells, "".join(taken)
        else:
            lines.skip_blank()


def _looks_quoted(cell: str) -> bool:
    return '""' in cell[1:-1] and _QUOTED_CELL.fullmatch(cell) is not None


def needs_quotes(path: Path, codec: str) -> bool:
    """Return whether a tsv file can be read only with quotes around cells: with them, all of its
    rows have as many cells as the header, and every quote belongs to a quoted cell; without them,
    one row has more or fewer cells, or all names in the header have quotes. pandas and Excel quote
    a cell that holds a tab, a line break or a quote; R quotes all texts."""
    with open_text(path, codec) as stream:
        first = stream.reader.readline(MAX_LINE_BYTES)
        header = first.count(b"\t")
        all_quoted = b"" not in first.split(b"\t") and not _QUOTED.sub(b"", first).strip()
        if header == 0 or not (all_quoted or _has_quotes(stream.reader, header)):
            return False
    with open_text(path, codec) as stream:
        held, lines = b"", 0
        while line := stream.reader.readline(MAX_LINE_BYTES):
            if not held and b'"' not in line:
                if line.strip(b"\r\n") and line.count(b"\t") != header:
                    return False
                continue
            held, lines = held + line, lines + 1
            rest = _QUOTED.sub(b"", held)
            if b'"' not in rest:
                if rest.count(b"\t") != header:
                    return False
                held, lines = b"", 0
            elif lines > _MOST_LINES_TRIED or len(held) > MAX_LINE_BYTES:
                return False
        return not held


def _has_quotes(reader: BinaryIO, tabs: int) -> bool:
    """Return whether lines have quotes, and one of them has another number of tabs."""
    quotes = other = False
    while line := reader.readline(MAX_LINE_BYTES):
        quotes = quotes or b'"' in line
        other = other or (line.count(b"\t") != tabs and bool(line.strip(b"\r\n")))
        if quotes and other:
            return True
    return False
