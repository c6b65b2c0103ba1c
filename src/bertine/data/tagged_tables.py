"""Read tagged words and texts with entities from the rows of tables.

A row has a list of words and one of their tags, the same as texts separated by spaces, or a text
and its entities by characters, ``[{"start": 0, "end": 3, "label": "person"}]``: the end is
exclusive, and offsets count the code points of the text as it is. In cells of csv, lists are JSON.

The words of a text are those that a tagger finds in plain text
(:func:`~bertine.data.entities.split_words`), so that it learns from what it will read. An entity
that begins or ends inside a word is learnt with the whole word, and of entities that overlap the
longest. Scores count the entities as they were given, so what tags cannot mark is missed.
"""

from __future__ import annotations

import ast
import contextlib
import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option, text_option
from bertine.core.text import briefly, row_at
from bertine.data.entities import Entity, Sentence, Sentences, encode, split_words
from bertine.data.examples import ENTITIES, refuse_damaged
from bertine.data.lines import first_numbers
from bertine.data.streams import listed, missing_column
from bertine.data.tables import Table, TableRow

#: Usual keys of words, of texts and of tags, tried in this order.
WORD_KEYS = ("words", "tokens")
TEXT_KEYS = ("text", "sentence")
TAG_KEYS = ("tags", "ner_tags", "pos_tags", "labels")
#: An entity, for messages.
_EXAMPLE = '{"start": 0, "end": 3, "label": "person"}'
#: Most characters of a list that Python has written, whose parser needs much memory.
_MOST_PYTHON = 1 << 20
#: Entities that are shown in a note.
_SHOWN = 3


def read_rows(
    table: Table, words_key: str | None, tags_key: str | None, *, given: Sequence[str] = ()
) -> tuple[Sentences, bool]:
    """Read the rows of a table.

    Args:
        table: the open table.
        words_key, tags_key: the columns of words (or texts) and of tags (or entities); None: the
            usual ones. Those that are not `given` by the user are used where they are there.

    Returns:
        The sentences, and whether some have tags as in the file, whose scheme is not known yet.

    Raises:
        BertineError: a column is missing or not known; a row has more or fewer tags than words, an
            empty tag, or an entity that is not in its text; or no row has entities.
    """
    words_key, tags_key = _columns(table, words_key, tags_key, given)
    examples = Sentences(table.name, (words_key,), tags_key, scheme="IOB2")
    names = table.class_names(tags_key)
    texts = _EntityTexts(table.name)
    without: list[int] = []
    tagged = False
    for row in table:
        words: Any = row.values.get(words_key)
        tags: Any = row.values.get(tags_key)
        if words is None and words_key in row.values:
            words = ""
        if isinstance(words, str) and isinstance(tags, str):
            row = _parsed_cells(row, words_key, tags_key)
            words, tags = row.values[words_key], row.values[tags_key]
        if isinstance(words, str) and tags is None:
            if table.strict:
                raise BertineError(f"{row_at(table.name, row.line)}: has no {tags_key!r}")
            without.append(row.line)
        elif isinstance(words, str) and _are_entities(tags):
            examples.items.append(texts.sentence(row.line, words, tags))
        else:
            examples.items.append(_tagged_words(table.name, row, words_key, tags_key, names))
            tagged = True
    if texts.count and table.stats.nul:
        raise BertineError(
            f"{table.name}: has zero characters, which are left out, so that offsets do not fit; "
            "write its texts without them"
        )
    if without and not examples.items:
        raise BertineError(f"{table.name}: no row has {tags_key!r}; an empty list is no entity")
    if without:
        examples.note(
            f"{table.name}: {plural(len(without), 'row', 'has', 'have')} no {tags_key!r} and "
            f"{'was' if len(without) == 1 else 'were'} left out ({first_numbers(without)}); write "
            "an empty list where there is no entity"
        )
    examples.notes.extend(texts.notes())
    examples.unlabelled = len(without)
    return examples, tagged


