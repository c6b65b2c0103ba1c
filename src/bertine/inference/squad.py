"""Answers to a file in SQuAD's format, in the format that its scorers take."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bertine.errors import BertineError
from bertine.files import os_errors, write_text
from bertine.inference.files.text_report import TextReport, pace
from bertine.inference.predictor import Predictor
from bertine.records.squad_files import read_squad
from bertine.records.table_writer import check_output, is_stream, json_text
from bertine.tables.parquet import is_parquet
from bertine.tasks.spans.task import SpanExtraction, n_best_values
from bertine.tasks.unknown_text import UnknownText
from bertine.terminal.console import counted, progress

#: Questions are answered in chunks, so that the scores of few windows are held at once.
CHUNK_QUESTIONS = 2048


@dataclass(repr=False)
class SquadPredictReport(TextReport):
    """The report of answering a file in SQuAD's format.

    Attributes:
        files: that were written.
        silent: questions to which no answer was given.
        inputs: windows that the contexts were read in, all together.
    """

    files: tuple[str, ...] = ()
    silent: int = 0
    inputs: int = 0

    def lines(self) -> list[str]:
        """Return what a person reads in the terminal."""
        line = f"answered {counted(self.rows, 'question')} {pace(self.rows, self.seconds)}"
        line += f" from {counted(self.inputs, 'window')}"
        if self.silent:
            line += f"; {self.silent} of them with no answer"
        return [line, *self.warnings(), *(f"written: {name}" for name in self.files)]


def predict_squad(
    predictor: Predictor,
    input: Path | str,
    content: dict[str, Any],
    output: Path | str = "-",
    *,
    n_best: bool = False,
    strict: bool = False,
    show_progress: bool = True,
) -> SquadPredictReport:
    """Answer all questions of a file in SQuAD's format: ``{"<id>": "<answer>", …}``, where "" says
    that there is no answer.

    Where the model may give no answer, the null odds of each question, by which its threshold
    decides, go to a file beside (``answers.null_odds.json`` for ``answers.json``): what the
    official script takes as ``--na-prob-file``. All are written when all is answered, each whole.
    Beside stdout, a pipe or a device there is nothing.

    Args:
        predictor: of a model for spans.
        input: the file, for messages.
        content: what it holds.
        output: the file of the answers, or ``-`` for stdout, which gets nothing else.
        n_best: also write the 20 best answers of each question, with probabilities, beside
            (``answers.nbest.json``).
        strict: refuse half a character instead of mending and counting it.
        show_progress: on stderr, unless the answers go to stdout.

    Raises:
        BertineError: the file is not in the format; the n best are asked for without a file;
            `output` is a folder, or named as a compressed file or as Parquet.
    """
    task = cast(SpanExtraction, predictor.task)
    stdout = str(output) == "-"
    if not stdout:
        check_output(output)
        if is_parquet(output):
            raise BertineError(
                f"{output}: answers to a file in SQuAD's format are one JSON object, not Parquet; "
                "name the output .json"
            )
    # No file stands beside a device or a pipe.
    stream = is_stream(output)
    if stream and n_best:
        raise BertineError(
            "the n best answers go to a file beside that of the answers; name one with output "
            "(--output FILE)"
        )
    started = time.monotonic()
    examples = read_squad(input, content, answers=False, strict=strict)
    answers: dict[str, str] = {}
    odds: dict[str, float] = {}
    best: dict[str, list[dict[str, Any]]] = {}
    report = SquadPredictReport(
        notes=examples.notes,
        max_length=task.limits.max_question_length,
        cut_texts="questions",
        unknown=UnknownText(predictor.tokenizer),
    )
    with progress(show=show_progress and not stdout) as bar:
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
    report.seconds = time.monotonic() - started
    return report


def _json(value: Any) -> str:
    return json_text(value, indent=2) + "\n"
