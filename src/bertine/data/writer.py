"""Write a table row by row in the layout of the input, and write tables in memory to files."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import atomic_dir, atomic_file, os_errors
from bertine.core.names import option
from bertine.core.text import ESCAPED
from bertine.data.in_memory import DataParts, InMemoryTable
from bertine.data.lines import LINE_COLUMN, TableLayout
from bertine.data.parquet import is_parquet, mixed_note, write_parquet
from bertine.data.pre_annotation import write_predictions
from bertine.data.streams import COMPRESSIONS, cleaned, encodable


def json_text(value: Any, indent: int | None = None) -> str:
    """Write `value` as JSON, characters unescaped; escaped if there are lone surrogates, which have
    no UTF-8."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if encodable(text) else json.dumps(value, indent=indent)


#: The error handler that writes bytes that are not UTF-8 as they were read
#: (:attr:`~bertine.data.tables.TableRow.exact`).
AS_READ = "surrogateescape"


class TableWriter:
    """A writer of rows in a :class:`TableLayout`. A plain-text row is written with its text last,
    after the other columns and tabs, so that it can be split again for any text. Bytes that are not
    UTF-8 are written as they were read if the handle is opened for it (:data:`AS_READ`), else as
    U+FFFD.

    Args:
        header: write the header of csv and tsv; false when appending rows.
    """

    def __init__(
        self, handle: TextIO, layout: TableLayout, columns: Sequence[str], *, header: bool = True
    ) -> None:
        self._handle, self.layout, self.columns = handle, layout, list(columns)
        self._as_read = getattr(handle, "errors", None) == AS_READ
        if header and layout.kind in ("csv", "tsv"):
            self._write_cells([name if name.strip() else "" for name in self.columns])

    def write(self, values: Mapping[str, Any]) -> None:
        """Write one row; csv and tsv need a value for every column, where None is an empty cell."""
        if self.layout.kind == "jsonl":
            self._write_line(_json_as_read(values))
        elif self.layout.kind == "text":
            added = [_cell(values[name]) for name in self.columns if name != LINE_COLUMN]
            self._write_line("\t".join([*added, str(values[LINE_COLUMN])]))
        else:
            self._write_cells([_cell(values[name]) for name in self.columns])

    def _write_cells(self, cells: Sequence[str]) -> None:
        delimiter = self.layout.delimiter
        if self.layout.quotes:
            # A single empty cell would be a blank line, which readers skip.
            alone = len(cells) == 1
            cells = [_quoted(cell, delimiter, force=alone and not cell) for cell in cells]
        else:
            for cell in cells:
                if delimiter in cell or "\n" in cell or cell.endswith("\r"):
                    raise BertineError(
                        f"{cell[:40]!r} cannot be written without quotes, because it holds the "
                        "separator or a line break; use csv or jsonl"
                    )
        self._write_line(delimiter.join(cells))

    def _write_line(self, line: str) -> None:
        if not self._as_read and not encodable(line):
            line = cleaned(line)
        self._handle.write(line + "\n")


@contextlib.contextmanager
def open_writer(
    path: str | Path, layout: TableLayout, columns: Sequence[str]
) -> Iterator[TableWriter]:
    """Open a :class:`TableWriter` to `path` (complete or missing, never partial), or to stdout for
    ``-``.

    JSON lines become Parquet if `path` is named so, with `columns` first: a column's type must hold
    all of its values, so it is determined from all rows at the end.

    Raises:
        BertineError: `path` is a folder, is named as a compressed file, or as Parquet with another
            layout, or for Parquet is a device or a pipe; or it cannot be written.
    """
    if str(path) == "-":
        with _written_as_read():
            yield TableWriter(sys.stdout, layout, columns)
            sys.stdout.flush()
        return
    check_output(path)
    parquet, read = is_parquet(path), layout.annotations
    if parquet and (layout.kind != "jsonl" or is_stream(path)):
        raise BertineError(f"{path}: these are not written as Parquet; name the output .jsonl")
    with contextlib.ExitStack() as stack:
        whole = atomic_dir(path) if read and read.is_folder else atomic_file(path)
        target = Path(path) if is_stream(path) else stack.enter_context(whole)
        stack.enter_context(os_errors(path, "writing it"))
        converted = parquet or read is not None
        rows = target.with_name(f"{target.name}.rows") if converted else target
        if converted:
            stack.callback(rows.unlink, missing_ok=True)
        errors = None if parquet else AS_READ
        with open(rows, "w", encoding="utf-8", newline="", errors=errors) as handle:
            yield TableWriter(handle, layout, columns)
        if parquet:
            mixed = write_parquet(rows, target, columns)
            if mixed:
                logger.info(mixed_note(path, mixed))
        elif read is not None:
            write_predictions(rows, target, read)


@contextlib.contextmanager
def _written_as_read() -> Iterator[None]:
    """Make stdout, unless it is a terminal, accept text for :data:`AS_READ`; characters that its
    encoding lacks are escaped, which is noted."""
    stream = sys.stdout
    if not isinstance(stream, TextIOWrapper):
        yield
        return
    before = stream.errors
    utf8 = stream.encoding.lower() == "utf-8"
    if not utf8:
        logger.warning(
            f"standard output has the encoding {stream.encoding}: characters that it lacks are "
            f"written as \\u and their code; a file named by {option('output')} is in UTF-8"
        )
    stream.reconfigure(errors=AS_READ if utf8 else ESCAPED)
    try:
        yield
    finally:
        stream.reconfigure(errors=before)


def is_stream(path: str | Path) -> bool:
    """Return whether it is stdout (``-``), a device or a pipe, which is written to instead of being
    replaced."""
    return str(path) == "-" or (Path(path).exists() and not Path(path).is_file())


def check_output(path: str | Path) -> None:
    """Refuse a folder and the name of a compressed file before any work is done.

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


def _json_as_read(values: Mapping[str, Any]) -> str:
    """Write a row as JSON like :func:`json_text`, but keep bytes that are not UTF-8."""
    text = json.dumps(values, ensure_ascii=False)
    try:
        text.encode("utf-8", AS_READ)
    except UnicodeEncodeError:
        return json.dumps(values)
    return text


def _cell(value: Any) -> str:
    if isinstance(value, list | dict):
        return json_text(value)
    return "" if value is None else str(value)


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
