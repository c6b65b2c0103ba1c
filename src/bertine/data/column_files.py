"""Read column files as in the CoNLL tasks: one word per line, blank lines between sentences.

    -DOCSTART- -X- O O
                            a blank line, or one with only a tab, ends a sentence
    EU NNP I-NP I-ORG
    rejects VBZ I-VP O

Columns are separated by tabs, or else by runs of spaces; the first line with a word determines the
separator and the number of columns. A line that begins with ``#`` and has another number of columns
is a comment (CoNLL-U). The first of CoNLL-U's ten columns numbers the words; lines with numbers
such as ``3-4`` (a token that is read as two words) or ``8.1`` (a word that is not written) are not
words.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.data.entities import OUTSIDE, spelling_of, split_tag
from bertine.data.lines import inner_suffix
from bertine.data.tables import TableRow

#: The first column of a line that begins a document.
DOCUMENT = "-DOCSTART-"

_SPACE = " \t\r"
_SPACES = re.compile(r"[ \t]+")
_COLUMN = re.compile(r"column (\d+)")
#: How CoNLL-U numbers lines that are not words, and its number of columns.
_NO_WORD = re.compile(r"\d+[-.]\d+")
CONLLU = 10
_LEFT_OUT = "(numbered 3-4 or 8.1), left out"
#: Most comments and blank lines before the first word, which are kept until it is read.
_LONGEST_HEAD = 100_000


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a column file: its number from 1 on, its text without the line end, and the cells
    of a word. A "range" is a CoNLL-U line that is not a word."""

    number: int
    text: str
    kind: Literal["word", "blank", "document", "comment", "range"]
    cells: tuple[str, ...] = ()


