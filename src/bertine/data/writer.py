"""Write a table row by row in the layout of the input, and write tables in memory to files."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

from bertine.core.console import log_all, logger
from bertine.core.errors import BertineError, require_packages
from bertine.core.files import atomic_dir, atomic_file, os_errors
from bertine.core.names import option
from bertine.core.text import ESCAPED, briefly
from bertine.data.encodings import kept_bytes
from bertine.data.in_memory import DataParts, InMemoryTable
from bertine.data.lines import LINE_COLUMN, TableLayout, is_typed, strip_newline
from bertine.data.parquet import is_parquet, mixed_note, write_parquet
from bertine.data.pre_annotation import write_predictions
from bertine.data.streams import COMPRESSIONS, cleaned, encodable
from bertine.data.tables import Table, TableRow
from bertine.data.workbooks import WRITTEN, is_workbook, shown, write_workbook

#: The error handler that writes bytes that are not UTF-8 as they were read
#: (:attr:`~bertine.data.tables.TableRow.exact`).
AS_READ = "surrogateescape"


def json_text(value: Any, indent: int | None = None, errors: str = "strict") -> str:
    """Write `value` as JSON, characters unescaped; escaped if there are lone surrogates, which have
    no UTF-8. With the `errors` :data:`AS_READ` those that are bytes as they were read are kept."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if encodable(text, errors) else json.dumps(value, indent=indent)


class TableWriter:
    """A writer of rows in a :class:`TableLayout`. A plain-text row is written with its text last,
    after the other columns and tabs, so that it can be split again for any text. Bytes that are not
    UTF-8 are written as they were read if the handle is opened for it (:data:`AS_READ`), else as
    U+FFFD.

    Args:
        header: write the header of csv and tsv; false when appending rows.
        source: the table whose columns come first: where the layout is the same, its header and
            rows are repeated as they are, quotes and all.
    """

    def __init__(
        self,
        handle: TextIO,
        layout: TableLayout,
        columns: Sequence[str],
        *,
        header: bool = True,
        source: Table | None = None,
    ) -> None:
        self._handle, self.layout, self.columns = handle, layout, list(columns)
        self._as_read = getattr(handle, "errors", None) in (AS_READ, "surrogatepass")
        self._repeated = 0
        if source is not None and source.head:
            read = source.layout
            same = (read.kind, read.delimiter, read.quotes)
            if same == (layout.kind, layout.delimiter, layout.quotes):
                self._repeated = len(source.columns)
        if header and layout.mark and not layout.one_list:
            self._write("\ufeff")
        if header and layout.kind in ("csv", "tsv"):
            names = [name if name.strip() else "" for name in self.columns]
            self._write_cells(names, source.head if source is not None else "")

    def write(self, values: Mapping[str, Any], row: TableRow | None = None) -> None:
        """Write one row; csv and tsv need a value for every column, where None is an empty cell.
        `row` is the row of the source, with the same values; a sheet to which columns are added
        needs it."""
        if self.layout.kind == "jsonl":
            line = 0 if row is None else row.line
            of_sheet = [line, values] if self.layout.sheet else values
            self._write_line(json_text(of_sheet, errors=AS_READ))
        elif self.layout.kind == "text":
            added = [_cell(values[name]) for name in self.columns if name != LINE_COLUMN]
            self._write_line("\t".join([*added, str(values[LINE_COLUMN])]))
        else:
            cells = [_cell(values[name]) for name in self.columns]
            self._write_cells(cells, "" if row is None else row.raw)

    def _write_cells(self, cells: Sequence[str], raw: str) -> None:
        """Write cells; `raw` are the lines of the first ones in the source."""
        delimiter, begin, end = self.layout.delimiter, [], ""
        if raw and self._repeated:
            cells = cells[self._repeated :]
            text = raw.rstrip("\r\n") if self.layout.quotes else strip_newline(raw)
            begin, end = [text], raw[len(text) :]
        if self.layout.quotes:
            # A single empty cell would be a blank line, which readers skip.
            alone = len(cells) == 1 and not begin
            cells = [_quoted(cell, delimiter, force=alone and not cell) for cell in cells]
        else:
            for cell in cells:
                if delimiter in cell or "\n" in cell or cell.endswith("\r"):
                    raise BertineError(
                        f"{cell[:40]!r} cannot be written without quotes, because it holds the "
                        "separator or a line break; use csv or jsonl"
                    )
        self._write_line(delimiter.join([*begin, *cells]), end)

    def _write_line(self, line: str, end: str = "") -> None:
        if not encodable(line):
            if not self._as_read:
                line = cleaned(line)
            elif self._handle.errors != AS_READ:  # halves of pairs in UTF-16
                line = line.encode("utf-8", AS_READ).decode("utf-8", "surrogatepass")
        self._write(line + (end or self.layout.line_end))

    def _write(self, text: str) -> None:
        try:
            self._handle.write(text)
        except UnicodeEncodeError as error:
            lacking = briefly(text[error.start])
            raise BertineError(
                f"the encoding {self.layout.codec} of the output has no {lacking}; write it with "
                f"{option('output_encoding', 'utf-8')}"
            ) from error


