"""Read sentences of tagged words from column files and tables."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from bertine.core.console import visible_list
from bertine.core.errors import BertineError
from bertine.core.names import option, text_option
from bertine.data.column_files import (
    LOOKED_AT,
    ColumnLines,
    Line,
    column_name,
    column_number,
    looks_like_columns,
    places,
)
from bertine.data.entities import OUTSIDE, Sentence, Sentences, spelling_of, strange_tags, to_iob2
from bertine.data.examples import Splits, as_columns, find_splits, open_table, refuse_damaged
from bertine.data.in_memory import Data, InMemoryTable, Source, reads_again
from bertine.data.lines import LINE_COLUMN, inner_suffix, is_typed
from bertine.data.tables import Table, TableRow
from bertine.data.tagged_tables import read_rows
from bertine.options.data import DEFAULTS, DataConfig

#: Suffixes of column files, in addition to those of tables and texts.
SUFFIXES = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".col")
#: Lines that are read ahead to recognize a column file.
HEAD = 100

#: Column names in a header line, which does not hold a word.
_HEADER = frozenset(
    {
        *("word", "words", "token", "tokens", "text", "lemma", "tag", "tags", "label", "labels"),
        *("ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags", "chunk", "chunk_tag"),
        *("id", "index", "sentence", "sentence_id", "sent_id", "sentence #"),
    }
)
#: A language prefix of a word, as in WikiAnn; and separators of columns elsewhere, after a word.
_PREFIX, _SUFFIX = re.compile(r"^([a-z]{2,3}:)."), re.compile(r".([,;:|])$")
#: Suffixes of files that are no column files.
_TYPED = (".json", ".jsonl", ".ndjson", ".xlsx", ".ods", ".ann", ".parquet")
#: The suffixes of the official CoNLL-2003 files.
_OFFICIAL = {"train": ".train", "validation": ".testa", "test": ".testb"}


@dataclass(frozen=True)
class WordSource:
    """An open file of words or texts: a column file ("columns"), the rows of a table ("rows"), or
    plain text ("text"). `rows` are all of them; iterate once."""

    kind: Literal["columns", "rows", "text"]
    table: Table
    rows: Iterable[TableRow]


@dataclass(frozen=True)
class WordColumns:
    """The places of words and tags: numbers (from 1) in column files, keys or names in tables.

    None means that the place is found: the first and the last column, or the usual keys. `given`
    are the arguments by which the user named them; they must suit the file.
    """

    word_column: int | None = None
    tag_column: int | None = None
    word_key: str | None = None
    tag_key: str | None = None
    given: tuple[str, ...] = ()

    @classmethod
    def trained_with(cls, text_columns: Sequence[str], label_column: str | None) -> WordColumns:
        """Return the places in the training file, which a task records."""
        word = text_columns[0] if text_columns else None
        number, tag = column_number(word), column_number(label_column)
        return cls(
            number, tag, word if number is None else None, label_column if tag is None else None
        )

    def merged(self, other: WordColumns) -> WordColumns:
        """Return these places, with each None replaced from `other`."""
        names = ("word_column", "tag_column", "word_key", "tag_key")
        lacking = {name: getattr(other, name) for name in names if not getattr(self, name)}
        return replace(self, **lacking)

    def require(self, name: str, kind: str) -> None:
        """Refuse names for a column file ("columns"), numbers for the rows of a table ("rows"), and
        both for plain text ("text").

        Raises:
            BertineError: the user has given unsuitable ones; `name` is the file's.
        """
        numbers, names = ("word_column", "tag_column"), ("text_columns", "label_column")
        by_number = f"their numbers by {option('word_column')} and {option('tag_column')}"
        by_name = f"{text_option()} and {option('label_column')}"
        wrong, advice = {
            "columns": (
                names,
                f"a column file, whose columns have no names; give {by_number}, not",
            ),
            "text": (names + numbers, "plain text, which has no columns; leave out"),
            "rows": (numbers, f"not a column file; name its columns by {by_name}, not"),
        }[kind]
        for given in (given for given in self.given if given in wrong):
            said = text_option() if given == "text_columns" else option(given)
            raise BertineError(f"{name}: is {advice} {said}")


def named_columns(config: DataConfig) -> WordColumns:
    """Return the columns that the user has named.

    Raises:
        BertineError: several text columns.
    """
    names = as_columns(config.text_columns)
    if len(names) > 1:
        raise BertineError(
            f"tagging takes one column of words, not {len(names)} ({', '.join(names)})"
        )
    word_key = names[0] if names else None
    places = ("word_column", "tag_column", "text_columns", "label_column")
    given = tuple(name for name in places if getattr(config, name))
    return WordColumns(config.word_column, config.tag_column, word_key, config.label_column, given)


@contextlib.contextmanager
def open_words(path: Source, config: DataConfig) -> Iterator[WordSource]:
    """Open a file of words or texts, and recognize what it is: by the format or the suffix, csv and
    tsv also by their lines, other files by the first ones.

    Raises:
        BertineError: an error of :class:`~bertine.data.tables.Table`.
    """
    format, suffix = config.format, _suffix_of(path)
    by_lines = format in ("columns", "text") or (format is None and suffix in SUFFIXES)
    asked = format is None and suffix not in (*SUFFIXES, *_TYPED) and reads_again(path)
    with contextlib.ExitStack() as stack:
        if by_lines or asked:
            lines = DataConfig.of(config, format="text", quotes=None)
            source = _by_lines(stack.enter_context(open_table(path, lines, ())), suffix)
            if by_lines:
                yield replace(source, kind="text" if format == "text" else "columns")
                return
            if source.kind == "columns":
                yield source
                return
        table = stack.enter_context(open_table(path, config))
        yield _by_lines(table) if table.layout.kind == "text" else WordSource("rows", table, table)


def _suffix_of(path: Source) -> str:
    """Return the suffix of a file's content; that of Parquet for whatever needs no look at its
    lines: tables in memory, folders."""
    if isinstance(path, InMemoryTable) or is_typed(path) or Path(path).is_dir():
        return _TYPED[-1]
    return inner_suffix(path)


def _by_lines(table: Table, suffix: str = "") -> WordSource:
    """Return the lines of a file as those of a column file if the first ones look like it, else as
    plain text."""
    rows = iter(table)
    head = list(islice(rows, HEAD))
    columns = looks_like_columns([row.values[LINE_COLUMN] for row in head], suffix)
    return WordSource("columns" if columns else "text", table, chain(head, rows))


def read_sentences(
    path: Source, config: DataConfig = DEFAULTS, columns: WordColumns | None = None
) -> Sentences:
    """Read a file of tagged words, or of texts with their entities, whole.

    Args:
        path: a column file, plain or compressed; a table; or rows in memory.
        config: its `tag_scheme` is that of the tags (:data:`~bertine.data.entities.SCHEMES`); None:
            detected. Tags of entities are converted to IOB2. Its format is ``"columns"`` or that of
            a table; None: detected from the suffix and the first lines. Not for Parquet.
        columns: the places of words and tags; None: those that `config` names.

    Raises:
        BertineError: an error of :class:`~bertine.data.tables.Table` or of
            :func:`~bertine.data.tagged_tables.read_rows`; a column is missing; a tag is empty or
            not in `scheme`; there is no word.
    """
    columns = columns or named_columns(config)
    with open_words(path, config) as source:
        table = source.table
        if source.kind == "rows":
            columns.require(table.name, source.kind)
            examples, tagged = read_rows(
                table, columns.word_key, columns.tag_key, given=columns.given
            )
        else:
            columns.require(table.name, "columns")
            examples, tagged = _from_columns(table.name, iter(source.rows), columns), True
    examples.notes.extend(table.stats.notes(table.name))
    words = sum(len(item.words) for item in examples.items)
    if not words:
        raise BertineError(f"{examples.source}: has no words")
    empty = sum(not item.words for item in examples.items)
    if empty:
        examples.note(f"{examples.source}: {empty} of {len(examples)} sentences have no words")
    if tagged:
        _unify(examples, config.tag_scheme)
    elif config.tag_scheme:
        raise BertineError(
            f"{examples.source}: has entities by their characters, which are in no scheme of tags; "
            f"leave out {option('tag_scheme')}"
        )
    return examples


def _unify(examples: Sentences, scheme: str | None) -> None:
    """Convert tags of entities to IOB2; note that, and the tags that broke the rules of the
    scheme."""
    sequences = [item.tags or () for item in examples.items]
    tags, examples.scheme, wrong = to_iob2(sequences, scheme, examples.source)
    if examples.scheme == "plain":
        if scheme is None:
            _note_mixed(examples, sequences)
        return
    examples.items = [
        replace(item, tags=tuple(new)) for item, new in zip(examples.items, tags, strict=True)
    ]
    spelling = spelling_of({tag for tags in sequences for tag in tags})
    assert spelling is not None  # plain tags have none
    name = spelling.letters if spelling.letters != "IOBES" else examples.scheme
    spelled = f" in another spelling ({spelling.unusual})" if spelling.unusual else ""
    if name != "IOB2" or spelled:
        examples.note(f"{examples.source}: the tags are {name}{spelled}; they are read as IOB2")
    if wrong:
        examples.note(
            f"{examples.source}: {wrong} of {sum(map(len, tags))} tags do not keep the rules of "
            f"{name}; entities are read as conlleval reads them"
        )


def _note_mixed(examples: Sentences, given: Sequence[Sequence[str]]) -> None:
    """Add a note if all tags are read as plain ones because a few do not fit a scheme of entities,
    or if the plain tags may be meant as entities."""
    counts = Counter(tag for tags in given for tag in tags)
    (outside, most), *others = counts.most_common(2) or [("", 0)]
    if outside.upper() != OUTSIDE or (others and others[0][1] == most):
        outside = ""
    if strange := strange_tags(counts):
        wrong = sum(counts[tag] for tag in strange)
        examples.note(
            f"{examples.source}: {wrong} of {counts.total()} tags mark no entity (such as "
            f"{min(strange, key=lambda tag: (-counts[tag], tag))!r}), so all are taken for plain "
            f"tags; mend them, or name the scheme ({option('tag_scheme')})"
        )
    elif outside or all(map(str.isdigit, counts)):
        what = (
            f"most tags are {outside!r}, but the others" if outside else "the tags are numbers and"
        )
        examples.note(
            f"{examples.source}: {what} mark no entities as B-PER and I-PER do, so each word is "
            "learnt and judged by itself; write entities so if they are meant"
        )


def _from_columns(name: str, rows: Iterator[TableRow], columns: WordColumns) -> Sentences:
    lines = ColumnLines(name, rows)
    sentences = blocks(lines)
    head = list(islice(sentences, LOOKED_AT))
    if len(head) > 1 and all(map(_begins_with_comment, head)):
        lines.remarks.append(
            f"{name}: the first line of every sentence begins with # and is taken for a comment"
        )
        for block, _ in head:
            del block[0]
        later = ((block[_begins_with_comment((block, at)) :], at) for block, at in sentences)
        sentences = (pair for pair in later if pair[0])
        head = [pair for pair in head if pair[0]]
    word_at = tag_at = -1
    if head and all(cell.lower() in _HEADER for cell in head[0][0][0].cells):
        names = head[0][0].pop(0)
        lines.remarks.append(
            f"{name}:{names.number}: is read as a header, not as words "
            f"({visible_list(names.cells)})"
        )
        head = head if head[0][0] else head[1:]
    if head:
        of_words, of_tags = columns.word_column, columns.tag_column
        named = "word_column" in columns.given
        first = [block for block, _ in head]
        word_at, tag_at = places(lines, first, of_words, of_tags, named=named)
    items: list[Sentence] = []
    for block, document in chain(head, sentences):
        for line in block:
            if not line.cells[tag_at]:
                raise BertineError(f"{name}:{line.number}: the tag is empty; every word needs one")
            refuse_damaged(line.cells[tag_at], f"{name}:{line.number}", "tag")
        items.append(
            Sentence(
                tuple(line.cells[word_at] for line in block),
                tuple(line.cells[tag_at] for line in block),
                block[0].number,
                document,
            )
        )
    for affix, where in ((_PREFIX, "begins"), (_SUFFIX, "ends")):
        result = {match and match[1] for item in items for match in map(affix.search, item.words)}
        if len(items) > 1 and len(result) == 1 and (same := result.pop()):
            lines.remarks.append(
                f"{name}: every word {where} with {same!r}, which is read as a part of it; remove "
                "it if it is none"
            )
    examples = Sentences(
        name, (column_name(word_at + 1),), column_name(tag_at + 1), items, word_a_line=True
    )
    examples.notes.extend(lines.notes())
    return examples


def _begins_with_comment(sentence: tuple[list[Line], int | None]) -> bool:
    """Return whether the first line of a sentence begins with ``#``, like comments with as many
    columns as words have (MultiCoNER)."""
    return sentence[0][0].cells[0] == "#"


def blocks(lines: Iterable[Line]) -> Iterator[tuple[list[Line], int | None]]:
    """Yield the word lines of each sentence and the number of its document, which is None before
    the first line that begins a document."""
    block: list[Line] = []
    document: int | None = None
    for line in lines:
        if line.kind == "word":
            block.append(line)
        elif line.kind not in ("comment", "range"):
            if block:
                yield block, document
                block = []
            if line.kind == "document":
                document = 0 if document is None else document + 1
    if block:
        yield block, document


def find_tagged(data: Data) -> Splits:
    """Find the files of a data set: one file is training data; a folder as in
    :func:`~bertine.data.examples.find_splits`, with the suffixes of column files too, or with the
    official names of CoNLL-2003 (``eng.train``, ``eng.testa``, ``eng.testb``).

    Raises:
        BertineError: the path is missing, or it is unclear which of its files are meant.
    """
    if isinstance(data, str | Path) and Path(data).is_dir():
        files_of = {part: sorted(Path(data).glob(f"*{end}")) for part, end in _OFFICIAL.items()}
        if len(files_of["train"]) == 1 and all(len(files) <= 1 for files in files_of.values()):
            return Splits(**{part: files[0] for part, files in files_of.items() if files})
    return find_splits(data, more=SUFFIXES)
