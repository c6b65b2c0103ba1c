"""Predict answers for files: tables of texts, SQuAD's format, files of words: ``predict``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

from bertine.core.console import log_all, logger, plural, progress, quietly
from bertine.core.errors import BertineError
from bertine.core.files import os_errors, write_text
from bertine.core.names import ABOUT, option, text_option
from bertine.core.text import row_at
from bertine.data.column_files import LOOKED_AT, ColumnLines, Line, word_place
from bertine.data.entities import OUTSIDE, Sentence, Sentences, entities
from bertine.data.in_memory import InMemoryTable, Source, TableLike, as_source
from bertine.data.lines import LINE_COLUMN, TableLayout, is_typed, named_kind, written_layout
from bertine.data.squad import load_squad, read_squad
from bertine.data.streams import json_kind, listed
from bertine.data.tables import TableRow
from bertine.data.tagged_sentences import WordColumns, WordSource, blocks, named_columns, open_words
from bertine.data.tagged_tables import TEXT_KEYS, WORD_KEYS, json_words
from bertine.data.writer import (
    AS_READ,
    TableWriter,
    check_output,
    is_stream,
    json_text,
    open_writer,
)
from bertine.inference.answer_files import PredictReport, ResumableTable, TextReport, pace
from bertine.inference.export import ExportedPredictor
from bertine.inference.predict_files import (
    EXPLANATION,
    Asked,
    GivenTextsReport,
    TablePrediction,
    answer_table,
    explained_or_none,
    grouped,
    is_lasting,
    predict_table,
    predict_texts,
    question_texts,
)
from bertine.inference.predictor import Predictor
from bertine.inference.rows import (
    TaskTable,
    TextOrDict,
    bytes_to_come,
    joined,
    text_progress,
    unmeasured,
    unused,
)
from bertine.options.data import DEFAULTS, DataConfig
from bertine.options.inference import PredictOptions
from bertine.options.verbs import takes_options
from bertine.tasks.answer import json_value
from bertine.tasks.spans import SpanExtraction, n_best_values
from bertine.tasks.tagging import Tagging
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
    output, n_best = asked.output, asked.details
    stdout = str(output) == "-"
    if not stdout:
        check_output(output)
        if is_typed(output):
            raise BertineError(
                f"{output}: answers to a file in SQuAD's format are one JSON object, no table; "
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
    report = SquadPredictReport(notes=examples.notes, unknown=UnknownText(predictor.tokenizer))
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


# Words: a column file gets a column, a row of a table the entities of its text.

#: Words that are tagged at once: enough to sort by length, few enough to hold in memory.
CHUNK_WORDS = 1 << 15


@dataclass(repr=False)
class TagReport(PredictReport):
    """The report of tagging a file. A row of a table, or a line of plain text, is a sentence.

    Attributes:
        words: the number of tagged words.
        entities: the number of entities, by type.
        left_out: the number of entities left out because their probability is too low.
        met: counts of special cases; see :func:`bertine.tasks.tagged_words.met_notes`.
    """

    words: int = 0
    entities: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    met: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[str, int]:
        own = {"words": self.words, "left_out": self.left_out}
        parts = {"met ": self.met, "entities ": self.entities}
        named = {part + name: n for part, counts in parts.items() for name, n in counts.items()}
        return super().counts() | own | named

    def go_on(self, table: ResumableTable) -> None:
        super().go_on(table)
        self.words, self.left_out = table.counts["words"], table.counts["left_out"]
        for part, counts in (("met ", self.met), ("entities ", self.entities)):
            known = {k: n for k, n in table.counts.items() if k.startswith(part)}
            counts.update({name.removeprefix(part): n for name, n in known.items()})

    def done(self) -> str:
        return (
            f"tagged {plural(self.rows, 'sentence')}, {plural(self.words, 'word')}, "
            f"{pace(self.words, self.seconds, 'words')}"
        )

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        first, *others = super().lines()
        lines = [first]
        if self.entities:
            item = ", ".join(f"{kind or 'no type'} {n}" for kind, n in self.entities.most_common())
            lines.append(f"{self.entities.total()} entities: {item}")
        if self.left_out:
            lines.append(f"left out, as their probability is too low: {self.left_out}")
        return lines + others


def tag_sentences(predictor: Predictor, sentences: Sentences, report: TagReport) -> list[Any]:
    """Tag some of the sentences of a file, and count them."""
    result, features = predictor.run(sentences)
    lines = [item.line for item in sentences.items]
    report.count(len(sentences), features, [item.words for item in sentences.items], lines)
    pairs = zip(lines, result, strict=True)
    report.count_empty(line for line, answer in pairs if getattr(answer, "empty", False))
    report.words += sum(len(item.words) for item in sentences.items)
    report.met.update(sentences.met)
    if cast(Tagging, predictor.task).has_entities:
        for tags in result:
            report.entities.update(entity.type for entity in entities(tags.tags))
            report.left_out += tags.left_out
    return result


def tag_columns(
    predictor: Predictor, input: Source, source: WordSource, columns: WordColumns, asked: Asked
) -> TagReport:
    """Tag every word of a column file, in its order, in bounded memory (that of a document, where
    the model reads document context). It gets its tags as the last column and is otherwise
    unchanged.

    Args:
        predictor: the predictor of a tagger.
        input: the file, for the progress; `source` is the same, opened.
        columns: the place of the words.
        asked: where and how to answer.

    Raises:
        BertineError: the words are not in the given column; the output is Parquet or JSON lines.
    """
    output, table = asked.output, source.table
    if named_kind(output) == "jsonl":
        raise BertineError(
            f"{output}: the tags of a column file are one more column of it, not Parquet or "
            "JSON lines; name the output .conll"
        )
    task, report = (
        cast(Tagging, predictor.task),
        TagReport(unknown=UnknownText(predictor.tokenizer)),
    )
    # The name of a column file says nothing of its layout.
    text = Path(output).with_suffix(".txt")
    layout = written_layout(text, table.layout, encoding=asked.options.output_encoding)
    lines, width = ColumnLines(table.name, source.rows), 1 + asked.details
    at, reached, documents = -1, 0, False
    with (
        open_writer(output, layout, ()) as writer,
        text_progress("tag", input, show=asked.shows_progress) as advance,
    ):
        for part in _parts(lines, task.document_context):
            groups = list(blocks(part))
            if groups and at < 0:
                named = "word_column" in columns.given
                first = [block for block, _ in groups[:LOOKED_AT]]
                at = word_place(lines, first, columns.word_column, named=named)
            items = [
                Sentence(tuple(line.cells[at] for line in block), None, block[0].number, document)
                for block, document in groups
            ]
            sentences = Sentences(table.name, (), None, items, word_a_line=True)
            result = tag_sentences(predictor, sentences, report) if items else []
            _write_columns(lines, part, result, width, writer)
            documents |= any(line.kind == "document" for line in part)
            advance(part[-1].number - reached)
            reached = part[-1].number
    added = f"column {lines.width + 1} (the tag)", f"column {lines.width + 2} (its probability)"
    report.columns = [*added[:width]]
    report.notes += lines.notes() + task.met_notes(table.name, report.met, predictor.tokenizer)
    if task.document_context and not documents:
        report.notes.append(f"{table.name}: tells no documents, so each sentence is read by itself")
    report.notes.extend(table.stats.notes(table.name))
    return report


def _parts(lines: Iterable[Line], document_context: bool) -> Iterator[list[Line]]:
    """Divide a column file between sentences; with document context only between documents, if it
    has any, as a document is then tagged as a whole."""
    part: list[Line] = []
    words, ends = 0, ["document", "blank"]
    for line in lines:
        if line.kind == "document" and document_context:
            ends = ["document"]
        if words >= CHUNK_WORDS and line.kind in ends:
            yield part
            part, words = [], 0
        part.append(line)
        words += line.kind == "word"
    if part:
        yield part


def _write_columns(
    lines: ColumnLines, part: list[Line], result: list[Any], width: int, writer: TableWriter
) -> None:
    """Write lines of a column file with the tags, and for a `width` of 2 their probabilities."""
    answers = chain.from_iterable(
        zip(tags.tags, tags.probabilities, strict=True) for tags in result
    )
    by = "\t" if lines.tabs else " "
    for line in part:
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


class _TableTagging(TablePrediction):
    """The tagging of one table, whose rows have texts or lists of words."""

    all_in_rows = False
    report: TagReport

    def _begin(self, details: bool) -> TagReport:
        self.details, self._entities = details, cast(Tagging, self.task).has_entities
        names = ["words", "offsets", "tags", "probabilities", "entities", EXPLANATION]
        self._keys = {name: unused(name, self.table.columns, "predicted_") for name in names}
        self._used: dict[str, None] = {}
        columns = [self._keys[name] for name in self._added(True)]
        return TagReport(columns=columns, unknown=UnknownText(self.predictor.tokenizer))

    @staticmethod
    def layout(output: Path | str, layout: TableLayout, encoding: str | None) -> TableLayout:
        layout = written_layout(output, layout, encoding=encoding)
        return replace(layout, kind="jsonl") if layout.kind == "text" else layout

    def _added(self, whole: bool) -> list[str]:
        """Return the names of the values that are added to a row with a `whole` text, or with a
        list of words."""
        plain = not self._entities
        names = ["words", "offsets"] if whole and (plain or self.details) else []
        names += ["tags"] if not whole or plain or self.details else []
        names += ["probabilities"] * self.details + ["entities"] * (not plain)
        return [*names, *([EXPLANATION] if self.explained else [])]

    def _key(self, row: TableRow) -> str:
        """Choose the column of the text, or words, of a row.

        Raises:
            BertineError: there is none.
        """
        usual = (*self.columns, *WORD_KEYS, *TEXT_KEYS)
        if len(self.table.columns) == 1:
            usual += (*self.table.columns,)
        for key in usual:
            if key in row.values:
                return key
        raise BertineError(
            f"{row_at(self.table.name, row.line)}: has neither words ({', '.join(WORD_KEYS)}) nor "
            f"a text; name the column with {text_option()}; it has {listed([*row.values])}"
        )

    def _text(self, row: TableRow) -> str | tuple[str, ...]:
        key = self._key(row)
        value = row.values[key]
        if isinstance(value, str):
            return value
        if key in WORD_KEYS or (isinstance(value, list) and key not in TEXT_KEYS):
            return json_words(self.table.name, row, key)
        raise BertineError(
            f"{row_at(self.table.name, row.line)}: {key!r} is {json_kind(value)}, but must be a "
            "text"
        )

    def _size(self, row: TableRow) -> int:
        text = self._text(row)
        return len(text) if isinstance(text, str) else sum(map(len, text))

    def _answer(self, rows: Sequence[TableRow], writer: TableWriter | ResumableTable) -> None:
        texts, lines = [self._text(row) for row in rows], [row.line for row in rows]
        sentences = self.task.examples_of(texts, self.table.name, lines)
        answers = tag_sentences(self.predictor, cast(Sentences, sentences), self.report)
        for row, text, answer in zip(rows, texts, answers, strict=True):
            added: dict[str, Any] = {}
            for name in self._added(isinstance(text, str)):
                if name != EXPLANATION:
                    added[self._keys[name]] = json_value(getattr(answer, name))
                elif isinstance(text, str):
                    result = explained_or_none(self.predictor, (text,), self.nearest)
                    added[self._keys[name]] = result and result.to_dict()
                else:
                    raise BertineError(
                        f"{row_at(self.table.name, row.line)}: has a list of words, but "
                        f"explanations are of texts; leave out {option('explain', True)}"
                    )
            self._used |= dict.fromkeys(added)
            flags = {self._flags[flag]: value for flag, value in answer.flags().items()}
            values = joined(self.table.name, row, added | flags, (self._key(row),))
            writer.write(values, row)

    def notes(self) -> list[str]:
        self.report.columns = [*self._used] or self.report.columns
        task = cast(Tagging, self.task)
        return task.met_notes(self.table.name, self.report.met, self.predictor.tokenizer)


def tag_file(predictor: Predictor, input: Source, asked: Asked) -> TagReport:
    """Tag every word of a file, in its order, in bounded memory: of a column file
    (:func:`tag_columns`), of a table or of plain text.

    A row gets ``entities``, by characters: a list of ``{"start", "end", "label", "text",
    "probability"}``, in cells of csv as JSON; with all probabilities also ``words``, ``offsets``,
    ``tags`` and ``probabilities``. A row with a list of words gets ``tags`` and ``entities``, by
    words. Tags that mark no entities come with their words. Plain text becomes JSON lines, or csv
    by the name of the output.

    Raises:
        BertineError: the file cannot be read; the words are not in the given columns; the output
            has the suffix of a format in which the rows cannot be written.
    """
    options = asked.options
    trained = WordColumns.trained_with(predictor.task.text_columns, None)
    config = DataConfig.of(options, DEFAULTS)
    columns = named_columns(config).merged(trained)
    with open_words(input, config) as source:
        columns.require(source.table.name, source.kind)
        if source.kind == "columns":
            problem = f"{source.table.name} is a column file"
            options.refuse_others("files of words", options.changed(), problem)
            return tag_columns(predictor, input, source, columns, asked)
        key = (columns.word_key,) if columns.word_key else ()
        opened = TaskTable(source.table, source.rows, key, [])
        return cast(TagReport, answer_table(_TableTagging, predictor, input, opened, asked))


# ``predict``: answers for texts or tables.


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
    :func:`~bertine.inference.predict.tag_file`. For a table in memory without an output the
    answered rows are returned.

    Args:
        model: a fine-tuned model directory, or a loaded one; or a folder of :func:`bertine.export`
            with the ONNX file of such a model, which onnxruntime computes without PyTorch.
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
    if options.resume and not is_lasting(input, asked.output):
        raise BertineError("resume is for an input and an output that are files")
    predictor = _opened(model, bytes_to_come(input), options)
    task = predictor.task
    if task.reader == "words":
        return _timed(tag_file, predictor, input, asked)
    kind, problem = "tables of texts", f"the task is {task.name!r}"
    answer: Callable[[Predictor, Any, Asked], TextReport] = predict_table
    if (
        task.reader == "questions"
        and options.format is None
        and (content := load_squad(input, options.encoding))
    ):
        kind, problem = "files in SQuAD's format", f"{input} is in SQuAD's format"
        answer = partial(predict_squad, content=content)
    options.refuse_others(kind, options.changed(), problem)
    report: TextReport = _timed(answer, predictor, input, asked)
    if task.reader == "questions":
        report.max_length = cast(SpanExtraction, task).limits.max_question_length
        report.cut_texts = "questions"
    return report


def _timed(
    answer: Callable[[Predictor, Any, Asked], Any], predictor: Predictor, input: Any, asked: Asked
) -> Any:
    """Answer one kind of input; return the report, with the time that it took."""
    started = time.monotonic()
    report = answer(predictor, input, asked)
    report.seconds = time.monotonic() - started
    if predictor.task.abstain_unfamiliar:
        report.why_open = "the text is not like those of the training"
        if predictor.task.abstain_below or predictor.task.costs:
            report.why_open += ", or the best answer too unsure"
    return report


def _opened(model: Predictor | Path | str, size: int | None, options: PredictOptions) -> Predictor:
    """Load the model, unless it is loaded, for texts of `size` bytes."""
    if isinstance(model, Path | str):
        with os_errors(model, "looking for a model"):
            exported = (Path(model) / ABOUT).is_file()
        if exported:
            return ExportedPredictor(Path(model), options).deciding(options)
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
    log_all(report.lines())
    if hasattr(given, "assign"):
        return given.assign(**{name: [row.get(name) for row in rows] for name in report.columns})
    for number, row in enumerate(rows):
        for name in row.keys() & set(table.columns) - set(report.columns):
            row[name] = table.cells[name][number]
    return rows


def _named_file(texts: Any) -> str | None:
    """Return the only text if it is the name of a file, whose contents were probably meant."""
    text = texts[0] if isinstance(texts, list | tuple) and len(texts) == 1 else texts
    # Longer names are refused by the system, and a zero character by Python.
    name = isinstance(text, str) and len(text) < 256 and "\0" not in text and text
    return name if name and os.path.isfile(name) else None
