"""Read the documents of a corpus one at a time: plain text, JSON lines, Parquet, csv.

The corpus is streamed: memory holds one document, and a document larger than `max_document_bytes`
is split, so memory is bounded for files of any size. (A line of JSON lines is held whole, up to
`MAX_JSON_LINE` bytes, and so is a row of csv or tsv, whose cells have at most
:data:`~bertine.data.lines.MAX_LINE_BYTES` characters.)
"""

from __future__ import annotations

import contextlib
import heapq
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.core.console import human_bytes, log_all, plural
from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.foreign_files import reading_outside
from bertine.core.names import option
from bertine.data.encodings import REPLACEMENT, Fixes
from bertine.data.lines import MAX_JSON_BYTES
from bertine.data.streams import (
    COMPRESSIONS,
    Stream,
    TextDecoder,
    ambiguous_column_error,
    blocks,
    json_kind,
    json_row,
    list_items,
    open_stream,
    open_text,
    reading,
    require_columns,
    text_begin,
)
from bertine.data.tables import Table
from bertine.data.workbooks import SUFFIXES as WORKBOOKS
from bertine.data.workbooks import is_workbook
from bertine.options.data import CorpusReading

# Tables: find their texts, one in each row.

#: The usual names of the column, tried in this order.
USUAL_TEXT_COLUMNS = ("text", "sentence")


def choose_text_column(where: str, columns: Sequence[str], named: str | None) -> str:
    """Choose the column of the text: the one named, ``text``, ``sentence``, or the only one.

    Args:
        where: the table, or a row of it, for messages.
        columns: its column names.
        named: the user's choice; None: not given.

    Raises:
        BertineError: the named column does not exist, or none is recognized; lists the columns.
    """
    if named is not None:
        require_columns(where, columns, [named])
        return named
    for usual in (*USUAL_TEXT_COLUMNS, *(columns if len(columns) == 1 else ())):
        if usual in columns:
            return usual
    raise ambiguous_column_error(where, columns, "text", option("text_column"))


def unix_ends(text: str) -> str:
    r"""Return a text with ``\n`` as the only line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


# Parquet: read the texts of a file; each row is a document of a corpus.

#: Rows decoded at a time.
_ROWS = 128


def parquet_texts(
    path: Path, column: str | None, *, strict: bool, fixes: Fixes
) -> Iterator[tuple[str, int, int]]:
    r"""Yield the text of each row; memory holds some rows.

    Args:
        path: a Parquet file, possibly compressed as a whole.
        column: the column of the text; None: ``text``, ``sentence``, or the only column.
        strict: refuse invalid UTF-8 and NUL bytes instead of fixing and counting them.
        fixes: counts the fixes; changed in place.

    Yields:
        The text (with ``\n`` as the only line end; "" for null), the number of its row from 1 on,
        and how many bytes of the file on disk have been read.

    Raises:
        BertineError: the file is damaged; the column is missing, not recognized, or not text.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        stack.enter_context(reading(path))
        size = os.path.getsize(path)
        source: Any = path
        if path.suffix.lower() in COMPRESSIONS:
            # The index of a Parquet file is at its end: it cannot be read as a stream.
            source = stack.enter_context(tempfile.TemporaryFile(prefix="bertine-"))
            with open_stream(path) as stream:
                shutil.copyfileobj(stream.reader, source, 1 << 20)
            source.seek(0)
        with reading_outside(path, "write the file again"):
            # From a buffer: otherwise a row group's whole column would be read, however large it
            # is.
            opened = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
            file = stack.enter_context(opened)
            names = file.schema_arrow.names
            text_column = choose_text_column(str(path), names, column)
            kind = file.schema_arrow.field(text_column).type
            value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            of = pa.types
            # A column without a value in any row of a file may have been written as null.
            texts = (of.is_string, of.is_large_string, of.is_string_view, of.is_null)
            if not any(is_text(value_kind) for is_text in texts):
                raise BertineError(
                    f"{path}: column {text_column!r} is of type {kind}; it must be string"
                )

            def values() -> Iterator[bytes]:
                for batch in file.iter_batches(batch_size=_ROWS, columns=[text_column]):
                    column = batch.column(0)
                    if pa.types.is_dictionary(kind):
                        column = column.dictionary_decode()
                    # As bytes: a writer may have put text that is not UTF-8 into a string column.
                    for value in column.cast(pa.large_binary()):
                        yield value.as_py() or b""

            def lines() -> Iterator[bytes]:
                return (value + b"\n" for value in values())

            decoder = TextDecoder(path, fixes, strict=strict, blocks=lines, rows=True)
            for row, raw in enumerate(values(), 1):
                text = unix_ends(decoder.decode(raw, row))
                del raw  # a text may be very large
                yield text, row, size * row // max(file.metadata.num_rows, 1)
                del text


