"""Answers for a file of texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from bertine.console import human_time, progress
from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.inference.predictor import Predictor
from bertine.inference.tag_file import TagReport, tag_file
from bertine.inference.unfinished import UnfinishedTable, input_identity, unfinished_table
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.conll import Columns, named_columns
from bertine.tasks.examples import Example, Examples, as_columns, row_texts
from bertine.tasks.layout import LINE_COLUMN, Layout
from bertine.tasks.parquet import SUFFIXES as PARQUET
from bertine.tasks.parquet import is_parquet
from bertine.tasks.span_data import load_squad
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.table_writer import TableWriter, open_writer
from bertine.tasks.tables import Row, Table
from bertine.tasks.tagging import Tagging
from bertine.text.streams import COMPRESSIONS

#: Rows are predicted in chunks: enough to sort by length, few enough to hold in memory.
CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 1 << 22


@dataclass
class PredictReport:
    """What predicting a file did.

    Attributes:
        rows: predicted.
        cut: inputs that were longer than the model's maximum length.
        pieces_lost: pieces cut off from them.
        empty: rows without any text; they were predicted all the same.
        seconds: of wall time.
        columns: the names of the columns that were added.
        notes: what was mended in the input.
        max_length: of what is cut, in pieces.
        cut_texts: what is cut: the texts, or of spans the questions.
        rows_before: of `rows`, answered by an earlier process.
    """

    rows: int = 0
    cut: int = 0
    pieces_lost: int = 0
    empty: int = 0
    seconds: float = 0.0
    columns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    max_length: int = 0
    cut_texts: str = "texts"
    rows_before: int = 0

    def counts(self) -> dict[str, int]:
        """What was counted so far, for a process that goes on."""
        return {name: getattr(self, name) for name in ("rows", "cut", "pieces_lost", "empty")}

    def go_on(self, table: UnfinishedTable) -> None:
        """Take over what an earlier process has counted."""
        for name in self.counts():
            setattr(self, name, table.counts[name])
        self.rows_before = table.rows_done

    def lines(self) -> list[str]:
        """What a person reads in the terminal."""
        rows = self.rows - self.rows_before
        rate = rows / self.seconds if self.seconds else 0.0
        lines = [
            f"predicted {rows} rows in {human_time(self.seconds)} ({rate:.0f} a second); "
            f"added {', '.join(self.columns)}"
        ]
        if self.rows_before:
            lines.append(f"went on after {self.rows_before} rows that were there; now {self.rows}")
        if self.cut:
            lines.append(
                f"{self.cut} of {self.rows} {self.cut_texts} were cut at {self.max_length} pieces "
                f"({self.pieces_lost} pieces lost)"
            )
        if self.empty:
            lines.append(f"{self.empty} of {self.rows} texts are empty")
        return lines + self.notes


def predict(
    model: Predictor | Path | str,
    input: Path | str,
    output: Path | str = "-",
    *,
    device: str | None = None,
    precision: str = "auto",
    all_probabilities: bool = False,
    text_columns: Sequence[str] | str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    word_column: int | None = None,
    resume: bool = False,
    show_progress: bool = True,
) -> PredictReport | TagReport:
    """Predict every row of a table, in its order and its format, in bounded memory.

    The output is the input with the task's columns (``label``, ``probability``) added; a name
    that the input has already gets ``predicted_`` before it. Plain text becomes lines of label,
    tab, probability, tab, text. Of Parquet the answers are JSON lines; an output that is named
    ``.parquet`` becomes that, whatever the input is. Of spans, a file in SQuAD's
    format becomes the official object of answers by id; see
    :func:`~bertine.inference.squad.predict_squad`. What a tagger writes is told at
    :func:`~bertine.inference.tag_file.tag_file`.

    Args:
        model: a fine-tuned model directory, or a loaded one.
        input: a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin.
        output: a file, complete or not there at all; or ``-`` for stdout.
        device: as PyTorch calls it; None: the GPU if there is one.
        precision: ``"auto"``, ``"fp32"``, ``"bf16"`` or, on a CPU, ``"int8"``; a loaded model keeps
            its own, and its device.
        all_probabilities: also add ``probability_<label>`` for each label; of spans ``n_best``.
        text_columns: where the texts are; None: where they were in training.
        format: of the input; None: told as :class:`~bertine.tasks.tables.Table` does.
        quotes: whether ``"`` quotes cells; None: as usual for the format.
        strict: refuse invalid UTF-8 and NUL bytes instead of mending and counting them.
        word_column: of column files, for a tagger: where the words are, from 1 on; None: as in
            training.
        resume: go on where an earlier process was stopped
            (:mod:`~bertine.inference.unfinished`), with the same answers as without a stop. For
            tables, from a file to a file.
        show_progress: on stderr, unless the answers go to stdout and show it themselves.

    Raises:
        BertineError: no such model; what reading the table raises; a column is missing; nothing
            can be gone on with there, or what is left is of another input, model or setting.
    """
    lasting = _lasting(input, output)
    if resume and not lasting:
        raise BertineError("resume is for an input and an output that are files")
    predictor = Predictor.opened(model, device, precision)
    started = time.monotonic()
    task = predictor.task
    if isinstance(task, Tagging):
        _refuse_resume(resume, "files of words")
        if quotes is not None:
            raise BertineError("files of words have no quotes; leave quotes out")
        trained = Columns.trained_with(task.text_columns, None)
        return tag_file(
            predictor,
            input,
            output,
            named_columns(text_columns, None, word_column, None).merged(trained),
            details=all_probabilities,
            format=format,
            strict=strict,
            show_progress=show_progress,
        )
    if word_column is not None:
        raise BertineError(f"word_column is for the task tagging, but the task is {task.name!r}")
    spans = isinstance(task, SpanExtraction) and format is None
    content = load_squad(input) if spans else None
    if content is not None:
        if text_columns is not None or quotes is not None:
            raise BertineError(
                f"{input}: is in SQuAD's format, whose columns and quotes are known; leave them out"
            )
        from bertine.inference.squad import predict_squad

        _refuse_resume(resume, "files in SQuAD's format")

        return predict_squad(
            predictor,
            input,
            content,
            output,
            n_best=all_probabilities,
            strict=strict,
            show_progress=show_progress,
        )
    columns = as_columns(text_columns) or task.text_columns
    report = PredictReport(max_length=task.max_length)
    if isinstance(task, SpanExtraction):
        report.max_length, report.cut_texts = task.limits.max_question_length, "questions"
    reading: dict[str, Any] = {"format": format, "quotes": quotes, "strict": strict}
    if isinstance(task, MultipleChoice):
        reading["optional"] = task.optional(columns)
    with Table(input, wanted=columns, **reading) as table:
        if table.layout.kind == "text":
            if len(columns) != 1:
                raise BertineError(
                    f"{table.name}: is plain text (no header with {' and '.join(columns)}), but "
                    "the model takes pairs; give csv, tsv or jsonl"
                )
            if text_columns is not None and columns != (LINE_COLUMN,):
                raise BertineError(
                    f"{table.name}: is plain text (no header with {columns[0]}), a text on each "
                    "line; leave out text_columns, or give the format (csv, tsv or jsonl)"
                )
            columns = (LINE_COLUMN,)
        report.columns = [
            _unused(name, table.columns) for name in task.output_columns(all_probabilities)
        ]
        bar = progress()
        bar.disable = not show_progress or str(output) == "-"
        total = None if bar.disable else _count_lines(input)
        names = [*table.columns, *report.columns]
        layout = Layout("jsonl") if is_parquet(output) else table.layout

        def identity() -> dict[str, Any]:
            model = predictor.fingerprint()
            return {
                "input": input_identity(input),
                # Apart: "auto" measures, and may choose another one another time.
                "precision": model.pop("precision"),
                "model": model,
                "setting": [layout.kind, layout.delimiter, layout.quotes, names, list(columns)],
            }

        with _opened(output, layout, names, identity, lasting, resume) as writer, bar:
            job = bar.add_task("predict", total=total)
            rest = iter(table)
            if isinstance(writer, UnfinishedTable) and writer.rows_done:
                report.go_on(writer)
                for _ in islice(rest, writer.rows_done):
                    pass
            for number, rows in enumerate(_chunks(table, rest, columns)):
                if number and isinstance(writer, UnfinishedTable):
                    writer.commit(report.rows, report.counts())
                _answer(predictor, table, rows, columns, all_probabilities, writer, report)
                bar.update(job, completed=rows[-1].line)
            bar.update(job, completed=total or report.rows, total=total or report.rows)
        report.notes = table.stats.notes(table.name)
    report.seconds = time.monotonic() - started
    return report


def _answer(
    predictor: Predictor,
    table: Table,
    rows: Sequence[Row],
    columns: tuple[str, ...],
    all_probabilities: bool,
    writer: TableWriter | UnfinishedTable,
    report: PredictReport,
) -> None:
    """Predict and write one chunk, and count it in `report`."""
    items = [Example(row_texts(table, row, columns), line=row.line) for row in rows]
    predictions, features = predictor.run(Examples(table.name, columns, None, items))
    for row, prediction in zip(rows, predictions, strict=True):
        values = predictor.task.output_values(prediction, all_probabilities)
        writer.write(_joined(table.name, row, report.columns, values))
    report.rows += len(rows)
    report.cut += sum(1 for feature in features if feature.num_truncated)
    report.pieces_lost += sum(feature.num_truncated for feature in features)
    report.empty += sum(1 for item in items if not any(text.strip() for text in item.texts))


def _lasting(input: Path | str, output: Path | str) -> bool:
    """Whether both are files, so that work on them can be gone on with. A device or a pipe is
    written to as it comes."""
    regular = str(output) != "-" and (not Path(output).exists() or Path(output).is_file())
    return regular and str(input) != "-" and Path(input).is_file()


def _refuse_resume(resume: bool, what: str) -> None:
    if resume:
        raise BertineError(f"resume is for tables of texts; {what} are predicted anew")


def _opened(
    output: Path | str,
    layout: Layout,
    names: Sequence[str],
    identity: Callable[[], dict[str, Any]],
    lasting: bool,
    resume: bool,
) -> AbstractContextManager[TableWriter | UnfinishedTable]:
    if lasting:
        return unfinished_table(Path(output), layout, names, identity, resume=resume)
    return open_writer(output, layout, names)


def _chunks(table: Table, rest: Iterator[Row], columns: Sequence[str]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    characters = 0
    for row in rest:
        chunk.append(row)
        characters += sum(map(len, row_texts(table, row, columns)))
        if len(chunk) >= CHUNK_ROWS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _joined(name: str, row: Row, added: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    for column in added:
        if column in row.values:  # JSON lines may change their keys from row to row
            raise BertineError(
                f"{name}:{row.line}: has a key {column!r}, but the first row has none, so it is "
                "the name of a column to add; rename it"
            )
    return {**row.values, **dict(zip(added, values, strict=True))}


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"predicted_{name}"
    return name


def _count_lines(path: str | Path) -> int | None:
    """Lines of a file, for the estimate of the time left; None for what can be read but once, or
    would have to be unpacked."""
    if not Path(path).is_file() or Path(path).suffix.lower() in (*COMPRESSIONS, *PARQUET):
        return None
    count = 0
    with os_errors(path, "reading it"), open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            count += block.count(b"\n")
    return count
