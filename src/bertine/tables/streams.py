"""Read files of text: plain or compressed, decoded with every repair counted.

A decompressor here says so when the file ends too early: a corpus cut off by a broken download
must not pass for a shorter corpus.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import shlex
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from bertine.errors import BertineError
from bertine.files import check_regular, os_errors
from bertine.options.names import option

#: Suffixes of compressed files, and what they are called in messages.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".xz": "xz"}

_REPLACEMENT = "\ufffd"


class _ZstdReader(io.RawIOBase):
    """A stream that decompresses zstd frames from `raw`; ``EOFError`` when the last frame is
    incomplete.

    (``ZstdDecompressor.stream_reader`` ends silently on a truncated file.)
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        # Frames written with --long=31 are accepted: a window of 2 GiB at most.
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        self._frame: Any = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            # Small steps, because text that repeats itself may grow a thousandfold.
            compressed = self._raw.read(1 << 14)
            if not compressed:
                if self._frame is not None:
                    raise EOFError("the last zstd frame is incomplete")
                return 0
            parts = []
            while compressed:
                if self._frame is None:
                    self._frame = self._decompressor.decompressobj()
                parts.append(self._frame.decompress(compressed))
                compressed = b""
                if self._frame.eof:
                    compressed = self._frame.unused_data
                    self._frame = None
            self._ready = memoryview(b"".join(parts))
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


@dataclass
class Stream:
    """An open file of the corpus.

    Attributes:
        reader: the decompressed bytes.
        raw: the file on disk, whose position tells how far the reading is.
    """

    reader: BinaryIO
    raw: BinaryIO

    @property
    def position(self) -> int:
        """The bytes of the file on disk that have been read."""
        return self.raw.tell()


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what may go wrong while `path` is read and decompressed into one-line errors."""
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
        BertineError: the file cannot be read, is damaged or is cut off. Raised from the body of
            the ``with``, too, where the bytes are read.
    """
    with reading(path), contextlib.ExitStack() as stack:
        check_regular(path, pipes=True)
        raw = stack.enter_context(open(path, "rb"))
        suffix = path.suffix.lower()
        if suffix == ".gz":
            # An empty file is not an empty gzip file, yet GzipFile takes it for one.
            if os.fstat(raw.fileno()).st_size == 0:
                raise EOFError
            reader = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=raw, mode="rb")))
        elif suffix == ".xz":
            reader = cast(BinaryIO, stack.enter_context(lzma.LZMAFile(raw, "rb")))
        elif suffix == ".zst":
            if os.fstat(raw.fileno()).st_size == 0:
                raise EOFError
            reader = cast(BinaryIO, io.BufferedReader(_ZstdReader(raw), 1 << 17))
        else:
            reader = cast(BinaryIO, raw)
        yield Stream(reader, cast(BinaryIO, raw))


@dataclass
class Repairs:
    """The counts of what was mended in text while it was decoded.

    Attributes:
        invalid_utf8: byte sequences that are not UTF-8 (and lone surrogates from JSON escapes),
            each replaced by U+FFFD.
        nul: NUL characters, removed.
    """

    invalid_utf8: int = 0
    nul: int = 0


@dataclass(frozen=True)
class Place:
    """The place of a text, for messages: a file and the first line (or the row) of the text."""

    path: Path
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return self.at(0)

    def at(self, lines_before: int) -> str:
        """Name the place `lines_before` line ends further on; a row stays a row."""
        if self.unit == "line":
            return f"{self.path}:{self.number + lines_before}"
        return f"{self.path}: {self.unit} {self.number}"


def decode(raw: bytes, place: Place, *, strict: bool, repairs: Repairs) -> str:
    r"""Decode UTF-8 `raw` as text without NULs and with ``\n`` as the only line end.

    Args:
        raw: UTF-8 bytes.
        place: where they stand, for messages.
        strict: refuse invalid UTF-8 and NULs instead of repairing them.
        repairs: counts what is repaired; changed in place.

    Raises:
        BertineError: `strict`, and the text is not clean.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if strict:
            before = raw[: error.start]
            offset = error.start - (before.rfind(b"\n") + 1)
            raise BertineError(
                f"{place.at(before.count(10))}: invalid UTF-8 (byte 0x{raw[error.start]:02x}, "
                f"{offset} bytes into the line); convert the file to UTF-8, or leave out "
                f"{option('strict', True)} "
                "to have such bytes replaced"
            ) from error
        refuse_gb18030(raw, place, place.path)
        text = raw.decode("utf-8", "replace")
        # Characters that already were U+FFFD in the file are not ours to count.
        genuine = raw.count(_REPLACEMENT.encode())
        repairs.invalid_utf8 += text.count(_REPLACEMENT) - genuine
    return _without_nul(text, place, strict, repairs)


def clean(text: str, place: Place, *, strict: bool, repairs: Repairs) -> str:
    r"""Mend, as :func:`decode` does, text out of JSON, whose escapes can make NULs and lone
    surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        if strict:
            raise BertineError(
                f"{place}: a lone surrogate (\\u{ord(text[error.start]):04x}) in the text; repair "
                f"it, or leave out {option('strict', True)} to have it replaced"
            ) from error
        mended = "".join(_REPLACEMENT if "\ud800" <= c <= "\udfff" else c for c in text)
        repairs.invalid_utf8 += mended.count(_REPLACEMENT) - text.count(_REPLACEMENT)
        text = mended
    return _without_nul(text, place, strict, repairs)


