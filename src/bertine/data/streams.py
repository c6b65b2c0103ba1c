"""Read text files, plain or compressed, check their encoding, fix damage and count it.

A decompressor here raises an error if the file ends too early: a corpus truncated by a broken
download must not be accepted as a shorter corpus.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import functools
import gzip
import io
import json
import lzma
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import check_regular, os_errors
from bertine.core.names import option
from bertine.core.text import briefly, row_at
from bertine.data.encodings import (
    ESCAPE,
    FEW,
    FEW_OF_TEXT,
    MARKS,
    REPLACEMENT,
    Fixes,
    find_codec,
    kept_bytes,
    other_encoding,
)

# Required columns of a table, and the messages if they are missing.

#: Most columns; a table with more has another separator, or is not a table.
MOST_COLUMNS = 10_000
#: Most column names in a message, and most characters of each.
_NAMES, _NAME = 30, 60


class MissingColumn(BertineError):
    """The error for a table without a column of that name."""

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message)  # unpickling in another process passes only this
        self.column = column


def ambiguous_column_error(name: str, columns: Sequence[str], what: str, how: str) -> BertineError:
    """Create the error for a table if it is unclear which column holds `what`.

    Args:
        name: the table's name.
        columns: its columns.
        how: the option that names the column.
    """
    return BertineError(
        f"{name}: cannot tell which column holds the {what}; name it with {how}; the columns are "
        f"{listed(columns)}"
    )


def require_columns(name: str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise a :class:`MissingColumn` for the first of `wanted` that is not in `columns`."""
    there = set(columns)
    for column in wanted:
        if column not in there:
            raise MissingColumn(missing_column(name, columns, column), column)


