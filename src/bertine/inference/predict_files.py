"""Answer texts that are given, and tag the words of files; add explanations to the answers.

Column files get a column, JSON lines keys; plain text and Parquet become JSON lines, or Parquet if
the output is named so.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from bertine.core.console import Report, aligned, plural
from bertine.core.errors import BertineError
from bertine.core.names import option, text_option
from bertine.data.column_files import (
    LOOKED_AT,
    ColumnLines,
    Line,
    looks_like_columns,
    refuse_table,
    word_place,
)
from bertine.data.entities import OUTSIDE, Sentence, Sentences, entities
from bertine.data.in_memory import InMemoryTable, Source
from bertine.data.lines import (
    LINE_COLUMN,
    TableLayout,
    first_numbers,
    inner_suffix,
    named_kind,
    written_layout,
)
from bertine.data.parquet import is_parquet
from bertine.data.spans import TEXT_COLUMNS
from bertine.data.streams import begins_list, json_kind, missing_column
from bertine.data.tables import Table, TableRow
from bertine.data.tagged_sentences import (
    HEAD,
    SUFFIXES,
    WORD_KEYS,
    WordColumns,
    blocks,
    file_format,
    json_words,
    named_columns,
)
from bertine.data.writer import TableWriter, is_stream, open_writer
from bertine.inference.answer_files import TextReport, pace
from bertine.inference.explaining.explainer import Explanation
from bertine.inference.explaining.nearest import NearestExamples, nearest_of
from bertine.inference.explaining.target import LEAVE_ONE_OUT
from bertine.inference.explaining.words import NoWords
from bertine.inference.predictor import Predictor
from bertine.inference.rows import (
    Text,
    TextOrDict,
    checked_texts,
    chunks,
    joined,
    several,
    text_progress,
    unused,
)
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import PredictOptions
from bertine.tasks.answer import json_value, short
from bertine.tasks.base import Task
from bertine.tasks.tagged_words import TaggedText
from bertine.tasks.tagging import Tagging
from bertine.tasks.unknown_text import UnknownText


@dataclass(frozen=True)
class Asked:
    """Where and how :func:`~bertine.inference.predict.predict` answers, whatever it reads.

    Attributes:
        output: a file, or ``-`` for stdout.
        options: the options of the verb; those of other kinds of input have their defaults.
        details: whether all probabilities are written, not only that of the best answer.
        show_progress: on stderr.
    """

    output: Path | str
    options: PredictOptions
    details: bool
    show_progress: bool

    @property
    def explained(self) -> bool:
        """Whether the contribution of each word is added to the answers."""
        return self.options.explain or self.options.nearest_examples > 0

    @property
    def shows_progress(self) -> bool:
        """Whether there is a progress bar: answers on stdout show the progress themselves."""
        return self.show_progress and str(self.output) != "-"


# Explanations: the values that ``predict`` adds to answers.

#: The name of the column of explanations in a file.
EXPLANATION = "explanation"


def check_explained(kind: str, output: Path | str) -> None:
    """Refuse explanations in an `output` of a `kind` that is not JSON lines.

    Raises:
        BertineError: it is another kind.
    """
    if kind != "jsonl":
        raise BertineError(
            f"{output}: explanations are JSON; name the output .jsonl, or leave out "
            f"{option('explain', True)}"
        )


def explained_or_none(
    predictor: Predictor, texts: Sequence[str], nearest: NearestExamples | None = None
) -> Explanation | None:
    """Explain the answer to the texts of an example by leaving words out, with its `nearest`
    examples; None where there is no word."""
    text = texts[0] if len(texts) == 1 else tuple(texts)
    try:
        result = predictor.explain(text)
    except NoWords:
        return None
    return result if nearest is None else replace(result, nearest=nearest.to(text))


@dataclass(repr=False)
class GivenTextsReport(TextReport):
    """The report of predicting given texts.

    Attributes:
        answers: the answers of :meth:`Predictor.predict` to the texts.
    """

    answers: Sequence[Any] = ()

    def lines(self) -> list[str]:
        """Return notes that are not part of the answers: texts that were cut or are empty."""
        return self.warnings()


def grouped(task: Task[Any], texts: Sequence[TextOrDict] | TextOrDict) -> list[TextOrDict]:
    """Group `texts` into examples for `task`.

    Strings are grouped: two for each example of a task over pairs (or question and context), all
    for one example of multiple choice. Anything but a string is an example already.

    Raises:
        BertineError: the number of strings does not fit.
    """
    examples = several(texts)
    if not all(isinstance(text, str) for text in examples):
        return examples
    return task.group([text for text in examples if isinstance(text, str)])


def question_texts(
    task: Task[Any], question: str | None, context: str | None
) -> list[tuple[str, str]]:
    """Return the only example: a question about a context.

    Raises:
        BertineError: one of them is missing, or the task is another.
    """
    if question is None or context is None:
        missing = "question" if question is None else "context"
        raise BertineError(f"{missing} is missing; give question and context together")
    if task.columns_in(TEXT_COLUMNS)[0] != TEXT_COLUMNS:
        raise BertineError(
            f"question and context are for spans, but the task is {task.name!r}; give the texts"
        )
    return [(question, context)]


def predict_texts(
    predictor: Predictor, texts: Sequence[TextOrDict], asked: Asked
) -> GivenTextsReport:
    """Answer `texts` and write the answers: to a terminal as readable lines, elsewhere as rows
    (plain text for single texts, else JSON lines; csv, tsv or Parquet by the name of the output).
    With explanations rows are JSON lines.

    Args:
        predictor: the model.
        texts: one item for each example.
        asked: where and how to answer.

    Raises:
        BertineError: see :meth:`Predictor.predict`; or the output cannot be written.
    """
    nearest = nearest_of(predictor, asked.options, asked.show_progress)
    predictor = predictor.over(max(map(_count, texts)))
    task = predictor.task
    examples = checked_texts(task, texts)
    answers, features = predictor.run(task.examples_of(examples))
    shown = [_parts(text, len(task.text_columns)) for text in examples]
    unknown = UnknownText(predictor.tokenizer)
    report = GivenTextsReport(max_length=task.max_length, unknown=unknown, answers=answers)
    report.count(len(answers), features, shown)
    report.abstained = sum(answer.abstains for answer in answers)
    explanations: list[Explanation | None] | None = None
    if asked.explained:
        predictor.explainer().check(LEAVE_ONE_OUT)
        explanations = [explained_or_none(predictor, item, nearest) for item in shown]
    report.count_empty(number for number, answer in enumerate(answers, 1) if answer.empty)
    if str(asked.output) == "-" and sys.stdout.isatty():
        lines = readable(task, shown, answers, details=asked.details, explanations=explanations)
        print("\n".join(lines))
    else:
        _write(task, shown, answers, asked, explanations)
    return report


def readable(
    task: Task[Any],
    texts: Sequence[Sequence[str]],
    answers: Sequence[Any],
    *,
    details: bool,
    explanations: Sequence[Explanation | None] | None = None,
) -> list[str]:
    """Write `answers` for a person: a line for each, followed by its text if there are several;
    with `details` further lines below, and with `explanations` the contribution of each word."""
    explanations = explanations or [None] * len(answers)
    pairs = zip(texts, answers, strict=True)
    rows = [task.shown(example, answer, details) for example, answer in pairs]
    several = len(answers) > 1
    lines = aligned(
        [
            (*cells, short(example[0])) if several else cells
            for (cells, _), example in zip(rows, texts, strict=True)
        ],
        left=(0, 2),
    )
    shown: list[str] = []
    for line, (_, below), answer, result in zip(lines, rows, answers, explanations, strict=True):
        more = answer.flag_lines() + below
        if result is not None:
            more += result.lines()
        shown += [line, *(f"  {item}" for item in more)]
    return shown


def _write(
    task: Task[Any],
    texts: Sequence[Sequence[str]],
    answers: Sequence[Any],
    asked: Asked,
    explanations: Sequence[Explanation | None] | None,
) -> None:
    """Write the answers as rows.

    Raises:
        BertineError: there are explanations, and the output is not JSON lines.
    """
    rows = [
        task.row_of(example, answer, asked.details)
        for example, answer in zip(texts, answers, strict=True)
    ]
    lists = any(isinstance(value, list) for value in rows[0].values())
    single = len(task.text_columns) == 1 and not lists
    kind = None if is_stream(asked.output) else named_kind(asked.output)
    kind = kind or ("text" if single and explanations is None else "jsonl")
    if explanations is not None:
        check_explained(kind, asked.output)
        for row, result in zip(rows, explanations, strict=True):
            row[EXPLANATION] = result and result.to_dict()
    layout = TableLayout(kind, {"csv": ",", "tsv": "\t"}.get(kind, ""), kind == "csv")
    # The note on an answer is a key of its row of JSON; other tables have no column for it.
    columns = [name for name in rows[0] if name not in answers[0].flags()]
    with open_writer(asked.output, layout, columns) as writer:
        for row in rows:
            writer.write(row)


def _parts(text: Text, columns: int) -> tuple[str, ...]:
    """Return the texts of an example, one for each column."""
    return (text,) if isinstance(text, str) else (*text, *[""] * (columns - len(text)))


def _count(text: TextOrDict) -> int:
    return 1 if isinstance(text, str) else len(text)


#: Words that are tagged at once: enough to sort by length, few enough to hold in memory.
CHUNK_WORDS = 1 << 15
#: Characters of a word and its surroundings, for the estimate where words are not counted yet.
_CHARACTERS = 7


@dataclass(repr=False)
class TagReport(Report):
    """The report of tagging a file.

    Attributes:
        sentences, words: the numbers of tagged sentences and words; a line of plain text or JSON is
            a sentence.
        entities: the number of entities, by type.
        left_out: the number of entities left out because their probability is too low.
        seconds: wall time.
        columns: the names of the added columns or keys.
        notes: notes on what was repaired in the input, or could not be read.
    """

    sentences: int = 0
    words: int = 0
    entities: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    seconds: float = 0.0
    columns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [
            f"tagged {plural(self.sentences, 'sentence')}, {plural(self.words, 'word')}, "
            f"{pace(self.words, self.seconds, 'words')}; added {', '.join(self.columns)}"
        ]
        if self.entities:
            item = ", ".join(f"{kind or 'no type'} {n}" for kind, n in self.entities.most_common())
            lines.append(f"{self.entities.total()} entities: {item}")
        if self.left_out:
            lines.append(f"left out, as their probability is too low: {self.left_out}")
        return lines + self.notes


def tag_file(predictor: Predictor, input: Source, asked: Asked) -> TagReport:
    """Tag every word of a file, in its order, in bounded memory (that of a document, where the
    model reads document context).

    A column file gets its tags as the last column and is otherwise unchanged. JSON lines get
    ``tags`` and ``entities`` for their words, or ``entities`` for their ``text``; rows of Parquet
    become JSON lines with these. A line of plain text becomes a line of JSON, with the text and its
    entities by characters; tags that mark no entities come with their words. All but column files
    may become Parquet, by the suffix of the output.

    Args:
        predictor: the predictor of a tagger.
        input: a file, or ``-`` for stdin; or rows in memory, which are read like Parquet's.
        asked: where and how to answer.

    Raises:
        BertineError: the file cannot be read, or is a table of texts; the words are not in the
            given columns; the output of a column file is Parquet or JSON lines, or that of another
            file a format in which its rows cannot be written.
    """
    options, output, report = asked.options, asked.output, TagReport()
    format, strict = options.format, options.strict
    trained = WordColumns.trained_with(predictor.task.text_columns, None)
    columns = named_columns(DataConfig.of(options, DEFAULTS)).merged(trained)
    typed = is_parquet(input) or isinstance(input, InMemoryTable)
    with contextlib.ExitStack() as stack:
        reading = format if typed else "text"
        table = stack.enter_context(Table(input, format=reading, strict=strict))
        rows = iter(table)
        head = list(islice(rows, HEAD))
        kind = "parquet"
        if not isinstance(input, InMemoryTable) and not typed:
            kind = _kind(input, head, format)
        if kind == "jsonl" and begins_list(head[0].values["text"]) and str(input) != "-":
            table = stack.enter_context(Table(input, format="jsonl", strict=strict))
            head, rows, kind = [], iter(table), "parquet"  # rows with values
        columns.require(table.name, kind)
        if kind == "columns" and named_kind(output) == "jsonl":
            raise BertineError(
                f"{output}: the tags of a column file are one more column of it, not Parquet or "
                "JSON lines; name the output .conll"
            )
        layout = TableLayout("text")
        if kind != "columns":
            layout = written_layout(output, TableLayout("jsonl"), "texts with their tags")
        job = _TaggingJob(predictor, table, columns, asked.details, report)
        with (
            open_writer(output, layout, ()) as writer,
            text_progress("tag", input, show=asked.shows_progress) as advance,
        ):
            run = job.column_file if kind == "columns" else partial(job.lines_of, kind)
            reached = 0
            for line in run(chain(head, rows), writer):
                advance(line - reached)
                reached = line
        report.notes.extend(table.stats.notes(table.name))
    return report


def _kind(input: Path | str, head: Sequence[TableRow], format: str | None) -> str:
    """Return the kind of the file: ``"columns"``, ``"jsonl"`` or ``"text"``."""
    if format == "text":
        return format
    lines = [row.values["text"] for row in head]
    if format is None and str(input) != "-" and inner_suffix(input) in SUFFIXES:
        return "columns"
    kind = file_format(input, format, lines[0])
    if format is None and kind == "columns":
        refuse_table(input, lines, f"{option('format', 'columns')} or text")
        if not looks_like_columns(lines):
            return "text"
    return kind


class _TaggingJob:
    """The tagging of one file; the counts are kept in `report`."""

    def __init__(
        self,
        predictor: Predictor,
        table: Table,
        columns: WordColumns,
        details: bool,
        report: TagReport,
    ) -> None:
        self.predictor, self.task = predictor, cast(Tagging, predictor.task)
        self.table, self.name, self.report = table, table.name, report
        self.columns, self.details = columns, details
        self._met: Counter[str] = Counter()
        self._unknown = UnknownText(predictor.tokenizer)
        self._empty: list[int] = []
        self._documents = False
        self._word_at = -1

    def _run(self, sentences: Sentences) -> list[Any]:
        result, features = self.predictor.run(sentences)
        report = self.report
        lines = [item.line for item in sentences.items]
        self._unknown.count(features, [item.words for item in sentences.items], lines)
        self._empty += [
            line
            for line, entry in zip(lines, result, strict=True)
            if getattr(entry, "empty", False)
        ]
        report.sentences += len(sentences)
        report.words += sum(len(item.words) for item in sentences.items)
        self._met.update(sentences.met)
        if self.task.has_entities:
            for tags in result:
                report.entities.update(entity.type for entity in entities(tags.tags))
                report.left_out += tags.left_out
        return result

    def _finish(self) -> None:
        tokenizer = self.predictor.tokenizer
        self.report.notes.extend(self._unknown.lines_for_answers())
        if self._empty:
            self.report.notes.append(
                f"{len(self._empty)} of {self.report.sentences} texts are empty "
                f"({first_numbers(self._empty)})"
            )
        self.report.notes.extend(self.task.met_notes(self.name, self._met, tokenizer))
        if self.task.document_context and not self._documents:
            self.report.notes.append(
                f"{self.name}: tells no documents, so each sentence is read by itself"
            )

    # Column files

    def column_file(self, rows: Iterable[TableRow], writer: TableWriter) -> Iterator[int]:
        """Tag and write a column file; yield the number of the line that is reached."""
        lines = ColumnLines(self.name, rows)
        waiting: list[Line] = []
        words = 0
        for line in lines:
            self._documents |= line.kind == "document"
            # With document context a document is tagged as a whole, else a part may end at any
            # sentence.
            whole = self.task.document_context and self._documents
            ends = ("document",) if whole else ("document", "blank")
            if words >= CHUNK_WORDS and line.kind in ends:
                self._columns(lines, waiting, writer)
                yield line.number
                waiting, words = [], 0
            waiting.append(line)
            words += line.kind == "word"
        self._columns(lines, waiting, writer)
        names = [
            f"column {lines.width + 1} (the tag)",
            f"column {lines.width + 2} (its probability)",
        ]
        self.report.columns = names[: 1 + self.details]
        self.report.notes.extend(lines.notes())
        self._finish()

    def _columns(self, lines: ColumnLines, waiting: list[Line], writer: TableWriter) -> None:
        groups = list(blocks(waiting))
        if groups:
            if self._word_at < 0:
                said, named = self.columns.word_column, "word_column" in self.columns.given
                first = [block for block, _ in groups[:LOOKED_AT]]
                self._word_at = word_place(lines, first, said, named=named)
            at = self._word_at
            items = [
                Sentence(tuple(line.cells[at] for line in block), None, block[0].number, document)
                for block, document in groups
            ]
            result = self._run(Sentences(self.name, (), None, items, word_a_line=True))
        else:
            result = []
        answers = chain.from_iterable(
            zip(tags.tags, tags.probabilities, strict=True) for tags in result
        )
        by, width = "\t" if lines.tabs else " ", 1 + self.details
        for line in waiting:
            added: list[str] = []
            if line.kind == "word":
                tag, chance = next(answers)
                added = [tag, f"{chance:.6f}"][:width]
            elif line.kind == "document" and len(line.text.split()) == lines.width > 1:
                added = [OUTSIDE, "1.000000"][:width]
            elif line.kind == "range":
                added = ["_"] * width
            text = line.text.rstrip(" \r") if added else line.text
            writer.write({LINE_COLUMN: by.join([text, *added])})

    # JSON lines, Parquet and plain text

    def lines_of(self, kind: str, rows: Iterable[TableRow], writer: TableWriter) -> Iterator[int]:
        """Tag and write a file whose lines are rows; yield the number of the line that is
        reached."""
        table = self.table
        keys: dict[str, str] = {}
        for chunk in chunks(rows, _size, _CHARACTERS * CHUNK_WORDS):
            if kind == "jsonl":
                full = [row for row in chunk if row.values["text"].strip()]
                table.stats.blank_lines += len(chunk) - len(full)
                chunk = [table.json_row(row.line, row.as_read["text"]) for row in full]
            texts: list[str | Sequence[str]] = [
                row.values["text"] if kind == "text" else self._json_text(row.line, row.values)
                for row in chunk
            ]
            lines = [row.line for row in chunk]
            answers = self._run(self.task.examples_of(texts, self.name, lines))
            for row, answer in zip(chunk, answers, strict=True):
                writer.write(self._joined(row, self._answer(answer), keys))
            if lines:
                yield lines[-1]
        self.report.columns = list(keys.values())
        self._finish()

    def _joined(self, row: TableRow, added: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
        """Return the row with the added values, under names that the first row does not have."""
        for name in added:
            keys.setdefault(name, unused(name, row.values, "predicted_"))
        return joined(self.name, row, {keys[name]: value for name, value in added.items()}, ())

    def _answer(self, answer: TaggedText) -> dict[str, Any]:
        """Return the values to add to a row: the entities; the tags where they are requested or are
        all."""
        plain, whole = not self.task.has_entities, answer.text is not None
        names = ["words", "offsets"] if whole and (plain or self.details) else []
        names += ["tags"] if not whole or plain or self.details else []
        names += ["probabilities"] * self.details + ["entities"] * (not plain)
        return {name: json_value(getattr(answer, name)) for name in names} | answer.flags()

    def _json_text(self, line: int, value: dict[str, Any]) -> str | Sequence[str]:
        wanted = self.columns.word_key
        if wanted and "text_columns" in self.columns.given and wanted not in value:
            raise BertineError(missing_column(f"{self.name}:{line}", list(value), wanted))
        key = wanted or next((name for name in WORD_KEYS if name in value), None)
        name = "text" if key is None or key not in value else key
        text = value.get(name)
        if isinstance(text, str):
            return text
        if name != key and name in value:
            raise BertineError(
                f"{self.name}:{line}: {name!r} is {json_kind(text)}, but must be a text"
            )
        if key is None:
            raise BertineError(
                f"{self.name}:{line}: has neither words ({', '.join(WORD_KEYS)}) nor a text; name "
                f"the key with {text_option()}"
            )
        return json_words(self.name, TableRow(line, value), key)


def _size(row: TableRow) -> int:
    """Count the characters of a line, with its end; for a row of Parquet approximately."""
    return 1 + sum(
        len(value) if isinstance(value, str) else _CHARACTERS * len(value)
        for value in row.values.values()
        if isinstance(value, str | list)
    )
