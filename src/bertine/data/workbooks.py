"""Read and write workbooks: Excel's (.xlsx, .xlsm, .xlsb, .xls) and LibreOffice's (.ods).

A sheet is read by :mod:`bertine.data.sheets`, a program of its own, into a temporary file of rows;
memory holds one row. Answers to the rows of an .xlsx are written into a copy of it: only the cells
beside the table are new, so that its formulas, formats and other sheets stay as they are. Other
rows become a new workbook. Texts are never written as formulas.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from html import escape  # that of xml.sax imports what fetches pages
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from bertine.core.console import plural
from bertine.core.errors import BertineError, require_packages
from bertine.core.files import os_errors
from bertine.core.foreign_files import reading_outside
from bertine.core.names import option
from bertine.core.text import briefly
from bertine.data import sheets

#: Suffixes of workbooks, and that of those that are written.
SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
WRITTEN = ".xlsx"
#: What Excel accepts at most: rows of a sheet, and units of UTF-16 in a cell.
_MOST_ROWS, _MOST_UNITS = 1 << 20, 32767
#: Most titles above a header, and sheets in a note.
_TITLES = _NAMED = 3
#: The escape of a character in a workbook, and the characters that need it or cannot be written.
_ESCAPE = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)|\r")
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
#: A row in the XML of a sheet (the prefix of its tags, its attributes, its cells), the end of one,
#: and a cell (its attributes).
_ROW = re.compile(rb"<((?:\w+:)?)row\b([^>]*?)(?:/>|>(.*?)</\1row>)", re.DOTALL)
_ROW_END = re.compile(rb"</(?:\w+:)?row>")
_CELL = re.compile(rb"<(?:\w+:)?c\b([^>]*?)(?:/>|>.*?</(?:\w+:)?c>)", re.DOTALL)
#: Their attributes: the number of a row, the letters of a cell's column, its style.
_NUMBER, _COLUMN = re.compile(rb'\sr="(\d{1,7})"'), re.compile(rb'\sr="([A-Z]{1,3})\d')
_STYLE = re.compile(rb'\ss="\d+"')
#: The end of all rows: of their element, or an element without rows.
_DATA_END = re.compile(rb"<((?:\w+:)?)sheetData\s*/>|</((?:\w+:)?)sheetData>")
#: What says how many columns there are; it is optional, and left out.
_SPANS, _DIMENSION = re.compile(rb'\sspans="[^"]*"'), re.compile(rb"<(?:\w+:)?dimension\b[^>]*/>")

#: A row of a sheet: its number there, and its values.
NumberedRow = tuple[int, list[Any]]


def is_workbook(path: object) -> bool:
    """Return whether `path` is the path of a workbook, by its name."""
    return isinstance(path, str | Path) and Path(path).suffix.lower() in SUFFIXES


@dataclass(frozen=True)
class Sheet:
    """The sheet that a table was read from, to which columns can be added.

    Attributes:
        path: the workbook.
        name: the sheet's name.
        header: the number of the row with the names of the columns.
        columns: these names.
        width: the number of the last column with a value.
        rows: the number of rows below the header that are not empty.
        stamp: the size and the time of the file when it was read.
    """

    path: Path
    name: str
    header: int
    columns: tuple[str, ...]
    width: int
    rows: int
    stamp: tuple[int, int]


def stamp_of(path: str | Path) -> tuple[int, int]:
    """Return the size of a file and the time when it was changed."""
    with os_errors(path, "reading it"):
        status = Path(path).stat()
    return status.st_size, status.st_mtime_ns


def open_sheet(
    path: str | Path, wanted: str | None
) -> tuple[dict[str, Any], Iterator[NumberedRow]]:
    """Open the sheet `wanted` of a workbook, by its name or number (from 1), or the first with a
    table; return what is known of it, and its rows that are not empty. Values are texts, numbers,
    truth values and None; dates are texts.

    Raises:
        BertineError: python-calamine is not installed; no such file, or not a workbook, or one with
            a password, or that takes too much memory; no such sheet, or no cell has a value.
    """
    require_packages(f"{path}: a workbook", ["python_calamine"])
    rows = tempfile.TemporaryFile(prefix="bertine-")  # noqa: SIM115 - kept open
    program = [sys.executable, "-P", sheets.__file__, wanted or ""]
    with reading_outside(path), open(path, "rb") as file:
        done = subprocess.run(program, stdin=file, stdout=rows, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").rstrip().rpartition("\n")[2]
        if done.returncode < 0:
            most = f"{sheets.MEMORY >> 30} GiB"
            reason = f"is damaged, or takes more than {most} of memory; save the sheet as csv"
        raise BertineError(f"{path}: {reason}")
    rows.seek(0)
    facts: dict[str, Any] = json.loads(next(rows))

    def read() -> Iterator[NumberedRow]:
        with rows:
            for line in rows:
                number, *values = json.loads(line)
                yield number, values

    return facts, read()


def find_header(
    rows: Iterator[NumberedRow], known: Container[Any]
) -> tuple[list[str], NumberedRow, Iterator[NumberedRow]]:
    """Find the header of a table: its first row, unless that is a title: a text alone in the first
    column, and none of the `known` names of columns. There are at most :data:`_TITLES` of these,
    and then a row with a text in each column.

    Returns:
        The titles, the header, and the rows below.
    """
    read = list(islice(rows, _TITLES + 1))
    alone = [isinstance(row[0], str) and row.count(None) == len(row) - 1 > 0 for _, row in read]
    titles = [row[0] for _, row in read[: [*alone, False].index(False)]]
    below = read[len(titles)][1] if len(titles) < len(read) else [None]
    if not all(isinstance(name, str) and name not in titles for name in below):
        titles = []
    if any(title in known for title in titles):
        titles = []
    return titles, read[len(titles)], chain(read[len(titles) + 1 :], rows)


def sheet_notes(
    facts: dict[str, Any], wanted: str | None, titles: Sequence[str], header: int
) -> list[str]:
    """Return notes on what was chosen and left out in a sheet."""
    notes = []
    if facts["others"] and wanted is None:
        more = ", …" if len(facts["others"]) > _NAMED else ""
        others = ", ".join(map(repr, facts["others"][:_NAMED])) + more
        notes.append(f"the sheet {facts['sheet']!r} is read, not {others} ({option('sheet')})")
    if titles:
        above = ", ".join(map(briefly, titles))
        notes.append(f"the header is in row {header}, below the title {above}")
    for key, what, how in (
        ("empty", "empty row", "skipped"),
        ("errors", "cell", "with an error, such as #N/A, read as empty"),
        ("merged", "merged range", "of cells, whose value is in the first one alone"),
        (
            "formulas",
            "formula",
            "without a stored value, read as empty; open and save the workbook",
        ),
    ):
        if count := facts.get(key):
            notes.append(f"{plural(count, what)} {how}")
    return notes


def shown(value: Any) -> str:
    """Write a value of a cell as a text: a number, a truth value; "" for none."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