@dataclass
class ColumnLines:
    """The lines of a column file; iterate once.

    Args:
        name: the file's name, for messages.
        rows: the file as a table of plain text.

    Attributes:
        tabs: whether tabs separate the columns; known after the first word.
        width: number of columns; known after the first word, 0 before.
        comments: number of comment lines so far.
        ranges: number of CoNLL-U lines so far that are not words.
        remarks: further notes for the user.

    Raises:
        BertineError: while iterating: a word has another number of columns than the first one.
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
        # Comments before the first word: only that word shows whether they are comments.
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
                f"{self.name}:{row.line}: {plural(len(cells), 'column')} (separated by {by}), "
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
        """Return notes on the lines that were not read as words, and the remarks."""
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
            f"{self.name}: {plural(count, 'line', one, several)} {what}"
            for count, one, several, what in met
            if count
        ]
        return [*self.remarks, *lines]


def _text(row: TableRow) -> str:
    text: str = row.values["text"]
    return text


def _outside(text: str) -> bool:
    """Return whether a line is between sentences."""
    return not text.strip(_SPACE) or text.startswith(DOCUMENT)


def column_index(lines: ColumnLines, number: int, what: str) -> int:
    """Return the index from 0 of column `number`, counted from 1.

    Raises:
        BertineError: the file has no such column.
    """
    if not 1 <= number <= lines.width:
        raise BertineError(
            f"{lines.name}: has {plural(lines.width, 'column')}, so the {what} cannot be in "
            f"column {number}"
        )
    return number - 1


def column_name(number: int) -> str:
    """Name a column of a column file as in ``bertine.json``: "column 2"."""
    return f"column {number}"


def column_number(name: str | None) -> int | None:
    """Return the number in a :func:`column_name`; None for another name."""
    match = _COLUMN.fullmatch(name or "")
    return int(match[1]) if match else None


def looks_like_columns(head: Iterable[str], suffix: str = "") -> bool:
    """Return whether the first lines of a file are those of a column file, not of a text or a
    table.

    They are if the first one begins a document; or if at least two words all have the same number
    of columns, two or more, and the separator is a tab or the last column holds only tags of
    entities. A file with the `suffix` of tsv is one unless most rows have a cell with a space.
    """
    lines = list(head)
    if lines and lines[0].startswith(DOCUMENT):
        return True
    if suffix in (".tsv", ".tab"):
        cells = [line.split("\t") for line in lines if "\t" in line]
        texts = sum(any(" " in cell.strip() for cell in row) for row in cells)
        return texts <= len(lines) / 2
    words = [line for line in lines if not _outside(line) and not line.startswith("#")]
    if len(words) < 2:
        return False
    tabs = ["\t" in line.strip(" \r\n") for line in words]
    if all(tabs):
        return len({line.count("\t") for line in words}) == 1
    rows = [_SPACES.split(line.strip(_SPACE + "\n")) for line in words]
    last = {row[-1] for row in rows}
    return len(rows[0]) > 1 and len({*map(len, rows)}) == 1 and spelling_of(last) is not None


# Columns of words and tags: those that the user names, else the first and the last.
#
# But a first column of numbers (CoNLL-U, GermEval, UNER) does not hold words, and a last column of
# empty values (``_``, ``-``) does not hold tags. If two columns mark entities of the same types,
# such as nested entities (GermEval) or predictions (conlleval), the first one is the one to learn.
# A note names the chosen columns.

#: Number of sentences that are examined.
LOOKED_AT = 100

_NOTHING = frozenset(("_", "-", ""))
#: More than this share of a text's words is outside entities.
_ENTITIES_OUTSIDE = 0.5
#: Up to this number of different tags is normal in a short file.
_MOST_TAGS = 10
#: The form of word numbers.
_NUMBER = re.compile(r"([0-9]+)[.):]?")
#: The types of chunks (CoNLL-2000), whose column often precedes that of the entities.
_CHUNKS = frozenset(
    ("NP", "VP", "PP", "ADJP", "ADVP", "SBAR", "PRT", "CONJP", "INTJ", "LST", "UCP")
)


def places(
    lines: ColumnLines,
    head: Sequence[Sequence[Line]],
    word: int | None,
    tag: int | None,
    *,
    named: bool,
) -> tuple[int, int]:
    """Return the indices (from 0) of the columns of words and tags.

    Args:
        lines: the file, whose first word is read.
        head: the lines of the first sentences.
        word, tag: the numbers of the columns (from 1); None: not given.
        named: whether the user has named the column of the words.

    Raises:
        BertineError: the file has no such column, or both are the same; or the columns of a CoNLL-U
            file, which has several of tags, are not named.
    """
    word_at = word_place(lines, head, word, named=named)
    conllu = inner_suffix(lines.name) == ".conllu"
    if word is None and tag is None and (conllu or (word_at and lines.width == CONLLU)):
        raise BertineError(
            f"{lines.name}: is CoNLL-U, whose first column holds numbers; name the columns "
            f"({option('word_column', 2)} and {option('tag_column', 4)} for parts of speech)"
        )
    of_tags = _tag_number(head, word_at, lines.width) if tag is None else tag
    tag_at = column_index(lines, of_tags, "tag")
    if word_at == tag_at:
        raise BertineError(
            f"{lines.name}: column {word_at + 1} would be the word and its tag; has the file a "
            f"column of tags? (name it with {option('tag_column')})"
        )
    words, tags = len(_cells(head, word_at)), len(_cells(head, tag_at))
    if word is None and tag is None and tags > max(words, _MOST_TAGS):
        lines.remarks.append(
            f"{lines.name}: column {tag_at + 1} has {tags:,} different tags, more than column "
            f"{word_at + 1} has words ({words:,}); if it holds the words, name the columns "
            f"({option('word_column', tag_at + 1)} and {option('tag_column', word_at + 1)})"
        )
    if of_tags != (tag or lines.width) and not _tags_first(head):
        empty = _cells(head, lines.width - 1).keys() <= _NOTHING
        holds = "no tags" if empty else "the entities inside of others, or predicted ones"
        lines.remarks.append(
            f"{lines.name}: the tags are read from column {of_tags}, since column {lines.width} "
            f"holds {holds}; name another one with {option('tag_column')}"
        )
    return word_at, tag_at


def word_place(
    lines: ColumnLines, head: Sequence[Sequence[Line]], said: int | None, *, named: bool
) -> int:
    """Return the index (from 0) of the column of words, and note it if it differs from `said` or
    else from the first; see :func:`places` for the arguments.

    Raises:
        BertineError: the file has no such column, or it holds only numbers.
    """
    at = column_index(lines, _word_number(head, said, named=named), "word")
    cells = _cells(head, at)
    if not named and lines.width > 2 and cells and all(map(_NUMBER.fullmatch, cells)):
        raise BertineError(
            f"{lines.name}: column {at + 1} holds only numbers, which do not count the words of a "
            f"sentence; name the column of the words with {option('word_column')}, and put a blank "
            "line between sentences"
        )
    said = said or 1
    if at + 1 != said:
        holds = "holds numbers" if said == 1 and not _tags_first(head) else "holds the tags"
        lines.remarks.append(
            f"{lines.name}: column {said} {holds}, so the words are read from column {at + 1}; "
            f"name another one with {option('word_column')}"
        )
    return at


def _word_number(head: Sequence[Sequence[Line]], said: int | None, *, named: bool) -> int:
    """Return the number (from 1) of the column of words."""
    number = said or 1
    if named:
        return number
    if number > 1:
        return 1 if _types(_cells(head, number - 1)) and not _types(_cells(head, 0)) else number
    return 2 if _numbers_words(head) or _tags_first(head) else number


def _tags_first(head: Sequence[Sequence[Line]]) -> bool:
    """Return whether the first column marks entities, and the second does not."""
    types, second = _types(_cells(head, 0)), _cells(head, 1)
    return bool(types) and types != {""} and bool(second) and _types(second) is None


def _numbers_words(head: Sequence[Sequence[Line]]) -> bool:
    """Return whether the first column counts words or holds the number of the sentence, with the
    words in a later column."""
    for block in head:
        result = [_NUMBER.fullmatch(line.cells[0]) for line in block]
        numbers = [int(match[1][:9]) for match in result if match]
        steps = {after - before for before, after in itertools.pairwise(numbers)}
        if len(numbers) < len(result) or not (steps <= {0} or min(steps) > 0):
            return False
    second = _cells(head, 1)
    return any(map(str.isalpha, second)) and _types(second) is None


def _tag_number(head: Sequence[Sequence[Line]], word_at: int, width: int) -> int:
    """Return the number of the column of tags if the user names none."""
    if word_at and _tags_first(head):
        return 1
    columns = [_cells(head, at) for at in range(width)]
    tag_at = width - 1
    while tag_at > word_at + 1 and columns[tag_at].keys() <= _NOTHING:
        tag_at -= 1
    for at in range(tag_at - 1, word_at, -1):
        types, last = _types(columns[at]), _types(columns[tag_at])
        if not types or types == {""} or types <= _CHUNKS:
            continue
        outside = columns[at][OUTSIDE] / columns[at].total()
        # Chunks, which cover most words, are ranked too.
        if not last or types & last or (word_at and outside > _ENTITIES_OUTSIDE):
            tag_at = at
    return tag_at + 1


def _cells(head: Sequence[Sequence[Line]], at: int) -> Counter[str]:
    """Count the values of a column; empty if there is no such column."""
    return Counter(line.cells[at] for block in head for line in block if at < len(line.cells))


def _types(cells: Counter[str]) -> set[str] | None:
    """Return the types of the entities that a column marks; None if it marks none."""
    spelling = spelling_of(cells)
    if spelling is None:
        return None
    return {split_tag(tag)[1] for tag in spelling.tags.values() if tag != OUTSIDE}
