"""Detect a table's format from its file name or first line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from bertine.errors import BertineError
from bertine.tables.given import GivenTable, Source
from bertine.tables.json_rows import begins_list
from bertine.tables.parquet import is_parquet
from bertine.tables.streams import COMPRESSIONS

Kind = Literal["csv", "tsv", "jsonl", "text"]

#: The format of the column files that :mod:`bertine.records.columns` reads.
_WORDS = "columns"
#: The column that the lines of a plain-text file make.
LINE_COLUMN = "text"

_SUFFIXES: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
#: Suffixes of tables that are no text, and what to do with them.
_BINARY = {
    **dict.fromkeys((".parquet", ".pq"), "Parquet compresses by itself, so unpack it"),
    **dict.fromkeys((".arrow", ".feather"), "convert it to Parquet, csv or JSON lines"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save it as csv (UTF-8)"),
    **dict.fromkeys((".zip", ".tar", ".bz2", ".7z"), "unpack it, or compress with gzip"),
}
#: By the kind of rows that were read: what they are, and how a file of them may be named besides.
_WRITTEN: dict[Kind, tuple[str, str]] = {
    "csv": ("csv", ".csv, "),
    "tsv": ("tsv", ".tsv, .csv, "),
    "jsonl": ("JSON lines or Parquet", ""),
    "text": ("plain text", ".txt, .csv, "),
}
# Names that tell a header line from a line of text when nobody says which columns to expect.
_KNOWN_COLUMNS = {"text", "text_a", "text_b", "text_pair", "sentence", "sentence1", "sentence2"}
_KNOWN_COLUMNS |= {"premise", "hypothesis", "label", "label_name"}
#: Excel takes the line with and without quotes.
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?[,;\t]*\r?\n?', re.IGNORECASE)
_COLUMN_NAME = re.compile(r"\w(?:[\w.\- ]{0,38}\w)?")


@dataclass(frozen=True)
class TableLayout:
    """The layout of a table: its kind, for csv and tsv the delimiter and the use of quotes, and
    whether it is one list of JSON, and not a line for each row."""

    kind: Kind
    delimiter: str = ""
    quotes: bool = False
    one_list: bool = False


def detect_layout(
    path: str | Path,
    first: str,
    format: str | None,
    wanted: Sequence[str],
    quotes: bool | None,
) -> TableLayout:
    """Detect the layout of `path`, whose first line is `first`; see
    :class:`bertine.tables.table.Table`.

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
    """Return the separator that the first line of a csv file names (``sep=;``), by which Excel
    is told it; None: it names none."""
    match = _SEPARATOR.fullmatch(first)
    return match[1] if match else None


def named_kind(path: str | Path) -> Kind | None:
    """Tell from the name of a file that is written what it holds, Parquet being JSON lines on its
    way there; None: nothing."""
    return "jsonl" if is_parquet(path) else _SUFFIXES.get(Path(path).suffix.lower())


def written_layout(path: str | Path, layout: TableLayout, what: str | None = None) -> TableLayout:
    """Choose the layout in which rows that were read in `layout` are written to `path`: the same,
    unless the name says another. `what` they are, for the message; None: rows as they were read.

    Raises:
        BertineError: the name is that of a format in which not all such rows can be written.
    """
    suffix, kind = Path(path).suffix.lower(), named_kind(path)
    if kind == layout.kind or (kind is None and suffix not in _BINARY):
        return layout
    if kind == "jsonl":
        return TableLayout("jsonl")
    if kind == "csv" and layout.kind != "jsonl":
        return TableLayout("csv", ",", True)
    rows, names = _WRITTEN[layout.kind]
    raise BertineError(
        f"{path}: {what or f'rows of {rows}'} are not written as {suffix}; name the output "
        f"{names}.jsonl or .parquet"
    )


def quotes_for(
    paths: Sequence[Source], format: str | None, quotes: bool | None
) -> list[bool | None]:
    """Return what `quotes` says of each of the files of a data set: nothing of those that by their
    names are JSON lines or Parquet, which have no cells, if another one may have some. If none has,
    what is said is kept, for their reader to refuse."""
    cells = [
        not isinstance(path, GivenTable)
        and not is_parquet(path)
        and (format or _SUFFIXES.get(inner_suffix(path))) != "jsonl"
        for path in paths
    ]
    return [quotes if has or not any(cells) else None for has in cells]


def inner_suffix(path: str | Path) -> str:
    """Return the suffix of a file, in lower case, of what is inside where it is compressed.

    Raises:
        BertineError: it is that of a table that is not text.
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
    """Find the delimiter when a first line is surely a header, else None.

    Every cell must look like a name, and what is wanted or a usual name must be among them: a
    sentence with commas in it has spaces after them.
    """
    for delimiter in (";", "\t", ","):
        cells = [_unquoted(cell) for cell in strip_newline(first).split(delimiter)]
        if len(cells) < 2 or not all(_COLUMN_NAME.fullmatch(cell) for cell in cells):
            continue
        if (wanted and set(wanted) <= set(cells)) or _KNOWN_COLUMNS & set(cells):
            return delimiter
    return None


def _csv_delimiter(first: str, wanted: Sequence[str]) -> str:
    """Return ``,`` unless the header speaks for ``;`` or tab, as some spreadsheets write csv."""
    split = {
        delimiter: [_unquoted(cell) for cell in strip_newline(first).split(delimiter)]
        for delimiter in (",", ";", "\t")
    }
    for delimiter, cells in split.items():
        if wanted and len(cells) > 1 and set(wanted) <= set(cells):
            return delimiter
    return next((delimiter for delimiter, cells in split.items() if len(cells) > 1), ",")


def is_json_object(line: str) -> bool:
    """Tell whether a line is a whole JSON object."""
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def strip_newline(line: str) -> str:
    """Return a line without its own ``\\n`` or ``\\r\\n``; a ``\\r`` of the text itself stays."""
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def _unquoted(cell: str) -> str:
    return cell.removeprefix('"').removesuffix('"')
