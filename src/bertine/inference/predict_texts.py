"""Answer texts given on the command line: readable lines in a terminal, rows elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertine.core.console import aligned
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.data.lines import TableLayout, named_kind
from bertine.data.writer import is_stream, open_writer
from bertine.inference.answer_files import TextReport
from bertine.inference.explaining.explainer import Explanation
from bertine.inference.explaining.nearest import NearestExamples
from bertine.inference.explaining.target import LEAVE_ONE_OUT
from bertine.inference.explaining.words import NoWords
from bertine.inference.predictor import Predictor
from bertine.inference.rows import Text, TextOrDict, several
from bertine.tasks.answer import short
from bertine.tasks.base import Task
from bertine.tasks.unknown_text import UnknownText

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
        found = predictor.explain(text)
    except NoWords:
        return None
    return found if nearest is None else replace(found, nearest=nearest.to(text))


def explanation_values(
    predictor: Predictor, texts: Sequence[str], nearest: NearestExamples | None = None
) -> dict[str, Any] | None:
    """Return the explanation as JSON values; None where there is no word."""
    found = explained_or_none(predictor, texts, nearest)
    return None if found is None else found.to_dict()


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
    if not task.reads_questions:
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
    explained: bool = False,
    nearest: NearestExamples | None = None,
) -> GivenTextsReport:
    """Answer `texts` and write the answers: to a terminal as readable lines, elsewhere as rows
    (plain text for single texts, else JSON lines; csv, tsv or Parquet by the name of the output).

    Args:
        texts: one item for each example.
        output: a file, or ``-`` for stdout.
        details: write every probability, not only that of the best answer.
        explained: add the contribution of each word to the answer; rows are then JSON lines.
        nearest: finds the labelled examples that are shown with an explanation; None: none.

    Raises:
        BertineError: see :meth:`Predictor.predict`; or the output cannot be written.
    """
    started = time.monotonic()
    task = predictor.task
    predictor = predictor.over(task.columns_for(max(map(_count, texts))))
    task = predictor.task
    answers, features = predictor.answers_and_features(texts)
    shown = [_texts(predictor, text, number) for number, text in enumerate(texts, 1)]
    unknown = UnknownText(predictor.tokenizer)
    report = GivenTextsReport(max_length=task.max_length, unknown=unknown, answers=answers)
    report.count(len(answers), features, shown)
    report.abstained = sum(answer.abstains for answer in answers)
    explanations: list[Explanation | None] | None = None
    if explained:
        predictor.explainer().check(LEAVE_ONE_OUT)
        explanations = [explained_or_none(predictor, each, nearest) for each in shown]
    report.count_empty(number for number, answer in enumerate(answers, 1) if answer.empty)
    if str(output) == "-" and sys.stdout.isatty():
        lines = readable(task, shown, answers, details=details, explanations=explanations)
        print("\n".join(lines))
    else:
        _write(task, shown, answers, output, details, explanations)
    report.seconds = time.monotonic() - started
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
    rows = [task.summary(example, answer) for example, answer in zip(texts, answers, strict=True)]
    several = len(answers) > 1
    lines = aligned(
        [
            (*cells, short(example[0])) if several else cells
            for cells, example in zip(rows, texts, strict=True)
        ],
        left=(0, 2),
    )
    shown: list[str] = []
    for line, example, answer, found in zip(lines, texts, answers, explanations, strict=True):
        more = answer.flag_lines() + task.lines_below(example, answer, details)
        if found is not None:
            more += found.lines()
        shown += [line, *(f"  {each}" for each in more)]
    return shown


def _write(
    task: Task[Any],
    texts: Sequence[Sequence[str]],
    answers: Sequence[Any],
    output: Path | str,
    details: bool,
    explanations: Sequence[Explanation | None] | None,
) -> None:
    """Write the answers as rows.

    Raises:
        BertineError: there are explanations, and the output is not JSON lines.
    """
    rows = [
        task.row_of(example, answer, details)
        for example, answer in zip(texts, answers, strict=True)
    ]
    single = len(task.text_columns) == 1 and not task.reads_words
    kind = None if is_stream(output) else named_kind(output)
    kind = kind or ("text" if single and explanations is None else "jsonl")
    if explanations is not None:
        check_explained(kind, output)
        for row, found in zip(rows, explanations, strict=True):
            row[EXPLANATION] = None if found is None else found.to_dict()
    layout = TableLayout(kind, {"csv": ",", "tsv": "\t"}.get(kind, ""), kind == "csv")
    # The note on an answer is a key of its row of JSON; other tables have no column for it.
    columns = [name for name in rows[0] if name not in answers[0].flags()]
    with open_writer(output, layout, columns) as writer:
        for row in rows:
            writer.write(row)


def _texts(predictor: Predictor, text: TextOrDict, number: int) -> tuple[str, ...]:
    """Return the texts of an example, one for each column."""
    parts: Text = predictor.unnamed(text, f"input:{number}")
    if isinstance(parts, str):
        return (parts,)
    lacking = len(predictor.task.text_columns) - len(parts)
    return (*parts, *[""] * lacking)


def _count(text: TextOrDict) -> int:
    return 1 if isinstance(text, str) else len(text)