#: Suffix (before that of a compression) -> format.
FORMATS = {
    "": "plain",
    ".txt": "plain",
    ".text": "plain",
    ".md": "plain",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "table",
    ".tsv": "table",
    ".tab": "table",
    **dict.fromkeys(WORKBOOKS, "workbook"),
}
#: The list of file kinds in the message about another one.
_KINDS = ".txt, .md, .jsonl, .json, .csv, .tsv, .parquet or .xlsx"

#: Those that are not text.
_TYPED = {"parquet", "workbook"}

#: Most bytes of a line in a JSON lines file.
MAX_JSON_LINE = 1 << 28

#: The end-of-file character of old programs (^Z).
_END_OF_DOS = "\x1a"
#: Most skipped files that are named; all are counted.
MAX_SKIPPED_NAMED = 10


@dataclass(frozen=True)
class Document:
    """One document.

    Attributes:
        text: not empty; lines end in ``\\n``; no NULs, no lone surrogates, no U+FFFD.
        source: its file.
        row: the line it begins at (plain text, csv, tsv), its line (JSON lines) or its row
            (Parquet), from 1.
    """

    text: str
    source: str
    row: int


@dataclass
class CorpusStats(Fixes):
    """Counts of one pass over a corpus, and the fixes in it.

    Attributes:
        files: files read completely.
        documents: documents yielded.
        text_bytes: their size in UTF-8.
        damaged: characters U+FFFD, left out, those in place of invalid bytes among them.
        empty_documents: documents without text (or null), skipped.
        split_documents: documents larger than `max_document_bytes`, yielded in parts.
        skipped_files: number of files in the given folders that have no known format.
        first_skipped: the first of them, at most ten.
    """

    files: int = 0
    documents: int = 0
    text_bytes: int = 0
    damaged: int = 0
    empty_documents: int = 0
    split_documents: int = 0
    skipped_files: int = 0
    first_skipped: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a summary for people, with a line for each kind of fix or skipped item."""
        lines = [
            f"{plural(self.documents, 'document')}, {human_bytes(self.text_bytes)} of text, "
            f"from {plural(self.files, 'file')}"
        ]
        if self.empty_documents:
            lines.append(plural(self.empty_documents, "document") + " without text skipped")
        if self.split_documents:
            lines.append(f"{self.split_documents:,} very large documents split into parts")
        lines += self.fix_notes("document")
        if self.damaged:
            lines.append(f"{plural(self.damaged, 'damaged character')} (U+FFFD) left out")
        if self.skipped_files:
            lines.append(
                f"{self.skipped_files:,} files of no known format skipped, "
                f"the first: {self.first_skipped[0]}"
            )
        return lines


def format_of(path: Path) -> str | None:
    """Return ``"plain"``, ``"jsonl"``, ``"parquet"``, ``"table"`` (csv, tsv) or ``"workbook"`` by
    the file's name; None for any other."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return FORMATS.get(name.suffix.lower())