def _columns(
    table: Table, words_key: str | None, tags_key: str | None, given: Sequence[str]
) -> tuple[str, str]:
    """Choose the columns of words (or texts) and tags (or entities)."""
    for key, name in ((words_key, "text_columns"), (tags_key, "label_column")):
        if key is not None and name in given:
            table.require([key])
    words = [words_key] if words_key in table.columns else []
    tags = [tags_key] if tags_key in table.columns else []
    pairs = [
        *product(words or WORD_KEYS, tags or TAG_KEYS),
        *product(words or TEXT_KEYS, tags or (ENTITIES, *TAG_KEYS)),
    ]
    for pair in pairs:
        if {*pair} <= {*table.columns} and pair[0] != pair[1]:
            return pair
    if read := table.layout.annotations:
        what = "labels, which the task text learns" if read.questions else "no annotated text"
        raise BertineError(f"{table.name}: has no entities for a tagger; it has {what}")
    table.require([key for key in (words_key, tags_key) if key is not None])
    lacking, name = "tags", option("label_column")
    if not words and not {*WORD_KEYS, *TEXT_KEYS} & {*table.columns}:
        lacking, name = "words", text_option()
    lines = f"; of a word a line say {option('format', 'columns')}"
    raise BertineError(
        f"{table.name}: cannot tell which key holds the {lacking}; name it with {name}; a row has "
        f"a list of words and one of tags, or a text and its entities ([{_EXAMPLE}]); the keys "
        f"are {listed(table.columns)}{lines if table.layout.delimiter else ''}"
    )


def _parsed_cells(row: TableRow, words_key: str, tags_key: str) -> TableRow:
    """Return a row whose cells are texts with the lists that they hold, as JSON or Python writes
    them, or with words and tags separated by spaces; an empty cell of tags is None."""
    words, tags = row.values[words_key], _parsed(row.values[tags_key])
    if isinstance(tags, str):
        words, tags = (words.split(), tags.split()) if tags else (words, None)
    elif not _are_entities(tags):
        words = _parsed(words)
    return TableRow(row.line, {**row.values, words_key: words, tags_key: tags})


def _parsed(text: str) -> Any:
    text = text.strip()
    if not text.startswith("["):
        return text
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(text) if len(text) <= _MOST_PYTHON else text
    return text


def _are_entities(value: Any) -> bool:
    """Return whether a value is a list of entities, perhaps an empty one."""
    return isinstance(value, list) and all(isinstance(item, dict | list | tuple) for item in value)


def _tagged_words(
    name: str, row: TableRow, words_key: str, tags_key: str, names: Sequence[str]
) -> Sentence:
    """Return the words of a row with their tags."""
    where = row_at(name, row.line)
    words, marks = json_words(name, row, words_key), _json_tags(name, row, tags_key, names)
    if len(words) != len(marks):
        raise BertineError(
            f"{where}: {plural(len(words), 'word')} ({words_key}), but "
            f"{plural(len(marks), 'tag')} ({tags_key}); each word needs one"
        )
    if not all(marks):
        raise BertineError(f"{where}: the tag of word {marks.index('') + 1} is empty")
    for tag in marks:
        refuse_damaged(tag, where, "tag")
    return Sentence(words, marks, row.line)


def json_words(name: str, row: TableRow, key: str) -> tuple[str, ...]:
    """Return the list of texts under `key`.

    Raises:
        BertineError: there is no such key, or its value is not a list of texts.
    """
    if key not in row.values:
        raise BertineError(missing_column(row_at(name, row.line), list(row.values), key))
    value = row.values[key]
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise BertineError(
            f'{row_at(name, row.line)}: {key!r} must be a list of texts, like ["Ada", "wrote"]'
        )
    return tuple(value)


