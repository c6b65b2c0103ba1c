"""The columns of a column file that hold the words and their tags.

Those that a user names; else the first and the last. But a first column of numbers (CoNLL-U,
GermEval, UNER) holds no words; last columns in which nothing stands (``_``, ``-``) hold no tags;
and of two columns that mark entities of the same types, as those inside of others (GermEval) or
predicted ones (conlleval), the first is the one to learn. A note names the columns taken.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.records.columns import CONLLU, ColumnLines, Line, column_index
from bertine.records.entities import OUTSIDE, split_tag
from bertine.records.tag_spellings import spelling_of
from bertine.tables.layout import inner_suffix

#: Sentences that are looked at.
LOOKED_AT = 100

_NOTHING = frozenset(("_", "-", ""))
#: Of the words of a text, more than this share is in no entity.
_ENTITIES_OUTSIDE = 0.5
#: So many tags are not yet more than is usual in a short file.
_MOST_TAGS = 10
#: How words are numbered.
_NUMBER = re.compile(r"([0-9]+)[.):]?")
#: The types of chunks (CoNLL-2000), which often stand in a column before that of the entities.
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
        lines: of the file, of which the first word is read.
        head: the lines of the first sentences.
        word, tag: the numbers of the columns (from 1); None: none is said.
        named: whether the user has named that of the words.

    Raises:
        BertineError: the file has no such column, or both are the same; nobody says which columns
            of a CoNLL-U file are meant, which has several of tags.
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
    """Return the index (from 0) of the column of words, and say it where that is another than the
    one that is `said`, or the first; the arguments are those of :func:`places`.

    Raises:
        BertineError: the file has no such column, or it holds nothing but numbers.
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
    """Tell whether the first column marks entities, and the second does not."""
    types, second = _types(_cells(head, 0)), _cells(head, 1)
    return bool(types) and types != {""} and bool(second) and _types(second) is None


def _numbers_words(head: Sequence[Sequence[Line]]) -> bool:
    """Tell whether the first column counts words, or has the number of the sentence, and words are
    behind it."""
    for block in head:
        found = [_NUMBER.fullmatch(line.cells[0]) for line in block]
        numbers = [int(match[1][:9]) for match in found if match]
        steps = {after - before for before, after in itertools.pairwise(numbers)}
        if len(numbers) < len(found) or not (steps <= {0} or min(steps) > 0):
            return False
    second = _cells(head, 1)
    return any(map(str.isalpha, second)) and _types(second) is None


def _tag_number(head: Sequence[Sequence[Line]], word_at: int, width: int) -> int:
    """Return the number of the column of tags where nobody names it."""
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
        # Chunks, which cover most words, are numbered too.
        if not last or types & last or (word_at and outside > _ENTITIES_OUTSIDE):
            tag_at = at
    return tag_at + 1


def _cells(head: Sequence[Sequence[Line]], at: int) -> Counter[str]:
    """Count what stands in a column; nothing where there is none."""
    return Counter(line.cells[at] for block in head for line in block if at < len(line.cells))


def _types(cells: Counter[str]) -> set[str] | None:
    """Return the types of the entities that a column marks; None where it marks none."""
    spelling = spelling_of(cells)
    if spelling is None:
        return None
    return {split_tag(tag)[1] for tag in spelling.tags.values() if tag != OUTSIDE}