def missing_column(name: str, columns: Sequence[str], column: str) -> str:
    """Write the message for a missing column: it names the nearest column and all existing ones."""
    if any("\ufffd" in known for known in columns[:MOST_COLUMNS]):
        return (
            f"{name}: there is no column {column!r}; characters of the header are damaged "
            f"({listed(columns)}), so correct it"
        )
    near = difflib.get_close_matches(column[:_NAME], columns[:MOST_COLUMNS], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{name}: there is no column {column!r}{hint}; it has {listed(columns)}"


def listed(columns: Sequence[str]) -> str:
    """Write column names for messages, without the rest of very many or very long ones (such as a
    first line that is not a header)."""
    shown = [repr(name if len(name) <= _NAME else name[:_NAME] + "…") for name in columns[:_NAMES]]
    return ", ".join([*shown, *["…"] * (len(columns) > _NAMES)]) or "no columns"


# JSON rows: parse rows of JSON lines or a JSON list, and name their values in messages.


def json_row(line: str, where: str, only: str | None = None) -> dict[str, Any]:
    """Parse a row of JSON lines.

    Args:
        only: the only key that is read; None: any key may be.

    Raises:
        BertineError: it is not JSON, or not an object, or has a duplicate of a key that is read;
            begins with `where`.
    """
    # Hooks cost as much as the rest of the parsing.
    simple = only is not None and line.count(f'"{only}"') < 2
    hook = None if simple else functools.partial(_object, only=only)
    try:
        values = json.loads(line, object_pairs_hook=hook)
    except _KeyTwice as error:
        raise BertineError(f"{where}: {error}; rename or remove one") from error
    except (ValueError, RecursionError) as error:
        raise BertineError(
            f"{where}: not valid JSON ({error}); JSON lines have one whole object on each line"
        ) from error
    if not isinstance(values, dict):
        raise BertineError(
            f"{where}: {json_kind(values)}, but each line, or each item of a list, must be one "
            'object ({"text": ...})'
        )
    return values


#: The beginning of a file that is one list of objects; a text hardly ever begins so.
_LIST = re.compile(r'\s*\[\s*(\{\s*("|$)|$)')
_SPACE = re.compile(r"\s*")


def begins_list(first: str) -> bool:
    """Return whether the first line of a file begins a list of JSON objects."""
    return _LIST.match(first) is not None


def list_items(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Split a JSON list into the texts of its items, each with its first line number.

    Raises:
        BertineError: the list is invalid; names the line.
    """
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0

    def skip(at: int) -> int:
        match = _SPACE.match(text, at)
        return at if match is None else match.end()

    def place(at: int) -> str:
        return f"{name}:{text.count(chr(10), 0, at) + 1}"

    at = skip(at)
    while text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            where = place(error.pos) if isinstance(error, json.JSONDecodeError) else place(at)
            raise BertineError(
                f"{where}: not valid JSON ({error}), in a list of objects"
            ) from error
        yield line, text[at:end]
        at = skip(end)
        if text[at : at + 1] == ",":
            at = skip(at + 1)
            if text[at : at + 1] != "]":
                continue
        elif text[at : at + 1] == "]":
            break
        raise BertineError(
            f"{place(at)}: not valid JSON: between the items of a list stands one comma, and ] "
            "ends it; is the file cut off?"
        )
    if rest := text[at + 1 :].strip():
        raise BertineError(f"{place(skip(at + 1))}: {rest[:20]!r} stands behind the list of JSON")


class _KeyTwice(ValueError):
    """A duplicate key: it is valid JSON, so it is not reported as a bad line."""


def _object(pairs: list[tuple[str, Any]], only: str | None) -> dict[str, Any]:
    """Create a JSON object; refuse a duplicate key, whose first value would be lost silently."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(key for key, _ in pairs if only in (None, key))
        for twice in [key for key, count in counts.items() if count > 1][:1]:
            raise _KeyTwice(f"the key {listed([twice])} is there twice in an object")
    return values


def without_surrogates(text: str) -> str:
    """Replace lone surrogates in `text` by U+FFFD: they are legal in JSON, but neither UTF-8 nor a
    tokenizer accepts them."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def encodable(text: str, errors: str = "strict") -> bool:
    """Return whether a text can be written in UTF-8 with an error handler."""
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def json_kind(value: Any) -> str:
    """Name the JSON type of a value, for messages."""
    names = {dict: "an object", list: "a list", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a text" if isinstance(value, str) else "a number")


#: Suffixes of compressed files, and their names in messages.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".xz": "xz"}

#: The first bytes of binary files that may be named like text files, their kind, and the advice.
_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive, as workbooks (.xlsx) are", "name it .xlsx, or unpack it"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook (.xls)", "name it .xls"),
    (b"PAR1\x15", "Parquet", "name it .parquet"),
    (b"ARROW1\0\0", "an Arrow file", "convert it to Parquet, csv or JSON lines"),
    (b"\x1f\x8b", "compressed with gzip", "add .gz to its name"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "add .zst to its name"),
    (b"\xfd7zXZ\x00", "compressed with xz", "add .xz to its name"),
    (b"BZh91AY&SY", "compressed with bzip2", "unpack it, or compress with gzip"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"Rar!\x1a\x07", "a rar archive", "unpack it"),
    (b"%PDF-", "a PDF", "give its text"),
    (b"{\\rtf", "a document in RTF", "save it as text (UTF-8)"),
    (b"SQLite format 3\0", "a SQLite database", "export the table as csv"),
    (b"\x89HDF", "HDF5", "convert it to Parquet, csv or JSON lines"),
    (b"\x93NUMPY", "an array of NumPy's", "write the texts as csv or JSON lines"),
    (b"\x80\x04\x95", "a pickle", "write the texts as csv or JSON lines"),
    (b"\x89PNG", "a picture", "give text"),
)

#: The name of standard input in messages.
STDIN = "<stdin>"
#: Bytes read at once to detect a file's encoding, and the blocks that are read before its texts.
_BLOCK, _BLOCKS = 1 << 20, 16
#: Characters of a sample before and after the first one beyond ASCII.
_BEFORE, _SAMPLE = 20, 60


class _Blocks(io.RawIOBase):
    """A stream of bytes that come in blocks, which may be empty."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._ready = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._ready = memoryview(block)
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


def _zstd_blocks(raw: BinaryIO) -> Iterator[bytes]:
    """Decompress zstd frames; raises ``EOFError`` if the last one is incomplete.

    (``ZstdDecompressor.stream_reader`` ends silently on a truncated file.)
    """
    # Frames written with --long=31 are accepted: a window of at most 2 GiB.
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame: Any = None
    # Small steps, because repetitive text may expand a thousandfold.
    while compressed := raw.read(1 << 14):
        while compressed:
            frame = frame or decompressor.decompressobj()
            yield frame.decompress(compressed)
            compressed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the last zstd frame is incomplete")


def _utf8_blocks(raw: BinaryIO, codec: str, name: Path | str) -> Iterator[bytes]:
    """Yield a text in another encoding as UTF-8. Bytes that are not of the encoding stay as they
    are: they are not UTF-8 either, and are counted as such."""
    decoder = codecs.getincrementaldecoder(codec)(kept_bytes(codec))
    block = b" "
    while block:
        block = cast(io.BufferedReader, raw).read1(1 << 16)
        try:
            yield decoder.decode(block, final=not block).encode("utf-8", kept_bytes(codec))
        except UnicodeError as error:
            raise BertineError(
                f"{name}: is not {codec}, or is damaged ({error}); name its encoding with "
                f"{option('encoding')}, or write the file again"
            ) from error


@dataclass
class Stream:
    """An open file of the corpus.

    Attributes:
        reader: the decompressed bytes; of a text in UTF-8.
        raw: the file on disk, whose position measures the progress.
        codec: the encoding of a text on disk.
        mark: whether it begins with a byte order mark.
    """

    reader: BinaryIO
    raw: BinaryIO
    codec: str = "utf-8"
    mark: bool = False

    @property
    def position(self) -> int:
        """The number of bytes read from the file on disk."""
        return self.raw.tell()


def refuse_binary(head: bytes, path: Path | str) -> None:
    """Refuse a file that is not text.

    Args:
        head: its first bytes.
        path: for the message.

    Raises:
        BertineError: it is not text; names its kind and the solution.
    """
    for begin, what, how in _BEGINNINGS:
        if head.startswith(begin):
            raise BertineError(f"{path}: is {what}, whatever its name says; {how}")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors in reading and decompressing `path` into errors of one line."""
    kind = COMPRESSIONS.get(path.suffix.lower(), "")
    try:
        with os_errors(path, "reading it"):
            try:
                yield
            except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                raise BertineError(
                    f"{path}: damaged or not {kind} data ({error}); fetch or write the file again"
                ) from error
    except EOFError as error:
        raise BertineError(
            f"{path}: the {kind} data is cut off before its end; fetch or write the file again"
        ) from error


@contextlib.contextmanager
def open_stream(path: Path) -> Iterator[Stream]:
    """Open `path` for reading, decompressing by its suffix (.gz, .zst, .xz).

    Raises:
        BertineError: the file cannot be read, is damaged or is truncated; also raised from the body
            of the ``with``, where the bytes are read.
    """
    with reading(path), contextlib.ExitStack() as stack:
        check_regular(path, pipes=True)
        raw = stack.enter_context(open(path, "rb"))
        suffix = path.suffix.lower()
        if suffix == ".gz":
            # An empty file is not an empty gzip file, but GzipFile accepts it as one.
            if os.fstat(raw.fileno()).st_size == 0:
                raise EOFError
            reader = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=raw, mode="rb")))
        elif suffix == ".xz":
            reader = cast(BinaryIO, stack.enter_context(lzma.LZMAFile(raw, "rb")))
        elif suffix == ".zst":
            if os.fstat(raw.fileno()).st_size == 0:
                raise EOFError
            reader = cast(BinaryIO, io.BufferedReader(_Blocks(_zstd_blocks(raw)), 1 << 17))
        else:
            reader = cast(BinaryIO, raw)
        yield Stream(reader, cast(BinaryIO, raw))


@contextlib.contextmanager
def open_text(path: Path | str, encoding: str | None = None) -> Iterator[Stream]:
    """Open a text file like :func:`open_stream`, or ``-`` for stdin, and read it as UTF-8.

    Args:
        encoding: its encoding; None: UTF-8, that of its byte order mark, or that of its words where
            they leave no doubt, which is noted (not for a pipe).

    Raises:
        BertineError: there is no such encoding; the byte order mark is that of another one.
    """
    codec, _ = find_codec(encoding) if encoding is not None else ("", False)
    with contextlib.ExitStack() as stack:
        if str(path) == "-":
            raw = sys.stdin.buffer
            reader = raw if hasattr(raw, "peek") else io.BufferedReader(cast(io.RawIOBase, raw))
            path, stream = STDIN, Stream(cast(BinaryIO, reader), raw)
        else:
            stream = stack.enter_context(open_stream(Path(path)))
        head = cast(io.BufferedReader, stream.reader).peek(4)
        marked = next((name for name, mark in MARKS.items() if head.startswith(mark)), "")
        if marked and codec and codec[:6] != marked[:6]:
            raise BertineError(
                f"{path}: is {marked} by its byte order mark, not {codec}; leave out "
                f"{option('encoding')}"
            )
        if not (codec or marked) and Path(path).is_file():
            status = os.stat(path)
            codec = _codec_of_words(Path(path), status.st_size, status.st_mtime_ns)
        stream.codec, stream.mark = marked or codec or "utf-8", bool(marked)
        if stream.codec != "utf-8":
            texts = _utf8_blocks(stream.reader, stream.codec, path)
            stream.reader = cast(BinaryIO, io.BufferedReader(_Blocks(texts), 1 << 17))
        yield stream


@functools.lru_cache(maxsize=1 << 12)
def _codec_of_words(path: Path, size: int, changed: int) -> str:
    """Return the encoding of a file without a mark: UTF-8, or the one in which its words are
    without doubt, which is noted. All of a file is considered if its first blocks are not UTF-8;
    `size` and `changed` tell an earlier content from it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_stream(path) as stream:
        for number, block in enumerate(line_blocks(stream.reader)):
            if not number:
                refuse_binary(block, path)
            try:
                decoder.decode(block)
                if b"\0" in block or ESCAPE in block:
                    break
            except UnicodeDecodeError:
                break
            if number == _BLOCKS:
                return "utf-8"
        else:
            return "utf-8"
    finding = other_encoding(file_blocks(path))
    if finding is None or not finding.sure:
        return "utf-8"  # the damage is counted, or refused at its place
    codec = finding.encodings[0].codec
    text = block.decode(codec, "replace")
    beyond = next((at for at, character in enumerate(text) if not character.isascii()), 0)
    start = max(text.rfind("\n", 0, beyond) + 1, beyond - _BEFORE)
    sample = text[start : start + _SAMPLE].partition("\n")[0].strip()
    logger.info(
        f"{path}: is read as {finding} ({briefly(sample)}); if that is wrong, name its encoding "
        f"with {option('encoding')}"
    )
    return codec


def check_encoding(
    path: Path | str,
    where: object,
    blocks: Iterable[bytes] | None = None,
    *,
    readable: bool = True,
) -> None:
    """Refuse a file that is in another encoding than UTF-8, because replacing characters would
    destroy it.

    Args:
        path: the file. A pipe, which can be read only once, is not checked without `blocks`.
        where: the first damaged place, for the message.
        blocks: all of its bytes, in blocks that end at line ends; None: they are read from the
            file.
        readable: whether it can be read in another encoding, which an option names.

    Raises:
        BertineError: it is in another encoding; names it, and how to convert the file.
    """
    if blocks is None:
        if not Path(path).is_file():
            return
        blocks = file_blocks(Path(path))
    finding = other_encoding(blocks)
    if finding is None:
        return
    share = f"{finding.damaged:,} of {finding.beyond:,} characters beyond ASCII"
    if finding.mixed:
        those = f", but look like {finding}" if finding.encodings else ""
        what = (
            f"{share} of the file are not UTF-8{those}; some lines are in another encoding: "
            "convert those to UTF-8"
        )
    elif not finding.encodings:
        what = f"is not UTF-8 ({share} are not), and in no other encoding that is known here"
    else:
        several = " (the one whose words are right)" if len(finding.encodings) > 1 else ""
        how = "convert it to UTF-8"
        if readable:
            how = f"name its encoding{several}: {option('encoding', finding.encodings[0].codec)}"
        what = f"is not UTF-8 but looks like {finding}; {how}"
    raise BertineError(f"{where}: {what}")


def check_named(path: Path | str, where: object, blocks: Iterable[bytes], codec: str) -> None:
    """Refuse a file that is not in the encoding that it is read in, except for a few characters.

    Args:
        path: the file, which may be a pipe.
        where: the first damaged place, for the message.
        blocks: all of its text, as :func:`open_text` reads it.
        codec: the encoding.

    Raises:
        BertineError: it is not; names the encoding that it looks like.
    """
    damaged = characters = 0
    for block in blocks:
        text = block.decode("utf-8", "replace")
        characters += len(text)
        damaged += text.count(REPLACEMENT) - block.count(REPLACEMENT.encode())
    if damaged <= max(FEW, characters * FEW_OF_TEXT):
        return
    hint = ""
    if Path(path).is_file():
        hint = f"; it looks like {other_encoding(file_blocks(Path(path))) or 'UTF-8'}"
    raise BertineError(
        f"{where}: {damaged:,} of {characters:,} characters of the file are not {codec}{hint}; "
        f"name its encoding with {option('encoding')}"
    )


def file_blocks(path: Path, codec: str = "utf-8") -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, as UTF-8 if `codec` is another encoding, in blocks
    that end at line ends."""
    with open_stream(path) if codec == "utf-8" else open_text(path, codec) as stream:
        yield from line_blocks(stream.reader)


def line_blocks(reader: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a stream in blocks that end at line ends, unless a line is very long."""
    while block := reader.read(_BLOCK):
        yield block if block.endswith(b"\n") else block + reader.readline(_BLOCK)


class TextDecoder:
    """A decoder of a file's texts: it refuses a file in another encoding at the first damage, and
    else fixes and counts damage.

    Args:
        path: the file, also for messages.
        fixes: the counts; changed in place.
        strict: refuse invalid UTF-8, NUL bytes and lone surrogates instead of fixing them.
        blocks: returns all bytes of the file, in blocks that end at line ends; None: they are read
            from the file.
        rows: texts are values of rows (Parquet, data in memory), which are numbered instead of
            lines, and a byte that is not UTF-8 may be in them as a lone surrogate.
        codec: the encoding of the file on disk; what is decoded is UTF-8 all the same.

    Attributes:
        damaged: whether any text so far was damaged.
    """

    def __init__(
        self,
        path: Path | str,
        fixes: Fixes,
        *,
        strict: bool,
        blocks: Callable[[], Iterable[bytes]] | None = None,
        rows: bool = False,
        codec: str = "utf-8",
    ) -> None:
        self._path, self._fixes, self._strict, self._codec = path, fixes, strict, codec
        self._blocks, self._rows, self._checked = blocks, rows, False
        self.damaged = False

    def decode(self, raw: bytes, number: int, *, as_read: bool = False) -> str:
        """Decode UTF-8 as text without NUL bytes.

        Args:
            raw: the bytes of a text.
            number: its first line or its row, for messages.
            as_read: keep damage that was counted, for output that repeats the input: bytes that are
                not UTF-8 as lone surrogates, and NUL bytes; :func:`cleaned` fixes both.

        Raises:
            BertineError: the file is in another encoding; or is read strictly, and `raw` is
                damaged.
        """
        for sign in (b"\0", ESCAPE):
            if sign in raw:
                self._check(raw, number, raw.index(sign))
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            place = self._check(raw, number, error.start)
            self.damaged = True
            if self._strict:
                offset = error.start - (raw.rfind(b"\n", 0, error.start) + 1)
                raise BertineError(
                    f"{place}: invalid {self._codec.upper()} (byte 0x{raw[error.start]:02x}, "
                    f"{offset} bytes into the {'text' if self._rows else 'line'}); mend it, or "
                    f"leave out {option('strict', True)} to have such bytes replaced"
                ) from error
            text = raw.decode("utf-8", "replace")
            # Characters that already were U+FFFD in the file are not counted.
            genuine = raw.count(REPLACEMENT.encode())
            self._fixes.invalid_utf8 += text.count(REPLACEMENT) - genuine
            if as_read:
                text = raw.decode("utf-8", "surrogateescape")
        if b"\0" not in raw:
            return text
        without = self._without_nul(text, self._place(raw, number, raw.index(b"\0")))
        return text if as_read else without

    def clean(self, value: Any, number: int) -> Any:
        """Fix a value, also inside lists and objects: JSON escapes can produce NUL bytes and lone
        surrogates. `number` is its line or row, for messages."""
        if isinstance(value, list):
            return [self.clean(inner, number) for inner in value]
        if isinstance(value, dict):
            return {name: self.clean(inner, number) for name, inner in value.items()}
        if not isinstance(value, str):
            return value
        if not encodable(value):
            if self._rows:
                with contextlib.suppress(UnicodeEncodeError):
                    return self.decode(value.encode("utf-8", "surrogateescape"), number)
            fixed = without_surrogates(value)
            if self._strict:
                half = next(a for a, b in zip(value, fixed, strict=True) if a != b)
                raise BertineError(
                    f"{row_at(self._path, number)}: a lone surrogate (\\u{ord(half):04x}) in a "
                    f"text; remove it, or leave out {option('strict', True)} to have it replaced"
                )
            self._fixes.invalid_utf8 += fixed.count(REPLACEMENT) - value.count(REPLACEMENT)
            value = fixed
        return self._without_nul(value, row_at(self._path, number)) if "\0" in value else value

    def _without_nul(self, text: str, place: str) -> str:
        self.damaged = True
        if self._strict:
            raise BertineError(
                f"{place}: a NUL byte in a text; remove it, or leave out "
                f"{option('strict', True)} to have NUL bytes removed"
            )
        self._fixes.nul += text.count("\0")
        return text.replace("\0", "")

    def _place(self, raw: bytes, number: int, at: int) -> str:
        """Name the place of a byte of a text."""
        return row_at(self._path, number if self._rows else number + raw.count(10, 0, at))

    def _check(self, raw: bytes, number: int, at: int) -> str:
        """Check the whole file, unless it is already checked (of a file that can be read only once
        the text alone); return the damaged place."""
        place = self._place(raw, number, at)
        if not self._checked:
            once = self._blocks is None and not Path(self._path).is_file()
            self._checked = not once
            blocks = [raw] if once else None if self._blocks is None else self._blocks()
            if self._codec == "utf-8":
                check_encoding(self._path, place, blocks, readable=not self._rows)
            else:
                blocks = blocks or file_blocks(Path(self._path), self._codec)
                check_named(self._path, place, blocks, self._codec)
                self._fixes.encoding = self._codec.upper()
        return place


def cleaned(text: str) -> str:
    """Fix a text that :class:`TextDecoder` has kept as it was read: replace bytes that are not
    UTF-8 by U+FFFD, and remove NUL bytes."""
    raw = text.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace").replace("\0", "")


def blocks(
    reader: BinaryIO,
    limit: int,
    *,
    blank_line_ends: bool,
    path: Path | None = None,
) -> Iterator[tuple[bytes, int, int]]:
    """Yield documents of plain text as (bytes, number of the first line, number of the part of the
    document).

    A document ends at a blank line if `blank_line_ends`, else at the end of the file. A document of
    more than `limit` bytes is split into parts 0, 1, ..., at line ends; a line longer than `limit`
    is split at its last space or, without a space, between two characters. `path` is the file whose
    byte order mark is checked; None if there can be none.
    """
    held: list[bytes] = []
    size = 0
    line = first = 1
    rest = b""  # the end of a line that was cut
    line_begins = True
    part = 0
    while raw := rest if rest.endswith(b"\n") else rest + reader.readline(limit):
        if line == 1 and line_begins and path is not None:
            raw = text_begin(raw, path)
            if len(raw) < limit:
                refuse_old_ends(raw, f"{path}:1")
        rest = b""
        if len(raw) > limit or (len(raw) == limit and not raw.endswith(b"\n")):
            cut = _last_cut(raw, limit)
            raw, rest = raw[:cut], raw[cut:]
        if blank_line_ends and line_begins and not rest and not raw.strip():
            if held:
                yield _taken(held), first, part
            size, part = 0, 0
        else:
            if held and size + len(raw) > limit:
                yield _taken(held), first, part
                size, part = 0, part + 1
            if not held:
                first = line
            held.append(raw)
            size += len(raw)
        line_begins = raw.endswith(b"\n")
        line += line_begins
    if held:
        yield _taken(held), first, part


def _taken(held: list[bytes]) -> bytes:
    """Join the lines of a document and empty `held`, so that there is only one copy of them."""
    raw = b"".join(held)
    held.clear()
    return raw


def _last_cut(raw: bytes, limit: int) -> int:
    """Find where to cut `raw` so that the first part has at most `limit` bytes and, if possible, no
    word or character is split."""
    space = raw.rfind(b" ", limit // 2, limit)
    if space > 0:
        return space + 1
    for back in range(1, 5):
        byte = raw[limit - back]
        if byte & 0xC0 != 0x80:  # the first byte of the last character
            length = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return limit if back >= length else limit - back
    return limit  # not UTF-8


def refuse_old_ends(first: bytes, where: str) -> None:
    r"""Refuse a file whose `first` line shows that its lines end with ``\r`` alone.

    Raises:
        BertineError: they do; begins with `where`.
    """
    if b"\r" in first.rstrip(b"\r") and not first.endswith(b"\n"):
        raise BertineError(
            f"{where}: the lines end with \\r alone, as on old Macintoshes; save the file with \\n"
        )


def text_begin(raw: bytes, path: Path | str) -> bytes:
    """Remove a UTF-8 byte order mark from the first bytes of a text file.

    Raises:
        BertineError: the mark of UTF-16 or UTF-32; or not text but a workbook, an archive, ….
    """
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BertineError(f"{path}: is UTF-16; convert it to UTF-8")
    refuse_binary(raw, path)
    return raw.removeprefix(codecs.BOM_UTF8)