def _json_tags(name: str, row: TableRow, key: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the tags under `key`: texts, or numbers that are indices of `names`."""
    value = row.values.get(key)
    if isinstance(value, list) and value and all(type(part) is int for part in value):
        if not names:
            raise BertineError(
                f"{row_at(name, row.line)}: {key!r} holds numbers, and nothing says which tags "
                "they stand for; write the tags themselves"
            )
        wrong = [part for part in value if not 0 <= part < len(names)]
        if wrong:
            raise BertineError(
                f"{row_at(name, row.line)}: {key!r} holds {wrong[0]}, but its names are those of 0 "
                f"to {len(names) - 1}"
            )
        return tuple(names[part].strip() for part in value)
    return tuple(tag.strip() for tag in json_words(name, row, key))


class _EntityTexts:
    """The texts of one table, with their entities; what tags cannot mark is counted."""

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0
        #: For each special case the places of the entities.
        self._met: defaultdict[str, list[str]] = defaultdict(list)

    def sentence(self, line: int, text: str, values: Sequence[Any]) -> Sentence:
        """Return the words of a text, tagged by its entities."""
        given: dict[Entity, None] = {}
        for number, value in enumerate(values, 1):
            given[self._entity(line, text, number, value)] = None
        self.count += len(given)
        offsets = tuple(split_words(text))
        begins, ends = [begin for begin, _ in offsets], [end for _, end in offsets]
        taken = [False] * len(offsets)
        learnt: list[Entity] = []
        for entity in sorted(given, key=lambda one: (one.begin - one.end, one.begin)):
            first, after = bisect_right(ends, entity.begin), bisect_left(begins, entity.end)
            shown, words = text[entity.begin : entity.end], text[begins[first] : ends[after - 1]]
            if any(taken[first:after]):
                self._met["overlap"].append(f"{briefly(shown)} ({first_numbers([line])})")
                continue
            if words != shown:
                self._met["inside"].append(
                    f"{briefly(shown)} in {briefly(words)} ({first_numbers([line])})"
                )
            taken[first:after] = [True] * (after - first)
            learnt.append(Entity(first, after, entity.type))
        return Sentence(
            tuple(text[begin:end] for begin, end in offsets),
            tuple(encode(sorted(learnt), len(offsets), "IOB2")),
            line,
            text=text,
            offsets=offsets,
            spans=tuple(given),
        )

    def _entity(self, line: int, text: str, number: int, value: Any) -> Entity:
        """Return one entity in characters, without spaces at its ends.

        Raises:
            BertineError: it has another form, no characters, or some that the text does not have.
        """
        where = f"{row_at(self.name, line)}: entity {number}"
        if isinstance(value, Mapping):
            begin, end = value.get("start"), value.get("end")
            label = value.get("label", value.get("type"))
        else:
            begin, end, label = value if len(value) == 3 else (None, None, None)
        if type(begin) is not int or type(end) is not int or not isinstance(label, str):
            raise BertineError(f"{where} is {briefly(value)}; it must be like {_EXAMPLE}")
        label = label.strip()
        refuse_damaged(label, where, "label")
        shown = f"{where} ({briefly(label)}) goes from {begin} to {end}"
        if not label:
            raise BertineError(f"{where} has an empty label")
        if not 0 <= begin < end <= len(text):
            raise BertineError(
                f"{shown} in a text of {plural(len(text), 'character')}; offsets count Unicode "
                "characters from 0, and the end is the one behind the last"
            )
        inner = text[begin:end].strip()
        if not inner:
            raise BertineError(f"{shown}, where the text has only spaces")
        if len(inner) < end - begin:
            self._met["spaces"].append(f"{briefly(text[begin:end])} ({first_numbers([line])})")
            begin = text.index(inner, begin)
        return Entity(begin, begin + len(inner), label)

    def notes(self) -> list[str]:
        """Return notes on entities that were changed or left out."""
        said = {
            "spaces": "begin or end with spaces, which are left off",
            "inside": "begin or end inside a word; they are learnt with the whole word, and count "
            "as missed in scores",
            "overlap": "overlap a longer one; they are not learnt, and count as missed in scores",
        }
        return [
            f"{self.name}: {len(met)} of {plural(self.count, 'entity')} "
            f"{said[name]}: {', '.join(met[:_SHOWN])}{', …' * (len(met) > _SHOWN)}"
            for name in said
            if (met := self._met[name])
        ]