# Writing: columns that are added to a sheet, which may be an empty one.


def write_workbook(
    rows: Path, target: Path, columns: Sequence[str], sheet: Sheet | None
) -> list[str]:
    """Convert a file of rows to a workbook.

    Args:
        rows: JSON lines; with a `sheet` each is a list of the number of its row there, and the row.
        target: the new file.
        columns: the columns that come first; others follow in order of occurrence.
        sheet: the columns that it lacks are added beside its table, in a copy of its workbook, if
            that is an .xlsx and still the one that was read. None: a new workbook.

    Returns:
        Notes on what was changed or lost.

    Raises:
        BertineError: there are too many rows for a sheet, or the workbook is damaged.
    """
    import openpyxl

    names = list(dict.fromkeys([*columns, *(name for _, row in _rows_of(rows) for name in row)]))
    numbered, lost, source = _rows_of(rows), "", cast(Any, io.BytesIO())
    if sheet and sheet.path.suffix.lower() == WRITTEN and stamp_of(sheet.path) == sheet.stamp:
        source, title, first, header = sheet.path, sheet.name, sheet.width + 1, sheet.header
        names = [name for name in names if name not in sheet.columns]
    else:
        lost = f"a new workbook, without what else is in {sheet.path}" if sheet else ""
        book = openpyxl.Workbook()
        book.save(source)
        title, first, header = book.active.title, 1, 1
        numbered = ((number, row) for number, (_, row) in enumerate(numbered, 2))
    given = chain([(header, {name: name.strip() or None for name in names})], numbered)
    changed: Counter[tuple[str, str]] = Counter()
    with (
        reading_outside(sheet.path) if sheet else contextlib.nullcontext(),
        zipfile.ZipFile(source) as old,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        part = sheets.sheet_part(old, title)
        for name in old.namelist():
            with old.open(name) as before, new.open(name, "w", force_zip64=True) as copy:
                if name == part:
                    copy.writelines(_with_cells(before, given, names, first, changed))
                else:
                    shutil.copyfileobj(before, copy)
    notes = [f"{plural(count, what)} {how}" for (what, how), count in changed.items()]
    return [lost, *notes] if lost else notes


def _rows_of(rows: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(rows, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            row = json.loads(line)
            yield (row[0], row[1]) if isinstance(row, list) else (0, row)


def _with_cells(
    xml: Any,
    rows: Iterator[tuple[int, dict[str, Any]]],
    names: Sequence[str],
    first: int,
    changed: Counter[tuple[str, str]],
) -> Iterator[bytes]:
    """Yield the XML of a sheet with further cells; rows that it lacks come last.

    Args:
        xml: a binary stream.
        rows: the numbers and the values of the rows that get cells, in order, the header first.
        names: the columns of the cells.
        first: the number of the first of these columns, which have no values in the sheet.
        changed: counts of what is changed in texts.
    """
    waiting, number = next(rows, None), 0
    style: bytes | None = b""

    def filled(prefix: bytes, attributes: bytes, body: bytes) -> bytes:
        """Return the row that is waiting for cells, with what it has already."""
        nonlocal waiting, style
        assert waiting is not None
        at = end = 0
        parts = [b"", b"", b""]
        for cell in _CELL.finditer(body):
            place, look = _COLUMN.search(cell[1]), _STYLE.search(cell[1])
            at = _number_of(place[1]) if place else at + 1
            end = cell.end()
            # Empty cells may be in the way: those with a format.
            if not first <= at < first + len(names):
                parts[0 if at < first else 2] += cell[0]
            if style is not None and look and at < first:
                style = look[0]  # new names look like the last one of the header
        for at, name in enumerate(names, first):
            place_and_style = b' r="%b%d"%b' % (_letters(at), waiting[0], style or b"")
            parts[1] += _cell(waiting[1].get(name), prefix, place_and_style, changed)
        waiting, style = next(rows, None), None
        row = prefix + b"row"
        return b"".join([b"<", row, attributes, b">", *parts, body[end:], b"</", row, b">"])

    def edited(row: re.Match[bytes]) -> bytes:
        nonlocal number
        given = _NUMBER.search(row[2])
        number = int(given[1]) if given else number + 1
        if waiting is None or waiting[0] != number:
            return row[0]
        return filled(row[1], _SPANS.sub(b"", row[2]), row[3] or b"")

    held = b""
    while block := xml.read(1 << 20):
        held += block
        end = max((match.end() for match in _ROW_END.finditer(held)), default=0)
        yield _ROW.sub(edited, _DIMENSION.sub(b"", held[:end]))
        held = held[end:]
    held = _ROW.sub(edited, _DIMENSION.sub(b"", held))
    close = _DATA_END.search(held)
    if close is None:
        raise ValueError("a sheet without an end")
    prefix = close[1] or close[2] or b""
    yield held[: close.start()] + (b"<%bsheetData>" % prefix if close[1] is not None else b"")
    while waiting is not None:
        if waiting[0] > _MOST_ROWS:
            raise BertineError(
                f"a sheet holds {_MOST_ROWS:,} rows, and there are more; name the output .csv, "
                ".jsonl or .parquet"
            )
        yield filled(prefix, b' r="%d"' % waiting[0], b"")
    yield b"</%bsheetData>" % prefix + held[close.end() :]


def _cell(value: Any, prefix: bytes, attributes: bytes, changed: Counter[tuple[str, str]]) -> bytes:
    """Return the XML of a cell: an exact number, a truth value, or else a text; empty for None."""
    if value is None:
        return b""
    if isinstance(value, bool):
        kind, inner = b' t="b"', b"<%bv>%d</%bv>" % (prefix, value, prefix)
    elif isinstance(value, int | float) and abs(value) < sheets.EXACT:
        kind, inner = b"", b"<%bv>%b</%bv>" % (prefix, repr(value).encode(), prefix)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text, removed = _ILLEGAL.subn("", text)
        units = text.encode("utf-16-le")
        if len(units) > 2 * _MOST_UNITS:
            text = units[: 2 * _MOST_UNITS].decode("utf-16-le", "ignore")
            changed["text", f"cut to the {_MOST_UNITS:,} characters that a cell can hold"] += 1
        if removed:
            changed["control character", "removed, which a workbook cannot hold"] += removed
        text = _ESCAPE.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
        inner = b'<%bt xml:space="preserve">%b</%bt>' % (prefix, escape(text).encode(), prefix)
        kind, inner = b' t="inlineStr"', b"<%bis>%b</%bis>" % (prefix, inner, prefix)
    return b"<%bc%b%b>%b</%bc>" % (prefix, attributes, kind, inner, prefix)


def _number_of(letters: bytes) -> int:
    """Return the number of a column, from 1."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number


def _letters(number: int) -> bytes:
    """Return the letters of a column."""
    return (_letters((number - 1) // 26) if number > 26 else b"") + bytes([65 + (number - 1) % 26])
