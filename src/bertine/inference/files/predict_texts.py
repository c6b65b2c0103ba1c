"""Answers to texts given on the command line: readable lines in a terminal, rows elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.inference.files.given_texts import Text, TextOrDict, is_one
from bertine.inference.files.text_report import TextReport
from bertine.inference.predictor import Predictor
from bertine.inference.tagging import TaggedText
from bertine.records.table_writer import is_stream, open_writer
from bertine.tables.layout import LINE_COLUMN, Layout, named_kind
from bertine.tasks.base import Task
from bertine.tasks.choice import ChoicePrediction, MultipleChoice
from bertine.tasks.spans.decoding import SpanPrediction
from bertine.tasks.spans.task import SpanExtraction
from bertine.tasks.tagging.task import Tagging
from bertine.tasks.texts.classification import Prediction
from bertine.tasks.texts.multi_label import LabelSet
from bertine.tasks.texts.regression import Score
from bertine.terminal.console import aligned, counted, visible

#: Characters of a text, or of a label, that a line of the terminal shows.
_SHOWN = 60


class GivenTextsReport(TextReport):
    """What predicting given texts did."""

    def lines(self) -> list[str]:
        """What a person should know besides the answers: texts that were cut or are empty."""
        return self.warnings()


def grouped(task: Task[Any], texts: Sequence[TextOrDict] | TextOrDict) -> list[TextOrDict]:
    """The examples that `texts` are, for `task`.

    Strings are dealt out: two for each example of a task over pairs (or question and context), all
    to one example of multiple choice. What is not a string is an example already.

    Raises:
        BertineError: the number of strings does not fit.
    """
    given = [texts] if is_one(texts) else list(texts)
    columns = task.text_columns
    if isinstance(task, Tagging) or not all(isinstance(text, str) for text in given):
        return given  # type: ignore[return-value]
    strings = [text for text in given if isinstance(text, str)]
    if isinstance(task, MultipleChoice):
        least = len(task.prompt_columns) + 2
        if len(strings) < least:
            raise BertineError(
                f"{counted(len(strings), 'text')} given, but the model chooses: give "
                f"{' and '.join(map(repr, task.prompt_columns))}, then two choices or more"
            )
        return [tuple(strings)]
    if len(columns) == 1:
        return list(strings)
    if len(strings) % len(columns):
        raise BertineError(
            f"{counted(len(strings), 'text')} given, but the model takes "
            f"{len(columns)} for each answer: {' and '.join(map(repr, columns))}"
        )
    step = len(columns)
    return [tuple(strings[at : at + step]) for at in range(0, len(strings), step)]


def question_texts(
    task: Task[Any], question: str | None, context: str | None
) -> list[tuple[str, str]]:
    """The one example of a question about a context.

    Raises:
        BertineError: one of them is missing, or the task is another.
    """
    if question is None or context is None:
        missing = "question" if question is None else "context"
        raise BertineError(f"{missing} is missing; give question and context together")
    if not isinstance(task, SpanExtraction):
        raise BertineError(
            f"question and context are for spans, but the task is {task.name!r}; give the texts"
        )
    return [(question, context)]


def predict_texts(
    predictor: Predictor,
    texts: Sequence[TextOrDict],
    output: Path | str,
    *,
    details: bool,
) -> GivenTextsReport:
    """Answer `texts` and write the answers: to a terminal as readable lines, elsewhere as rows
    (plain text for single texts, else JSON lines; csv, tsv or Parquet by the name of the output).

    Args:
        texts: one entry for each example.
        output: a file, or ``-`` for stdout.
        details: every probability, not only the best answer's.

    Raises:
        BertineError: what :meth:`Predictor.predict` raises; the output cannot be written.
    """
    started = time.monotonic()
    task = predictor.task
    if isinstance(task, MultipleChoice):
        predictor = predictor.over(_columns(task, max(map(_count, texts))))
        task = predictor.task
    answers, features = predictor.answers_and_features(texts)
    report = GivenTextsReport(max_length=task.max_length)
    report.count(len(answers), features)
    shown = [_texts(predictor, text, number) for number, text in enumerate(texts, 1)]
    report.empty = sum(1 for each in shown if not any(text.strip() for text in each))
    if str(output) == "-" and sys.stdout.isatty():
        print("\n".join(readable(task, shown, answers, details=details)))
    else:
        _write(task, shown, answers, output, details)
    report.seconds = time.monotonic() - started
    return report


def readable(
    task: Task[Any], texts: Sequence[Sequence[str]], answers: Sequence[Any], *, details: bool
) -> list[str]:
    """`answers` for a person: a line for each, followed by its text where there are several; with
    `details` further lines below."""
    rows = [_summary(task, given, answer) for given, answer in zip(texts, answers, strict=True)]
    several = len(answers) > 1
    lines = aligned(
        [
            (*cells, _short(given[0])) if several else cells
            for cells, given in zip(rows, texts, strict=True)
        ],
        left=(0, 2),
    )
    shown: list[str] = []
    for line, given, answer in zip(lines, texts, answers, strict=True):
        more = _more(task, given, answer, details=details)
        shown += [line, *(f"  {each}" for each in more)]
    return shown


def _summary(task: Task[Any], texts: Sequence[str], answer: Any) -> tuple[str, str]:
    """The answer, and its probability or nothing."""
    if isinstance(answer, Prediction):
        return visible(answer.label), f"{answer.probability:.1%}"
    if isinstance(answer, Score):
        return f"{answer.score:.4g}", ""
    if isinstance(answer, LabelSet):
        each = (f"{visible(name)} {answer.probabilities[name]:.1%}" for name in answer.labels)
        return ", ".join(each) or "(no label)", ""
    if isinstance(answer, ChoicePrediction):
        name = task.output_values(answer, False)[0]
        assert isinstance(task, MultipleChoice)
        text = texts[len(task.prompt_columns) + answer.choice]
        return f"{visible(str(name))}: {_short(text)}", f"{answer.probability:.1%}"
    if isinstance(answer, SpanPrediction):
        return visible(answer.answer) or "(no answer)", f"{answer.probability:.1%}"
    assert isinstance(answer, TaggedText)
    return answer.cells()


def _more(task: Task[Any], texts: Sequence[str], answer: Any, *, details: bool) -> list[str]:
    """The lines below an answer."""
    if isinstance(answer, TaggedText):
        if not answer.entities:
            plain = isinstance(task, Tagging) and not task.has_entities
            return [] if plain else ["no entities"]
        return aligned(
            [(visible(m.type), visible(m.text), f"{m.start}–{m.end}") for m in answer.entities],
            left=(0, 1),
        )
    if not details:
        return []
    chances: list[tuple[str, float]] = []
    if isinstance(answer, Prediction | LabelSet):
        chances = list(answer.probabilities.items())
    elif isinstance(answer, ChoicePrediction):
        assert isinstance(task, MultipleChoice)
        chances = list(zip(texts[len(task.prompt_columns) :], answer.probabilities, strict=False))
    elif isinstance(answer, SpanPrediction):
        chances = [(each.text or "(no answer)", each.probability) for each in answer.n_best]
    chances.sort(key=lambda pair: -pair[1])
    return aligned([(_short(name), f"{chance:.1%}") for name, chance in chances])


def _write(
    task: Task[Any],
    texts: Sequence[Sequence[str]],
    answers: Sequence[Any],
    output: Path | str,
    details: bool,
) -> None:
    """The answers as rows."""
    if isinstance(task, Tagging):
        rows = [_tagged_row(task, answer, details) for answer in answers]
    else:
        columns = list(task.text_columns)
        if len(columns) == 1:
            columns = [LINE_COLUMN]
        added = task.output_columns(details)
        rows = [
            dict(
                zip([*columns, *added], [*given, *task.output_values(answer, details)], strict=True)
            )
            for given, answer in zip(texts, answers, strict=True)
        ]
    single = next(iter(rows[0])) == LINE_COLUMN and not isinstance(task, Tagging)
    kind = None if is_stream(output) else named_kind(output)
    kind = kind or ("text" if single else "jsonl")
    layout = Layout(kind, {"csv": ",", "tsv": "\t"}.get(kind, ""), kind == "csv")
    with open_writer(output, layout, list(rows[0])) as writer:
        for row in rows:
            writer.write(row)


def _tagged_row(task: Tagging, answer: TaggedText, details: bool) -> dict[str, Any]:
    row: dict[str, Any] = {LINE_COLUMN: answer.text}
    if details or not task.has_entities:
        row |= {"words": list(answer.words), "tags": list(answer.tags)}
    if details:
        row["probabilities"] = [round(chance, 6) for chance in answer.probabilities]
    if task.has_entities:
        row["entities"] = [mention.to_dict() for mention in answer.entities]
    return row


def _texts(predictor: Predictor, text: TextOrDict, number: int) -> tuple[str, ...]:
    """The texts of an example, as many as there are columns."""
    given: Text = predictor.unnamed(text, number)
    if isinstance(given, str):
        return (given,)
    lacking = len(predictor.task.text_columns) - len(given)
    return (*given, *[""] * lacking)


def _count(text: TextOrDict) -> int:
    return 1 if isinstance(text, str) else len(text)


def _columns(task: MultipleChoice, count: int) -> tuple[str, ...]:
    """Columns for `count` texts: those of training, and names for further choices."""
    known = task.text_columns[: max(count, len(task.prompt_columns) + 2)]
    more = range(len(known), count)
    return (*known, *(f"choice {number - len(task.prompt_columns) + 1}" for number in more))


def _short(text: str) -> str:
    text = visible(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