@contextlib.contextmanager
def open_writer(
    path: str | Path,
    layout: TableLayout,
    columns: Sequence[str],
    *,
    source: Table | None = None,
) -> Iterator[TableWriter]:
    """Open a :class:`TableWriter` to `path` (complete or missing, never partial), or to stdout for
    ``-``.

    JSON lines become what :func:`convert_rows` makes of them.

    Raises:
        BertineError: `path` is a folder, is named as a compressed file, or as Parquet or a workbook
            with another layout, or for these is a device or a pipe; or it cannot be written.
    """
    if is_stream(path):
        layout = replace(layout, one_list=False)
    if str(path) == "-":
        with _written_as_read(layout.codec):
            yield TableWriter(sys.stdout, layout, columns, source=source)
            sys.stdout.flush()
        return
    check_output(path)
    read = layout.annotations
    if is_typed(path) and (layout.kind != "jsonl" or is_stream(path)):
        kind = "Parquet" if is_parquet(path) else "a workbook"
        raise BertineError(f"{path}: these are not written as {kind}; name the output .jsonl")
    with contextlib.ExitStack() as stack:
        whole = atomic_dir(path) if read and read.is_folder else atomic_file(path)
        target = Path(path) if is_stream(path) else stack.enter_context(whole)
        stack.enter_context(os_errors(path, "writing it"))
        converted = is_converted(path, layout)
        rows = target.with_name(f"{target.name}.rows") if converted else target
        if converted:
            stack.callback(rows.unlink, missing_ok=True)
        with open_rows(rows, path, layout, "w") as handle:
            yield TableWriter(handle, layout, columns, source=source)
        if converted:
            convert_rows(rows, target, path, layout, columns)


def open_rows(rows: Path, path: str | Path, layout: TableLayout, mode: str) -> TextIO:
    """Open the file of the rows that become the output `path`."""
    errors = None if is_typed(path) else kept_bytes(layout.codec)
    file = open(rows, mode, encoding=layout.codec, newline="", errors=errors)  # noqa: SIM115
    return cast(TextIO, file)


def is_converted(path: str | Path, layout: TableLayout) -> bool:
    """Return whether the rows for `path` are JSON lines until all are there."""
    return is_typed(path) or layout.one_list or layout.annotations is not None


