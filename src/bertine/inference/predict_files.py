"""Answer texts that are given, and the rows of tables; add explanations to the answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertine.core.console import aligned
from bertine.core.errors import BertineError
from bertine.core.names import LEAVE_ONE_OUT, later, option
from bertine.data.examples import Example, Examples, row_texts
from bertine.data.in_memory import InMemoryTable, Source
from bertine.data.lines import TableLayout, named_kind, written_layout
from bertine.data.spans import TEXT_COLUMNS
from bertine.data.tables import TableRow
from bertine.data.writer import TableWriter, is_stream, open_writer
from bertine.inference.answer_files import (
    PredictReport,
    ResumableTable,
    TextReport,
    input_identity,
    open_resumable_table,
)
from bertine.inference.predictor import Predictor
from bertine.inference.rows import (
    CHUNK_CHARACTERS,
    CHUNK_ROWS,
    TaskTable,
    Text,
    TextOrDict,
    checked_texts,
    chunks,
    joined,
    open_task_table,
    several,
    text_progress,
    unused,
)
from bertine.options.inference import PredictOptions
from bertine.tasks.answer import short
from bertine.tasks.base import Task
from bertine.tasks.unknown_text import UnknownText

if TYPE_CHECKING:
    from bertine.inference.explaining.explainer import Explanation
    from bertine.inference.explaining.nearest import NearestExamples, nearest_of
else:
    later(globals(), "inference.explaining.nearest:nearest_of")


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
    from bertine.inference.explaining.words import NoWords

    text = texts[0] if len(texts) == 1 else tuple(texts)
    try:
        result = predictor.explain(text)
    except NoWords:
        return None
    return result if nearest is None else replace(result, nearest=nearest.to(text))


def _nearest(predictor: Predictor, asked: Asked) -> NearestExamples | None:
    options = asked.options
    wanted = options.nearest_examples or options.examples is not None
    return nearest_of(predictor, options, asked.show_progress) if wanted else None


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
    nearest = _nearest(predictor, asked)
    predictor = predictor.over(max(1 if isinstance(text, str) else len(text) for text in texts))
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


# Tables: the answers to their rows, which can be resumed after a stop.


def is_lasting(input: Source, output: Path | str) -> bool:
    """Return whether both are regular files, so that the work can be resumed. A device or a pipe is
    written to directly."""
    if isinstance(input, InMemoryTable) or is_stream(output):
        return False
    return str(input) != "-" and Path(input).is_file()


def predict_table(predictor: Predictor, input: Source, asked: Asked) -> PredictReport:
    """Answer every row of a table of texts.

    Raises:
        BertineError: the table cannot be read, a column is missing, or the answers have no
            probabilities or explanations; the output cannot be written, or not be resumed.
    """
    task = predictor.task
    if asked.details and [*task.output_columns(True)] == [*task.output_columns(False)]:
        raise BertineError(
            f"the task {task.name!r} answers without probabilities; leave out "
            f"{option('all_probabilities', True)}"
        )
    with open_task_table(task, input, asked.options) as opened:
        return answer_table(TablePrediction, predictor, input, opened, asked)


def answer_table(
    kind: type[TablePrediction],
    predictor: Predictor,
    input: Source,
    opened: TaskTable,
    asked: Asked,
) -> PredictReport:
    """Answer every row of an open table."""
    options, output = asked.options, asked.output
    if asked.explained:
        predictor.explainer().check(LEAVE_ONE_OUT)
    nearest = _nearest(predictor, asked)
    table = opened.table
    layout = kind.layout(output, table.layout, options.output_encoding)
    if asked.explained:
        check_explained(layout.kind, output)
    job = kind(predictor.over(opened.columns), opened, asked, nearest)
    columns = job.names if layout.kind != "jsonl" or job.all_in_rows else ()
    writing: AbstractContextManager[TableWriter | ResumableTable]
    if not isinstance(input, InMemoryTable) and is_lasting(input, output):
        identity = partial(job.identity, input, layout)
        writing = open_resumable_table(
            Path(output), layout, columns, identity, resume=options.resume, source=table
        )
    else:
        writing = open_writer(output, layout, columns, source=table)
    bar = text_progress("predict", input, opened.table.layout, show=asked.shows_progress)
    with writing as writer, bar as advance:
        for count in job.run(writer):
            advance(count)
    job.report.notes = opened.notes + job.notes() + opened.table.stats.notes(opened.table.name)
    return job.report


class TablePrediction:
    """The prediction of one table; the counts are kept in `report`.

    Attributes:
        names: the names of the columns that are written.
        all_in_rows: whether rows of JSON have all of them.
    """

    all_in_rows: ClassVar[bool] = True

    def __init__(
        self, predictor: Predictor, opened: TaskTable, asked: Asked, nearest: NearestExamples | None
    ) -> None:
        task, table = predictor.task, opened.table
        self.predictor, self.task, self.table, self.rows = predictor, task, table, opened.rows
        self.columns, self.explained, self.nearest = opened.columns, asked.explained, nearest
        self._flags = {
            flag: unused(flag, table.columns, "predicted_") for flag in ("unknown", "empty")
        }
        self._values: list[Callable[[Any], Any]] = []
        self.report = self._begin(asked.details)
        self.names = [*table.columns, *self.report.columns]

    def _begin(self, details: bool) -> PredictReport:
        """Choose the columns to add; return a report with them."""
        task, table = self.task, self.table
        added_columns = task.output_columns(details)
        self._values = [*added_columns.values()]
        names = [*added_columns, *([EXPLANATION] if self.explained else [])]
        added = [unused(name, table.columns, "predicted_") for name in names]
        unknown = UnknownText(self.predictor.tokenizer)
        return PredictReport(max_length=task.max_length, columns=added, unknown=unknown)

    @staticmethod
    def layout(output: Path | str, layout: TableLayout, encoding: str | None) -> TableLayout:
        """Return the layout of the answers to a table."""
        return written_layout(output, layout, encoding=encoding)

    def notes(self) -> list[str]:
        """Return notes on all answers."""
        return []

    def identity(self, input: Path | str, layout: TableLayout) -> dict[str, Any]:
        """Return everything that the answers depend on."""
        model = self.predictor.fingerprint()
        return {
            "input": input_identity(input),
            # Separate: "auto" measures, and may choose another precision in another run.
            "precision": model.pop("precision"),
            "model": model,
            "setting": [
                layout.kind,
                layout.delimiter,
                layout.quotes,
                [layout.codec, layout.mark, layout.line_end],
                self.names,
                list(self.columns),
                *([] if self.nearest is None else [self.nearest.origin]),
                *([layout.sheet.name] if layout.sheet else []),
            ],
        }

    def run(self, writer: TableWriter | ResumableTable) -> Iterator[int]:
        """Predict and write, from where an earlier process was stopped; yield the number of further
        rows done, those of the earlier process first."""
        unfinished = writer if isinstance(writer, ResumableTable) else None
        rows = iter(self.rows)
        if unfinished is not None and unfinished.rows_done:
            self.report.go_on(unfinished)
            for _ in islice(rows, unfinished.rows_done):
                pass
            yield unfinished.rows_done
        for number, chunk in enumerate(chunks(rows, self._size, CHUNK_CHARACTERS, CHUNK_ROWS)):
            if number and unfinished is not None:
                unfinished.commit(self.report.rows, self.report.counts())
            self._answer(chunk, writer)
            yield len(chunk)

    def _size(self, row: TableRow) -> int:
        return sum(map(len, row_texts(self.table, row, self.columns)))

    def _answer(self, rows: Sequence[TableRow], writer: TableWriter | ResumableTable) -> None:
        """Predict and write one chunk."""
        name, report = self.table.name, self.report
        items = [Example(row_texts(self.table, row, self.columns), line=row.line) for row in rows]
        predictions, features = self.predictor.run(Examples(name, self.columns, None, items))
        for row, prediction in zip(rows, predictions, strict=True):
            values = [None if prediction.empty else value(prediction) for value in self._values]
            if self.explained:
                texts = row_texts(self.table, row, self.columns)
                explanation = explained_or_none(self.predictor, texts, self.nearest)
                values.append(explanation and explanation.to_dict())
            added = dict(zip(report.columns, values, strict=True))
            # Rows of JSON may have other keys; in other tables the report names the lines.
            flags = {self._flags[flag]: value for flag, value in prediction.flags().items()}
            writer.write(joined(name, row, added | flags, self.columns), row)
        lines = [item.line for item in items]
        report.count(len(rows), features, [item.texts for item in items], lines)
        report.abstained += sum(prediction.abstains for prediction in predictions)
        there = [[bool(text.strip()) for text in item.texts] for item in items]
        pairs = zip(lines, predictions, strict=True)
        report.count_empty(line for line, prediction in pairs if prediction.empty)
        report.half_empty += sum(len(texts) == 2 and sum(texts) == 1 for texts in there)