class Corpus:
    """The documents of files and folders, in order; can be iterated any number of times.

    Plain text (.txt, .text, .md or no suffix) has a blank line between documents, unless
    `document_per_file`. In JSON lines (.jsonl, .ndjson, .json), each object, on a line or in one
    list, holds a document under the key `text_column`; in Parquet (.parquet, .pq), csv (.csv) and
    tsv (.tsv, .tab) each row does, in the column of that name. Each may be compressed as a whole
    (.gz, .zst, .xz). Folders are read recursively, in the order of their sorted paths, and links in
    them are followed; hidden files and files of other formats in them are skipped and counted.

    Args:
        paths: files and folders.
        max_document_bytes: a larger document is split at line ends (a larger line at a space), and
            counted. A pass needs two to three times this memory.
        allow_empty: accept a corpus without any text.
        reading: the options of :class:`~bertine.options.data.CorpusReading`. Columns (by the first
            line of JSON lines) and encodings that are not given are determined for each file.

    Raises:
        BertineError: a path is missing or of no known format, or a folder has no readable file.
            While iterating: a file is damaged, a line is not JSON, a row of a table has the wrong
            number of cells, the text column is missing, ambiguous or not text, or there is no
            document with text at all.
    """

    def __init__(
        self,
        paths: Sequence[Path | str] | Path | str,
        *,
        max_document_bytes: int = 64 << 20,
        allow_empty: bool = False,
        **reading: Any,
    ) -> None:
        if isinstance(paths, str | Path):
            paths = [paths]
        if not paths:
            raise BertineError("no corpus given; name at least one file or folder of text")
        if max_document_bytes < 16:
            raise BertineError(f"max_document_bytes is {max_document_bytes}; give at least 16")
        self.reading = CorpusReading(**reading)
        self.max_document_bytes, self.allow_empty = max_document_bytes, allow_empty
        self.paths = [Path(path) for path in paths]
        self._skipped, self._first_skipped = 0, list[str]()
        self.files = [file for path in self.paths for file in self._expand(path)]
        with os_errors(self.files[0], "looking at the corpus"):
            #: Bytes of all files on disk (compressed), for progress; see `position`.
            self.size_on_disk = sum(os.path.getsize(file) for file in self.files)
        self.stats = self._new_stats()
        self._position = 0

    @property
    def position(self) -> int:
        """The number of bytes, out of `size_on_disk`, that the latest iteration has read."""
        return self._position

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents. `stats` is reset at the start and complete at the end."""
        stats = self.stats = self._new_stats()
        done = self._position = 0
        for path in self.files:
            readers = {"plain": self._plain, "jsonl": self._json_lines, "parquet": self._parquet}
            read = readers.get(format_of(path) or "plain", self._table)
            for raw_text, row, base in read(path, stats):
                self._position = done + base
                if REPLACEMENT in raw_text:  # no model learns to write it
                    stats.damaged += raw_text.count(REPLACEMENT)
                    raw_text = raw_text.replace(REPLACEMENT, "")
                if raw_text.strip() in ("", _END_OF_DOS):
                    stats.empty_documents += 1
                    continue
                stats.count_twice([raw_text])
                stats.documents += 1
                size = len(raw_text) if raw_text.isascii() else len(raw_text.encode())
                stats.text_bytes += size
                yield Document(raw_text, str(path), row)
                del raw_text  # before the next one is read
            stats.files += 1
            with os_errors(path, "reading it"):
                done += os.path.getsize(path)
            self._position = done
        if not stats.documents and not self.allow_empty:
            raise self.no_text()

    def check_options(self) -> None:
        """Refuse options of columns and cells that no file has.

        Raises:
            BertineError: `text_column` is given for plain text only, `quotes` without csv or tsv,
                `sheet` without a workbook, or `encoding` without a file of text.
        """
        kinds = {format_of(file) or "plain" for file in self.files}
        for name, lacking, why in (
            ("text_column", kinds <= {"plain"}, "plain text, without columns"),
            ("quotes", "table" not in kinds, "not csv or tsv, with quoted cells"),
            ("sheet", "workbook" not in kinds, "no workbook with sheets"),
            ("encoding", kinds <= _TYPED, "Parquet or a workbook"),
        ):
            value = getattr(self.reading, name)
            if value is not None and lacking:
                raise BertineError(f"{self.paths[0]}: is {why}; leave out {option(name, value)}")

    def no_text(self) -> BertineError:
        """Return the error for a corpus without documents."""
        names = ", ".join(str(path) for path in self.paths[:3])
        return BertineError(f"{names}: no document with text in it; give a corpus with some text")

    def _new_stats(self) -> CorpusStats:
        return CorpusStats(skipped_files=self._skipped, first_skipped=list(self._first_skipped))

    def _expand(self, path: Path) -> list[Path]:
        with os_errors(path, "looking at the corpus"):
            path.stat()
            if not path.is_dir():
                if format_of(path) is None:
                    raise BertineError(
                        f"{path}: unknown kind of file; give {_KINDS}, optionally with .gz, .zst "
                        "or .xz after it"
                    )
                return [path]
            files: list[Path] = []
            skipped: list[str] = []
            for file in _files_below(path):
                if file.name.startswith(".") or format_of(file) is None or not file.is_file():
                    skipped.append(str(file))
                else:
                    files.append(file)
        if not files:
            raise BertineError(
                f"{path}: no file of text in this folder; give {_KINDS} files, optionally "
                "compressed (.gz, .zst, .xz)"
            )
        self._skipped += len(skipped)
        room = MAX_SKIPPED_NAMED - len(self._first_skipped)
        self._first_skipped += heapq.nsmallest(room, skipped)
        return sorted(files)

    # Each reader yields (text, row, bytes of the file on disk that have been read).

    def _plain(self, path: Path, stats: CorpusStats) -> Iterator[tuple[str, int, int]]:
        with open_text(path, self.reading.encoding) as stream:
            decoder = TextDecoder(path, stats, strict=self.reading.strict, codec=stream.codec)
            documents = blocks(
                stream.reader,
                self.max_document_bytes,
                blank_line_ends=not self.reading.document_per_file,
                path=path,
            )
            for raw, line, part in documents:
                stats.split_documents += part == 1
                # Keep only one copy of a possibly very large document.
                raw = raw.rstrip(b"\r\n")
                text = unix_ends(decoder.decode(raw, line)).strip("\n")
                del raw
                yield text, line, stream.position
                del text

    def _json_lines(self, path: Path, stats: CorpusStats) -> Iterator[tuple[str, int, int]]:
        with open_text(path, self.reading.encoding) as stream:
            decoder = TextDecoder(path, stats, strict=self.reading.strict, codec=stream.codec)
            column = self.reading.text_column
            for number, line in self._json_texts(path, stream, decoder):
                place = f"{path}:{number}"
                values = json_row(line, place, column or "text")
                column = column or choose_text_column(place, list(values), None)
                text = unix_ends(decoder.clean(_text_of(values, column, place), number)).strip("\n")
                del line, values
                for part in self._parts(text, stats):
                    yield part, number, stream.position

    def _json_texts(
        self, path: Path, stream: Stream, decoder: TextDecoder
    ) -> Iterator[tuple[int, str]]:
        """Yield the objects of JSON lines, or of one list, before parsing, with their first line
        numbers."""
        number = 0
        while raw := stream.reader.readline(MAX_JSON_LINE):
            number += 1
            if number == 1:
                raw = text_begin(raw, path)
            one_list = number == 1 and raw.lstrip().startswith(b"[")
            if one_list:
                raw += stream.reader.read(MAX_JSON_BYTES)
            if len(raw) >= (MAX_JSON_BYTES if one_list else MAX_JSON_LINE + raw.endswith(b"\n")):
                what = "list" if one_list else "line"
                raise BertineError(
                    f"{path}:{number}: a {what} of more than {len(raw) >> 20} MiB; write one "
                    "document a line"
                )
            text = unix_ends(decoder.decode(raw, number))
            del raw
            if one_list:
                yield from list_items(text, str(path))
            elif text and not text.isspace():
                yield number, text

    def _table(self, path: Path, stats: CorpusStats) -> Iterator[tuple[str, int, int]]:
        asked, book = self.reading, is_workbook(path)
        with Table(
            path,
            wanted=[] if asked.text_column is None else [asked.text_column],
            quotes=None if book else asked.quotes,
            strict=asked.strict,
            encoding=None if book else asked.encoding,
            sheet=asked.sheet if book else None,
        ) as table:
            column = choose_text_column(table.name, table.columns, asked.text_column)
            log_all(table.stats.remarks)
            rows = ((unix_ends(table.text(row, column)), row.line, table.position) for row in table)
            yield from self._rows(rows, stats)
            stats.invalid_utf8 += table.stats.invalid_utf8
            stats.nul += table.stats.nul
            stats.encoding = table.stats.encoding

    def _parquet(self, path: Path, stats: CorpusStats) -> Iterator[tuple[str, int, int]]:
        column, strict = self.reading.text_column, self.reading.strict
        return self._rows(parquet_texts(path, column, strict=strict, fixes=stats), stats)

    def _rows(
        self, rows: Iterator[tuple[str, int, int]], stats: CorpusStats
    ) -> Iterator[tuple[str, int, int]]:
        for text, row, position in rows:
            for part in self._parts(text.strip("\n"), stats):
                yield part, row, position
            del text

    def _parts(self, text: str, stats: CorpusStats) -> Iterator[str]:
        """Yield `text`, in parts if it exceeds the largest document."""
        if len(text) * 4 <= self.max_document_bytes:  # at most four bytes per character
            yield text
            return
        raw = text.encode()
        if len(raw) <= self.max_document_bytes:
            yield text
            return
        del text
        pieces = blocks(io.BytesIO(raw), self.max_document_bytes, blank_line_ends=False)
        for block, _, part in pieces:
            stats.split_documents += part == 1
            yield block.decode().strip("\n")


def _files_below(top: Path) -> Iterator[Path]:
    """Yield the files in `top` and in its folders that are not hidden. Links to folders are
    followed, and each folder is visited once."""
    seen: set[tuple[int, int]] = set()
    links = [top]
    while links:
        folders = [links.pop(0)]
        while folders:
            folder = folders.pop()
            with os_errors(folder, "looking at the corpus"):
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name)
            for entry in listed:
                path = folder / entry.name
                if not os.path.isdir(path):
                    yield path
                elif not entry.name.startswith("."):
                    # Visited later, so that a folder that is also reached directly keeps its own
                    # path.
                    (links if entry.is_symlink() else folders).append(path)


def _text_of(values: dict[str, Any], column: str, place: str) -> str:
    """Return the text in a line of JSON; "" if it is null."""
    require_columns(place, list(values), [column])
    text = values[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise BertineError(f"{place}: {column!r} is {json_kind(text)}; it must be a text")
    return text