def convert_rows(
    rows: Path, target: Path, path: str | Path, layout: TableLayout, columns: Sequence[str]
) -> None:
    """Convert JSON lines to the format of the output `path`: in bounded memory to Parquet or a
    workbook, with `columns` first, or to one list of JSON; or to the file of an annotation tool. (A
    column of Parquet has one type, which must hold all of its values.)

    Args:
        target: the file that is written, and then renamed to `path`.

    Raises:
        BertineError: the rows cannot be written so.
    """
    notes: list[str] = []
    if is_parquet(path):
        mixed = write_parquet(rows, target, columns)
        notes = [mixed_note(path, mixed)] if mixed else []
    elif is_workbook(path):
        notes = [f"{path}: {note}" for note in write_workbook(rows, target, columns, layout.sheet)]
    elif layout.annotations is not None:
        write_predictions(rows, target, layout.annotations)
    else:
        end, between = layout.line_end, "\ufeff[" if layout.mark else "["
        with (
            open_rows(rows, path, layout, "r") as lines,
            open_rows(target, path, layout, "w") as new,
        ):
            for line in lines:
                new.write(between + end + line.removesuffix(end))
                between = ","
            new.write(f"{end}]{end}" if between == "," else f"{between}]{end}")
    log_all(notes)


@contextlib.contextmanager
def _written_as_read(codec: str) -> Iterator[None]:
    """Make stdout accept text for :data:`AS_READ`, in `codec` unless it is UTF-8 or stdout is a
    terminal; characters that the encoding of stdout lacks are escaped, which is noted."""
    stream = sys.stdout
    if not isinstance(stream, TextIOWrapper):
        yield
        return
    encoding, errors = stream.encoding, stream.errors
    if codec != "utf-8" and not stream.isatty():
        stream.reconfigure(encoding=codec, errors=kept_bytes(codec))
    elif stream.encoding.lower() == "utf-8":
        stream.reconfigure(errors=AS_READ)
    else:
        logger.warning(
            f"standard output has the encoding {stream.encoding}: characters that it lacks are "
            f"written as \\u and their code; a file named by {option('output')} is in UTF-8"
        )
        stream.reconfigure(errors=ESCAPED)
    try:
        yield
    finally:
        stream.reconfigure(encoding=encoding, errors=errors)


def is_stream(path: str | Path) -> bool:
    """Return whether it is stdout (``-``), a device or a pipe, which is written to instead of being
    replaced."""
    return str(path) == "-" or (Path(path).exists() and not Path(path).is_file())


def check_output(path: str | Path) -> None:
    """Refuse a folder, and the name of a compressed file or of a workbook that is not written,
    before any work is done.

    Raises:
        BertineError: it is refused.
    """
    if Path(path).is_dir():
        raise BertineError(f"{path}: is a folder; name a file in it")
    if Path(path).suffix.lower() in COMPRESSIONS:
        raise BertineError(
            f"{path}: the output is not compressed; leave out {Path(path).suffix}, or write to - "
            "and compress that"
        )
    if is_workbook(path):
        if Path(path).suffix.lower() != WRITTEN:
            raise BertineError(f"{path}: workbooks are written as {WRITTEN}; name the output so")
        require_packages(f"{path}: a workbook", ["openpyxl"])


def _cell(value: Any) -> str:
    return json_text(value) if isinstance(value, list | dict) else shown(value)


def _quoted(cell: str, delimiter: str, *, force: bool) -> str:
    if force or any(character in cell for character in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def write_given(data: InMemoryTable | DataParts, folder: Path) -> Path:
    """Write tables as JSON lines, ``train.jsonl`` and so on, with names in place of class numbers.

    Returns:
        The file of the one table, or the folder of several parts.
    """
    if isinstance(data, InMemoryTable):
        return _write(data, folder / "train.jsonl")
    for name in ("train", "validation", "test"):
        table = getattr(data, name)
        if table is not None:
            _write(table, folder / f"{name}.jsonl")
    return folder


def _write(table: InMemoryTable, path: Path) -> Path:
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as handle:
        for row in table.rows():
            for column, names in table.class_names.items():
                row[column] = _class_name(row[column], names)
            handle.write(json_text(row) + "\n")
    return path


def _class_name(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_class_name(inner, names) for inner in value]
    if type(value) is int:
        return names[value] if 0 <= value < len(names) else None
    return value
