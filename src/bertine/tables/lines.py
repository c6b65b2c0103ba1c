"""The lines of a table: decoded, mended where they are damaged, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from bertine.errors import BertineError
from bertine.tables.streams import looks_like_utf16, reading, refuse_gb18030
from bertine.terminal.console import counted

#: One text, with all its quoted line breaks, never needs more; an unclosed quote soon does.
MAX_LINE_BYTES = 16 * 2**20
#: Blank lines in a table: so many, and two for each row.
_MOST_BLANK_LINES = 100_000
#: So many lines are named where something is counted.
_SHOWN = 10


@dataclass
class TableStats:
    """The counts of what was met and mended while reading.

    Attributes:
        damaged: the lines of rows left out.
        lacking: of optional columns, how many rows of JSON lines have no such key, and the first
            of their lines.
    """

    rows: int = 0
    blank_lines: int = 0
    invalid_utf8: int = 0
    nul_bytes: int = 0
    damaged: list[int] = field(default_factory=list)
    lacking: dict[str, tuple[int, list[int]]] = field(default_factory=dict)

    def lack(self, column: str, line: int) -> None:
        """Count a row without the key `column`."""
        count, lines = self.lacking.get(column, (0, []))
        self.lacking[column] = count + 1, [*lines, line] if count < _SHOWN else lines

    def notes(self, name: str) -> list[str]:
        """Write a line for each thing that a user should know about the table `name`."""
        mended = [
            (self.invalid_utf8, "invalid UTF-8 sequence", "replaced by U+FFFD"),
            (self.nul_bytes, "NUL byte", "removed"),
            (self.blank_lines, "blank line", "skipped"),
            (
                len(self.damaged),
                "damaged row",
                "left out, with more or fewer cells than there are columns "
                f"({first_numbers(self.damaged)})",
            ),
        ]
        return [
            f"{name}: {counted(count, what, 'was', 'were')} {how}"
            for count, what, how in mended
            if count
        ] + [
            f"{name}: {count} of {self.rows} rows have no key {column!r} and are read without it "
            f"({first_numbers(lines, count)})"
            for column, (count, lines) in self.lacking.items()
        ]


def first_numbers(numbers: Sequence[int], count: int | None = None, what: str = "lines") -> str:
    """Name lines for a message: the first of `count`, or of all `numbers`."""
    more = ", …" if (len(numbers) if count is None else count) > _SHOWN else ""
    return f"{what} {', '.join(map(str, numbers[:_SHOWN]))}{more}"


class TableLines:
    """Lines of a binary stream as text, checked and counted. Only ``\\n`` ends a line."""

    def __init__(self, handle: BinaryIO, name: str, strict: bool, stats: TableStats) -> None:
        self._handle, self.name, self._strict, self._stats = handle, name, strict, stats
        self._path = Path(name)
        self.number = 0

    def __iter__(self) -> TableLines:
        return self

    def __next__(self) -> str:
        with reading(self._path):
            raw = self._handle.readline(MAX_LINE_BYTES + 1)
        if not raw:
            raise StopIteration
        self.number += 1
        where = f"{self.name}:{self.number}"
        if len(raw) > MAX_LINE_BYTES:
            raise BertineError(
                f"{where}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB; split it"
            )
        if self.number == 1:
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise BertineError(f"{where}: the file is UTF-16 or UTF-32; save it as UTF-8")
            if looks_like_utf16(raw):
                raise BertineError(
                    f"{where}: many bytes are NUL, as in UTF-16 without a mark; save the file as "
                    "UTF-8"
                )
            raw = raw.removeprefix(b"\xef\xbb\xbf")
            if b"\r" in raw.rstrip(b"\r") and not raw.endswith(b"\n"):
                raise BertineError(
                    f"{where}: the lines end with \\r alone, as on old Macintoshes; save the file "
                    "with \\n"
                )
        if b"\0" in raw:
            if self._strict:
                raise BertineError(f"{where}: NUL byte; remove it, or read without strict")
            self._stats.nul_bytes += raw.count(b"\0")
            raw = raw.replace(b"\0", b"")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if self._strict:
                raise BertineError(
                    f"{where}: invalid UTF-8 at byte {error.start}; mend it, or read without strict"
                ) from error
            refuse_gb18030(raw, where, self._path)
            text = raw.decode("utf-8", errors="replace")
            self._stats.invalid_utf8 += text.count("�") - raw.count("�".encode())
            return text

    def skip_blank(self) -> None:
        """Count a blank line; a file of nothing else would be read for minutes without a sign.

        Raises:
            BertineError: there are too many of them.
        """
        self._stats.blank_lines += 1
        if self._stats.blank_lines > _MOST_BLANK_LINES + 2 * self._stats.rows:
            raise BertineError(
                f"{self.name}: {self._stats.blank_lines:,} lines are blank; remove them (grep .)"
            )
