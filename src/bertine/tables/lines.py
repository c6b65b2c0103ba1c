"""The lines of a table: decoded, mended where they are damaged, and counted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.tables.encodings import ESCAPE
from bertine.tables.streams import EncodingCheck, line_blocks, reading, refuse_old_ends, text_begin
from bertine.tables.twice_encoded import twice_encoded, twice_note
from bertine.terminal.console import counted

#: One text, with all its quoted line breaks, never needs more; an unclosed quote soon does.
MAX_LINE_BYTES = 16 * 2**20
#: Python's objects of a JSON text take some ten times its bytes. SQuAD itself has 42 MB.
MAX_JSON_BYTES = 512 * 2**20
#: Blank lines in a table: so many, and two for each row.
_MOST_BLANK_LINES = 100_000
#: Bytes beyond ASCII of a pipe that are kept, to tell its encoding if it turns out to be damaged.
_KEPT = 1 << 14
#: What ends a file of old programs (^Z).
_END_OF_DOS = b"\x1a"
#: So many lines are named where something is counted.
_SHOWN = 10


@dataclass
class TableStats:
    """The counts of what was met and mended while reading.

    Attributes:
        damaged: the lines of rows left out.
        lacking: of optional columns, how many rows of JSON lines have no such key, and the first
            of their lines.
        quoted: whether tsv was read with quotes around cells, as it can be read no other way.
        quoted_cells: cells of tsv that look quoted, and were read with their quotes.
        twice: rows with text that was encoded twice, a word of it, and what it was before.
    """

    rows: int = 0
    blank_lines: int = 0
    invalid_utf8: int = 0
    nul_bytes: int = 0
    damaged: list[int] = field(default_factory=list)
    lacking: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    quoted: bool = False
    quoted_cells: int = 0
    twice: tuple[int, str, str] = (0, "", "")

    def count_twice(self, values: Iterable[Any]) -> None:
        """Count a row if one of its values is a text that was encoded twice."""
        for value in values:
            if isinstance(value, str) and (found := twice_encoded(value)):
                self.twice = (self.twice[0] + 1, *(self.twice[1:] if self.twice[0] else found))
                return

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
        notes = [
            f"{name}: {counted(count, what, 'was', 'were')} {how}"
            for count, what, how in mended
            if count
        ]
        notes += [
            f"{name}: {count} of {self.rows} rows have no key {column!r} and are read without it "
            f"({first_numbers(lines, count)})"
            for column, (count, lines) in self.lacking.items()
        ]
        if self.twice[0]:
            notes.append(f"{name}: {twice_note('row', *self.twice)}")
        if self.quoted:
            notes.append(f'{name}: " quotes cells, as in csv: only so do its rows fit the header')
        elif self.quoted_cells:
            cells = counted(self.quoted_cells, "cell", "looks", "look")
            notes.append(
                f'{name}: {cells} quoted (" around and "" inside), but the quotes are read as a '
                f"part of the text; {option('quotes', True)} takes them off"
            )
        return notes


def first_numbers(numbers: Sequence[int], count: int | None = None, what: str = "lines") -> str:
    """Name lines for a message: the first of `count`, or of all `numbers`."""
    more = ", …" if (len(numbers) if count is None else count) > _SHOWN else ""
    return f"{what} {', '.join(map(str, numbers[:_SHOWN]))}{more}"


class TableLines:
    """Lines of a binary stream as text, checked and counted. Only ``\\n`` ends a line.

    Bytes that are not UTF-8 stay as half surrogate pairs, and NULs as they are, for what is written
    again as it was; :func:`mended` makes a text of either.

    Attributes:
        number: of the line that was given last, from 1 on.
        damaged: whether any line so far was such a one.
    """

    def __init__(self, handle: BinaryIO, name: str, strict: bool, stats: TableStats) -> None:
        self._handle, self.name, self._strict, self._stats = handle, name, strict, stats
        self._path = Path(name)
        self.number = 0
        self.damaged = False
        self._raw = b""
        self._once = not self._path.is_file()  # a pipe
        self._before, self._passed = b"", 0
        self._check = EncodingCheck(self._path, self._rest if self._once else None)

    def __iter__(self) -> TableLines:
        return self

    def __next__(self) -> str:
        with reading(self._path):
            raw = self._handle.readline(MAX_LINE_BYTES + 1)
        if raw in (b"", _END_OF_DOS):
            raise StopIteration
        self.number += 1
        where = f"{self.name}:{self.number}"
        if self.number == 1:
            raw = text_begin(raw, self.name)
        self._raw = raw
        if self.number == 1 and len(raw) > MAX_LINE_BYTES and raw.startswith(b"["):
            return "["  # perhaps a list of JSON, which `whole` reads
        self.check_length()
        if self.number == 1:
            refuse_old_ends(raw, where)
        if self._once:
            if raw.isascii() or len(self._before) >= _KEPT:
                self._passed += len(raw)
            else:
                self._before += raw
        return self._decoded(raw, where)

    def check_length(self) -> None:
        """Refuse a line that is too long."""
        if len(self._raw) > MAX_LINE_BYTES:
            raise BertineError(
                f"{self.name}:{self.number}: the line is longer than {MAX_LINE_BYTES // 2**20} "
                "MiB; split it"
            )

    def whole(self) -> str:
        """Return the first line, which was read already, with all that comes after it: a file that
        holds one value of JSON.

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
        self._stats.invalid_utf8 = self._stats.nul_bytes = 0  # were those of the first line
        return self._decoded(self._raw, self.name)

    def _decoded(self, raw: bytes, where: str) -> str:
        if b"\0" in raw:
            self.damaged = True
            self._check.damaged(where)
            if self._strict:
                raise BertineError(f"{where}: NUL byte; remove it, or read without strict")
            self._stats.nul_bytes += raw.count(b"\0")
        if ESCAPE in raw:
            self._check.damaged(where)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self.damaged = True
            self._check.damaged(where)
            if self._strict:
                raise BertineError(
                    f"{where}: invalid UTF-8 at byte {error.start}; mend it, or read without strict"
                ) from error
            text = raw.decode("utf-8", errors="replace")
            self._stats.invalid_utf8 += text.count("�") - raw.count("�".encode())
            return raw.decode("utf-8", errors="surrogateescape")

    def _rest(self) -> Iterator[bytes]:
        """Give what a pipe has not given yet, behind the lines that were kept of it; it is read on
        from a temporary file."""
        # Of lines that are gone it counts only how long they were.
        for start in range(0, self._passed, MAX_LINE_BYTES):
            yield b" " * min(self._passed - start, MAX_LINE_BYTES)
        yield self._before
        if not self._before.endswith(self._raw):
            yield self._raw
        rest = tempfile.TemporaryFile(prefix="bertine-")  # noqa: SIM115 - as long as the lines
        for block in line_blocks(self._handle):
            rest.write(block)
            yield block
        rest.seek(0)
        self._handle = cast(BinaryIO, rest)

    def count_quoted(self, cells: int) -> None:
        """Count cells that look quoted."""
        self._stats.quoted_cells += cells

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


def mended(text: str) -> str:
    """Return a text of :class:`TableLines` with U+FFFD in the place of bytes that are not UTF-8,
    and without NULs."""
    raw = text.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace").replace("\0", "")