def _without_nul(text: str, place: Place, strict: bool, repairs: Repairs) -> str:
    if "\0" in text:
        if strict:
            before = text[: text.index("\0")]
            raise BertineError(
                f"{place.at(before.count(chr(10)))}: a NUL character in the text; remove it, or "
                f"leave out {option('strict', True)} to have NULs removed"
            )
        repairs.nul += text.count("\0")
        text = text.replace("\0", "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def blocks(
    reader: BinaryIO,
    limit: int,
    *,
    blank_line_ends: bool,
    path: Path | None = None,
) -> Iterator[tuple[bytes, int, int]]:
    """Yield documents of plain text as (bytes, number of the first line, which part of the
    document).

    A document ends at a blank line if `blank_line_ends`, else at the end of the file. One that
    would exceed `limit` bytes is given in parts 0, 1, ..., cut at line ends; a line longer than
    `limit` is cut at its last space, or where no space is, between two characters. `path` is the
    file that a byte order mark is looked for in; None where there can be none.
    """
    held: list[bytes] = []
    size = 0
    line = first = 1
    rest = b""  # the end of a line that was cut
    line_begins = True
    part = 0
    while raw := rest if rest.endswith(b"\n") else rest + reader.readline(limit):
        if line == 1 and line_begins and path is not None:
            raw = without_bom(raw, path)
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
    """Join the lines of a document and empty `held`: there is one copy of them."""
    raw = b"".join(held)
    held.clear()
    return raw


def _last_cut(raw: bytes, limit: int) -> int:
    """Find where to cut `raw` so that the first part has at most `limit` bytes and no word or
    character is torn if that can be helped."""
    space = raw.rfind(b" ", limit // 2, limit)
    if space > 0:
        return space + 1
    for back in range(1, 5):
        byte = raw[limit - back]
        if byte & 0xC0 != 0x80:  # the first byte of the last character
            length = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return limit if back >= length else limit - back
    return limit  # not UTF-8


def looks_like_utf16(raw: bytes) -> bool:
    """Tell whether so many bytes are NUL as in UTF-16 without a byte order mark."""
    return len(raw) > 3 and 3 * raw.count(b"\0") > len(raw)


#: Very frequent characters of Chinese. Many characters of a text are among them; few are of those
#: that text in other encodings gives when it is read as GB18030.
_FREQUENT_CHINESE = frozenset(
    "的一是不了在有人我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过后作里"
    "用道行所然家种事成方多经去法学如都同现当没动面起看定天分还进好小部其些主样心前已从无物"
)
#: In a line that is taken for Chinese at least so many Chinese characters, so many frequent ones,
#: and that share of frequent ones.
_FEWEST_CHINESE, _FEWEST_FREQUENT, _FREQUENT_SHARE = 8, 2, 0.12
_PLAIN_FILES = (".csv", ".tsv", ".txt", ".jsonl")


def looks_like_gb18030(raw: bytes) -> bool:
    """Tell whether bytes that are not UTF-8 seem to be Chinese in GB18030 or its parts GBK and
    GB 2312, as Excel writes csv files in China."""
    try:
        chinese = [c for c in raw.decode("gb18030") if "\u4e00" <= c <= "\u9fff"]
    except UnicodeDecodeError:
        return False
    frequent = sum(c in _FREQUENT_CHINESE for c in chinese)
    return (
        len(chinese) >= _FEWEST_CHINESE
        and frequent >= _FEWEST_FREQUENT
        and frequent >= _FREQUENT_SHARE * len(chinese)
    )


def refuse_gb18030(raw: bytes, where: object, file: Path) -> None:
    """Refuse a line that is not UTF-8 but Chinese in GB18030: replaced characters would leave
    nothing of it.

    Raises:
        BertineError: it is.
    """
    if looks_like_gb18030(raw):
        how = ""
        if file.name.endswith(_PLAIN_FILES):
            how = f": iconv -f GB18030 -t UTF-8 {shlex.quote(str(file))} > NEW"
        raise BertineError(
            f"{where}: is not UTF-8 but looks like GB18030 (GBK); convert it to UTF-8{how}"
        )


def without_bom(raw: bytes, path: Path) -> bytes:
    """Return the first line of a file without a UTF-8 byte order mark; UTF-16 and UTF-32 are
    refused."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        raise BertineError(f"{path}: is UTF-16 or UTF-32; convert it to UTF-8 (e.g. with iconv)")
    return raw.removeprefix(b"\xef\xbb\xbf")
