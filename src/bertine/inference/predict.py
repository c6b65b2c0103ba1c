"""Predict answers for a file of texts, or for a file in SQuAD's format: ``predict``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

from bertine.core.console import logger, plural, progress, quietly, visible_list
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, write_text
from bertine.core.names import option
from bertine.data.examples import Example, Examples, row_texts
from bertine.data.in_memory import InMemoryTable, Source, TableLike, as_source
from bertine.data.lines import TableLayout, written_layout
from bertine.data.parquet import is_parquet
from bertine.data.squad import load_squad, read_squad
from bertine.data.tables import TableRow
from bertine.data.writer import (
    AS_READ,
    TableWriter,
    check_output,
    is_stream,
    json_text,
    open_writer,
)
from bertine.inference.answer_files import (
    ResumableTable,
    TextReport,
    input_identity,
    open_resumable_table,
    pace,
)
from bertine.inference.explaining.nearest import NearestExamples, nearest_of
from bertine.inference.explaining.target import LEAVE_ONE_OUT
from bertine.inference.predict_files import (
    EXPLANATION,
    Asked,
    GivenTextsReport,
    TagReport,
    check_explained,
    explained_or_none,
    grouped,
    predict_texts,
    question_texts,
    tag_file,
)
from bertine.inference.predictor import Predictor
from bertine.inference.rows import (
    CHUNK_CHARACTERS,
    CHUNK_ROWS,
    TaskTable,
    TextOrDict,
    bytes_to_come,
    chunks,
    joined,
    open_task_table,
    text_progress,
    unmeasured,
    unused,
)
from bertine.options.inference import PredictOptions
from bertine.options.verbs import takes_options
from bertine.tasks.spans import SpanExtraction, n_best_values
from bertine.tasks.unknown_text import UnknownText

# SQuAD: answers in the format of the official scorers.

#: Questions are answered in chunks, so that the scores of few windows are in memory at once.
CHUNK_QUESTIONS = 2048


@dataclass(repr=False)
class SquadPredictReport(TextReport):
    """The report of answering a file in SQuAD's format.

    Attributes:
        files: the files that were written.
        silent: the number of questions without an answer.
        inputs: the number of windows of all contexts together.
    """

    files: tuple[str, ...] = ()
    silent: int = 0
    inputs: int = 0

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        line = f"answered {plural(self.rows, 'question')} {pace(self.rows, self.seconds)}"
        line += f" from {plural(self.inputs, 'window')}"
        if self.silent:
            line += f"; {self.silent} of them with no answer"
        return [line, *self.warnings(), *(f"written: {name}" for name in self.files)]


def predict_squad(
    predictor: Predictor, input: Path | str, asked: Asked, content: dict[str, Any]
) -> SquadPredictReport:
    """Answer all questions of a file in SQuAD's format and write ``{"<id>": "<answer>", …}``, where
    "" means that there is no answer.

    Where the model may give no answer, the null odds of each question, by which its threshold
    decides, are written to a second file (``answers.null_odds.json`` for ``answers.json``), which
    the official script takes as ``--na-prob-file``. All files are written at the end, each
    completely. With stdout, a pipe or a device there is no second file. With all probabilities the
    20 best answers of each question are written to a further file (``answers.nbest.json``).

    Args:
        predictor: the predictor of a model for spans.
        input: the file, for messages.
        asked: where and how to answer.
        content: the content of the file.

    Raises:
        BertineError: the file is not in the format; the n best answers are requested without a
            file; `output` is a folder, or named as a compressed file or as Parquet.
    """
    task, output, n_best = cast(SpanExtraction, predictor.task), asked.output, asked.details
    stdout = str(output) == "-"
    if not stdout:
        check_output(output)
        if is_parquet(output):
            raise BertineError(
                f"{output}: answers to a file in SQuAD's format are one JSON object, not Parquet; "
                "name the output .json"
            )
    # There is no further file with a device or a pipe.
    stream = is_stream(output)
    if stream and n_best:
        raise BertineError(
            "the n best answers go to a file beside that of the answers; name one with output "
            "(--output FILE)"
        )
    examples = read_squad(input, content, answers=False, strict=asked.options.strict)
    answers: dict[str, str] = {}
    odds: dict[str, float] = {}
    best: dict[str, list[dict[str, Any]]] = {}
    report = SquadPredictReport(
        notes=examples.notes,
        max_length=task.limits.max_question_length,
        cut_texts="questions",
        unknown=UnknownText(predictor.tokenizer),
    )
    with progress(show=asked.shows_progress) as bar:
        job = bar.add_task("predict", total=len(examples))
        for begin in range(0, len(examples), CHUNK_QUESTIONS):
            part = examples.replaced(examples.items[begin : begin + CHUNK_QUESTIONS])
            predictions, features = predictor.run(part)
            for item, prediction in zip(part.items, predictions, strict=True):
                answers[item.id] = "" if prediction.abstains else prediction.answer
                report.abstained += prediction.abstains
                report.silent += not answers[item.id]
                if prediction.null_odds is not None:
                    odds[item.id] = prediction.null_odds
                if n_best:
                    best[item.id] = n_best_values(prediction)
            texts, lines = zip(*((item.texts, item.line) for item in part.items), strict=True)
            report.count(len(part), features, texts, lines)
            report.inputs += len(features)
            bar.advance(job, len(part))
    if stdout:
        sys.stdout.write(_json(answers))
        sys.stdout.flush()
    elif stream:
        with os_errors(output, "writing it"):
            Path(output).write_text(_json(answers), encoding="utf-8")
        report.files = (str(output),)
    else:
        path = Path(output)
        written: dict[Path, Any] = {path: answers}
        if n_best:
            written[path.with_name(f"{path.stem}.nbest.json")] = best
        if odds:
            written[path.with_name(f"{path.stem}.null_odds.json")] = odds
        for file, value in written.items():
            write_text(file, _json(value))
        report.files = tuple(map(str, written))
    return report


def _json(value: Any) -> str:
    return json_text(value, indent=2) + "\n"


# ``predict``: answers for texts or tables.

#: The counts of a report that a process takes over from an earlier one.
_COUNTS = ("rows", "cut", "pieces_lost", "empty", "half_empty", "abstained")
#: Columns that are named in the report; of many labels there are thousands.
_SHOWN = 20


@dataclass(repr=False)
class PredictReport(TextReport):
    """The report of predicting a file.

    Attributes:
        columns: the names of the columns that were added.
        rows_before: the part of `rows` that an earlier process has answered.
    """

    columns: list[str] = field(default_factory=list)
    rows_before: int = 0

    def counts(self) -> dict[str, int]:
        """Return the counts so far, for a process that continues."""
        unknown = {} if self.unknown is None else self.unknown.counts()
        return {name: getattr(self, name) for name in _COUNTS} | unknown

    def go_on(self, table: ResumableTable) -> None:
        """Add the counts of an earlier process."""
        for name in _COUNTS:
            setattr(self, name, table.counts.get(name, 0))
        if self.unknown is not None:
            self.unknown.go_on(table.counts)
        self.rows_before = table.rows_done

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        rows = self.rows - self.rows_before
        line = f"predicted {plural(rows, 'row')} {pace(rows, self.seconds)}; added "
        more = ", …" * (len(self.columns) > _SHOWN)
        lines = [line + visible_list(self.columns[:_SHOWN]) + more]
        if self.rows_before:
            there = plural(self.rows_before, "row", "that was", "that were")
            lines.append(f"went on after {there} there; now {self.rows}")
        return lines + self.warnings()


@takes_options()
def predict(
    model: Predictor | Path | str,
    input: Path | str | TableLike | None = None,
    output: Path | str = "-",
    *,
    texts: Sequence[TextOrDict] | TextOrDict | None = None,
    question: str | None = None,
    context: str | None = None,
    all_probabilities: bool = False,
    show_progress: bool = True,
    options: PredictOptions,
) -> PredictReport | SquadPredictReport | TagReport | GivenTextsReport | TableLike:
    """Predict every row of a table, in its order and its format, in bounded memory; or a few
    `texts`, whose answers a terminal shows in readable lines.

    The output is the input with the task's columns (``label``, ``probability``) added; a name that
    the input has already gets ``predicted_`` before it. Plain text becomes lines of label, tab,
    probability, tab, text. For Parquet the answers are JSON lines; an output named ``.jsonl`` or
    ``.parquet`` has that format for any input, and one named ``.csv`` where the input is tsv or
    plain text. For spans, a file in SQuAD's format becomes the official object of answers by id;
    see :func:`~bertine.inference.predict.predict_squad`. The output of a tagger is described at
    :func:`~bertine.inference.predict_files.tag_file`. For a table in memory without an output the
    answered rows are returned.

    Args:
        model: a fine-tuned model directory, or a loaded one.
        input: a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin; or a table
            in memory, as for `finetune`.
        output: a file, written completely or not at all; or ``-`` for stdout, or for a table in
            memory to return the rows.
        texts: texts to answer in place of a file: one or several. For a model of pairs two strings
            are one example, for multiple choice all of them: the given text, then the choices.
        question, context: for spans, in place of a file: one question about one text.
        all_probabilities: also add ``probability_<label>`` for each label; for spans ``n_best``.
        show_progress: on stderr, unless the answers go to stdout and show it themselves.
        options: the options described below; a loaded model keeps its precision and device. On a
            CPU ``"auto"`` is fp32 for a page of text or less, as trying others would take longer.

    Returns:
        The counts of the written rows. For a table in memory without an output the rows with their
        answers: for a pandas frame the frame with columns added, its index kept; for other tables a
        list of dictionaries.

    Raises:
        BertineError: no such model; neither a file nor texts, or both; the table cannot be read; a
            column is missing; an option does not apply to the task or the file; the output has the
            suffix of a format in which the rows cannot be written; there is nothing to resume, or
            the rows left belong to another input, model or setting.
    """
    asked = Asked(output, options, all_probabilities, show_progress)
    if texts is None and question is None and context is None:
        if input is None:
            raise BertineError("nothing to predict; give texts or an input file")
        source = as_source(input, "input")
        if isinstance(source, InMemoryTable) and str(output) == "-":
            return _answered_rows(
                input, source, lambda file: _answer_file(model, source, replace(asked, output=file))
            )
        return _answer_file(model, source, asked)
    file = _named_file(texts)
    if input is not None:
        raise BertineError(f"texts are given, so leave out {option('input')}")
    hint = f"to read the file: {option('input', file)}"
    problem = f"{file} is given as a text; {hint}" if file else "texts are given"
    options.refuse_others("texts that are given", options.changed(), problem)
    if file:
        logger.warning(f"{file} is answered as a text; {hint}")
    with quietly():
        predictor = _opened(model, len(str((texts, question, context))), options)
    if texts is None:
        examples: list[TextOrDict] = list(question_texts(predictor.task, question, context))
    elif question is not None or context is not None:
        raise BertineError("give texts, or a question and its context, not both")
    else:
        examples = grouped(predictor.task, texts)
    if not examples:
        raise BertineError("texts is empty; give one text or more")
    return _timed(predict_texts, predictor, examples, asked)


def _answer_file(model: Predictor | Path | str, input: Source, asked: Asked) -> Any:
    """Answer a file, or a table in memory, by its kind; return the report."""
    options = asked.options
    if options.resume and not _lasting(input, asked.output):
        raise BertineError("resume is for an input and an output that are files")
    predictor = _opened(model, bytes_to_come(input), options)
    task = predictor.task
    kind, problem = "tables of texts", f"the task is {task.name!r}"
    answer: Callable[[Predictor, Any, Asked], TextReport | TagReport] = predict_table
    if task.reader == "words":
        kind, answer = "files of words", tag_file
    elif task.reader == "questions" and options.format is None and (content := load_squad(input)):
        kind, problem = "files in SQuAD's format", f"{input} is in SQuAD's format"
        answer = partial(predict_squad, content=content)
    options.refuse_others(kind, options.changed(), problem)
    return _timed(answer, predictor, input, asked)


def _timed(
    answer: Callable[[Predictor, Any, Asked], Any], predictor: Predictor, input: Any, asked: Asked
) -> Any:
    """Answer one kind of input; return the report, with the time that it took."""
    started = time.monotonic()
    report = answer(predictor, input, asked)
    report.seconds = time.monotonic() - started
    return report


def _opened(model: Predictor | Path | str, size: int | None, options: PredictOptions) -> Predictor:
    """Load the model, unless it is loaded, for texts of `size` bytes."""
    chosen = unmeasured(model, size, options.device, options.precision)
    if options.batch_invariant:
        chosen = {"precision": options.precision, "batch_invariant": True}
    return Predictor.opened(model, options.device, **chosen).deciding(options)


def _answered_rows(given: Any, table: InMemoryTable, write: Callable[[Path], Any]) -> Any:
    """Return the rows of a table with their answers, and print the report.

    Args:
        given: the table as the user gave it, whose values are not changed.
        table: the same table, inspected.
        write: writes the answered rows to a file of JSON lines, and returns the report.

    Returns:
        For a pandas frame the frame with the columns of the answers added, its index kept; for
        other tables a dictionary for each row.
    """
    with tempfile.TemporaryDirectory(prefix="bertine-predict-") as folder:
        file = Path(folder) / "rows.jsonl"
        report = write(file)
        with open(file, encoding="utf-8", errors=AS_READ) as lines:
            rows = [json.loads(line) for line in lines]
    for line in report.lines():
        logger.info(line)
    if hasattr(given, "assign"):
        return given.assign(**{name: [row.get(name) for row in rows] for name in report.columns})
    for number, row in enumerate(rows):
        for name in row.keys() & set(table.columns) - set(report.columns):
            row[name] = table.cells[name][number]
    return rows


def predict_table(predictor: Predictor, input: Source, asked: Asked) -> PredictReport:
    """Answer every row of a table of texts.

    Raises:
        BertineError: the table cannot be read, a column is missing, or the answers have no
            probabilities or explanations; the output cannot be written, or not be resumed.
    """
    task, options, output = predictor.task, asked.options, asked.output
    if asked.details and [*task.output_columns(True)] == [*task.output_columns(False)]:
        raise BertineError(
            f"the task {task.name!r} answers without probabilities; leave out "
            f"{option('all_probabilities', True)}"
        )
    if asked.explained:
        predictor.explainer().check(LEAVE_ONE_OUT)
    nearest = nearest_of(predictor, options, asked.show_progress)
    with open_task_table(task, input, options) as opened:
        layout = written_layout(output, opened.table.layout)
        if asked.explained:
            check_explained(layout.kind, output)
        job = _TablePrediction(predictor.over(opened.columns), opened, asked, nearest)
        writing: AbstractContextManager[TableWriter | ResumableTable]
        if not isinstance(input, InMemoryTable) and _lasting(input, output):
            identity = partial(job.identity, input, layout)
            writing = open_resumable_table(
                Path(output), layout, job.names, identity, resume=options.resume
            )
        else:
            writing = open_writer(output, layout, job.names)
        bar = text_progress("predict", input, opened.table.layout, show=asked.shows_progress)
        with writing as writer, bar as advance:
            for count in job.run(writer):
                advance(count)
        job.report.notes = opened.notes + opened.table.stats.notes(opened.table.name)
    return job.report


class _TablePrediction:
    """The prediction of one table; the counts are kept in `report`.

    Attributes:
        names: the names of the columns that are written.
    """

    def __init__(
        self, predictor: Predictor, opened: TaskTable, asked: Asked, nearest: NearestExamples | None
    ) -> None:
        task, table = predictor.task, opened.table
        self.predictor, self.task, self.table, self.rows = predictor, task, table, opened.rows
        self.columns, self.explained, self.nearest = opened.columns, asked.explained, nearest
        added_columns = task.output_columns(asked.details)
        self._values = [*added_columns.values()]
        names = [*added_columns, *([EXPLANATION] if self.explained else [])]
        added = [unused(name, table.columns, "predicted_") for name in names]
        self._flags = {
            flag: unused(flag, table.columns, "predicted_") for flag in ("unknown", "empty")
        }
        unknown = UnknownText(predictor.tokenizer)
        self.report = PredictReport(max_length=task.max_length, columns=added, unknown=unknown)
        if task.reader == "questions":
            self.report.max_length = cast(SpanExtraction, task).limits.max_question_length
            self.report.cut_texts = "questions"
        self.names = [*table.columns, *added]

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
                self.names,
                list(self.columns),
                *([] if self.nearest is None else [self.nearest.origin]),
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
            writer.write(joined(name, row, added | flags, self.columns))
        lines = [item.line for item in items]
        report.count(len(rows), features, [item.texts for item in items], lines)
        report.abstained += sum(prediction.abstains for prediction in predictions)
        there = [[bool(text.strip()) for text in item.texts] for item in items]
        pairs = zip(lines, predictions, strict=True)
        report.count_empty(line for line, prediction in pairs if prediction.empty)
        report.half_empty += sum(len(texts) == 2 and sum(texts) == 1 for texts in there)


def _named_file(texts: Any) -> str | None:
    """Return the only text if it is the name of a file, whose contents were probably meant."""
    text = texts[0] if isinstance(texts, list | tuple) and len(texts) == 1 else texts
    # Longer names are refused by the system, and a zero character by Python.
    name = isinstance(text, str) and len(text) < 256 and "\0" not in text and text
    return name if name and os.path.isfile(name) else None


def _lasting(input: Source, output: Path | str) -> bool:
    """Return whether both are regular files, so that the work can be resumed. A device or a pipe is
    written to directly."""
    if isinstance(input, InMemoryTable) or is_stream(output):
        return False
    return str(input) != "-" and Path(input).is_file()
