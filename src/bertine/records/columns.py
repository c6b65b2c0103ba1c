"""Column files, as the CoNLL tasks have them: a word a line, its columns, blank lines between.

    -DOCSTART- -X- O O
                            a blank line ends a sentence; one with only a tab too
    EU NNP I-NP I-ORG
    rejects VBZ I-VP O

Columns are separated by tabs, or else by runs of spaces; the first line of a word says by which,
and how many there are. A line that begins with ``#`` and has another number of columns is a
comment (CoNLL-U). Of CoNLL-U's ten columns the first numbers the words; lines that it numbers
``3-4`` (what is written as one and read as two words) or ``8.1`` (what is not written) are no
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from bertine.errors import BertineError
from bertine.records.tag_spellings import spelling_of
from bertine.tables.layout import inner_suffix
from bertine.tables.table import TableRow
from bertine.terminal.console import counted

#: The word of the line that begins a document.
DOCUMENT = "-DOCSTART-"

_SPACE = " \t\r"
_SPACES = re.compile(r"[ \t]+")
_COLUMN = re.compile(r"column (\d+)")
#: How CoNLL-U numbers lines that are no words, and how many columns it has.
_NO_WORD = re.compile(r"\d+[-.]\d+")
CONLLU = 10
_LEFT_OUT = "(numbered 3-4 or 8.1), left out"
#: Comments and blank lines before the first word, which are held until that is met.
_LONGEST_HEAD = 100_000


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a column file: its number from 1 on, its text without the line's end as it was
    read, and for words the cells. A "range" is a line of CoNLL-U that is no word."""

    number: int
    text: str
    kind: Literal["word", "blank", "document", "comment", "range"]
    cells: tuple[str, ...] = ()


@dataclass
class ColumnLines:
    """The lines of a column file; iterate once.

    Args:
        name: of the file, for messages.
        rows: of the file as a table of plain text.

    Attributes:
        tabs: whether tabs separate the columns; known after the first word.
        width: number of columns; known after the first word, 0 before.
        comments: lines that were taken for comments, so far.
        ranges: lines of CoNLL-U that are no words, so far.
        remarks: what else a user should know.

    Raises:
        BertineError: while iterating: a word with another number of columns than the first.
    """

    name: str
    rows: Iterable[TableRow]
    tabs: bool = False
    width: int = 0
    comments: int = 0
    ranges: int = 0
    remarks: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Line]:
        rows = iter(self.rows)
        waiting: list[TableRow] = []
        # Comments before the first word: only that word tells what they are.
        for row in rows:
            waiting.append(row)
            if len(waiting) > _LONGEST_HEAD:
                raise BertineError(
                    f"{self.name}: none of the first {_LONGEST_HEAD:,} lines has a word"
                )
            if not _outside(_text(row)) and not _text(row).startswith("#"):
                break
        words = [row for row in waiting if not _outside(_text(row))]
        if words:
            self.tabs = "\t" in _text(words[-1]).strip(" \r")
            self.width = len(self._cells(_text(words[-1])))
        for row in chain(waiting, rows):
            yield self._line(row)

    def _line(self, row: TableRow) -> Line:
        text, as_read = _text(row), row.as_read["text"]
        if not text.strip(_SPACE):
            return Line(row.line, as_read, "blank")
        if text.startswith(DOCUMENT):
            return Line(row.line, as_read, "document")
        cells = self._cells(text)
        if len(cells) != self.width:
            if text.startswith("#"):
                self.comments += 1
                return Line(row.line, as_read, "comment")
            by = "tabs" if self.tabs else "spaces"
            raise BertineError(
                f"{self.name}:{row.line}: {counted(len(cells), 'column')} (separated by {by}), "
                f"but the first word of the file has {self.width}"
            )
        if self.tabs and self.width >= CONLLU and _NO_WORD.fullmatch(cells[0]):
            self.ranges += 1
            return Line(row.line, as_read, "range")
        return Line(row.line, as_read, "word", cells)

    def _cells(self, text: str) -> tuple[str, ...]:
        if self.tabs:
            return tuple(cell.strip(" \r") for cell in text.split("\t"))
        return tuple(_SPACES.split(text.strip(_SPACE)))

    def notes(self) -> list[str]:
        """Say what was taken for something else than words, and the remarks."""
        met = [
            (
                self.comments,
                "that begins with # was",
                "that begin with # were",
                "taken for comments",
            ),
            (self.ranges, "of CoNLL-U is not a word", "of CoNLL-U are not words", _LEFT_OUT),
        ]
        lines = [
            f"{self.name}: {counted(count, 'line', one, several)} {what}"
            for count, one, several, what in met
            if count
        ]
        return [*self.remarks, *lines]


def _text(row: TableRow) -> str:
    text: str = row.values["text"]
    return text


def _outside(text: str) -> bool:
    """Tell whether a line is between sentences."""
    return not text.strip(_SPACE) or text.startswith(DOCUMENT)


def column_index(lines: ColumnLines, number: int, what: str) -> int:
    """Return the index from 0 of column `number`, counted from 1.

    Raises:
        BertineError: the file has no such column.
    """
    if not 1 <= number <= lines.width:
        raise BertineError(
            f"{lines.name}: has {counted(lines.width, 'column')}, so the {what} cannot be in "
            f"column {number}"
        )
    return number - 1


def column_name(number: int) -> str:
    """Name a column of a column file as in ``bertine.json``: "column 2"."""
    return f"column {number}"


def column_number(name: str | None) -> int | None:
    """Undo :func:`column_name`; None for another name."""
    match = _COLUMN.fullmatch(name or "")
    return int(match[1]) if match else None


def looks_like_columns(head: Iterable[str]) -> bool:
    """Tell whether the first lines of a file are those of a column file, and not of a text.

    They are where the first one begins a document; or where at least two words all have the same
    number of columns, two or more, and tabs separate them or the last column holds only tags of
    entities.
    """
    lines = list(head)
    if lines and lines[0].startswith(DOCUMENT):
        return True
    words = [line for line in lines if not _outside(line) and not line.startswith("#")]
    if len(words) < 2:
        return False
    tabs = ["\t" in line.strip(" \r\n") for line in words]
    if all(tabs):
        return len({line.count("\t") for line in words}) == 1
    rows = [_SPACES.split(line.strip(_SPACE + "\n")) for line in words]
    last = {row[-1] for row in rows}
    return len(rows[0]) > 1 and len({*map(len, rows)}) == 1 and spelling_of(last) is not None


def refuse_table(path: str | Path, lines: Sequence[str], how: str) -> None:
    """Refuse csv and tsv, by the name of the file, that its first `lines` do not show to be column
    files: csv that does not look like one, tsv of which most rows have a cell with a space in it.

    Args:
        how: the option by which it can be read all the same, for the message.

    Raises:
        BertineError: it is one.
    """
    suffix = inner_suffix(path)
    rows = [line.split("\t") for line in lines if "\t" in line]
    texts = sum(any(" " in cell.strip() for cell in row) for row in rows)
    if (suffix == ".csv" and not looks_like_columns(lines)) or (
        suffix in (".tsv", ".tab") and texts > len(lines) / 2
    ):
        raise BertineError(
            f"{path}: is a table of texts by its name ({suffix}), but words are read from column "
            f"files (one on each line), JSON lines or Parquet; write one of those, or say what it "
            f"is ({how})"
        )
