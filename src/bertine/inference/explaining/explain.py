"""Explain the answers of a model for given texts, the rows of a file, or a run's worst examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertine.core.console import ReportOf, html_of, plural
from bertine.core.errors import BertineError
from bertine.core.files import write_json
from bertine.core.names import ExplanationMethod, option
from bertine.core.text import shortened, visible
from bertine.data.examples import Examples, as_columns, row_texts
from bertine.data.lines import TableLayout, is_typed, named_kind
from bertine.data.squad import load_squad
from bertine.data.writer import open_writer
from bertine.inference.explaining.explainer import Explainer, Explanation
from bertine.inference.explaining.nearest import NearestExamples, nearest_of
from bertine.inference.explaining.words import NoWords
from bertine.inference.predict_files import grouped
from bertine.inference.predictor import Pipeline, Predictor
from bertine.inference.rows import (
    TaskTable,
    TextOrDict,
    checked_texts,
    is_one,
    joined,
    open_task_table,
    open_texts,
    several,
    text_progress,
    unused,
)
from bertine.options.inference import ExplainOptions, PlainTexts
from bertine.options.verbs import takes_options
from bertine.tasks.answer import WorstExample
from bertine.tasks.base import Features, Task

#: Characters of a text that head its explanation in the terminal.
_HEAD = 100
#: The maximum number of explanations that a notebook shows.
_IN_NOTEBOOK = 20
#: The texts of an example, and a function that makes a row of their explanation.
_Row = tuple[Any, Callable[..., dict[str, Any]]]


@dataclass(repr=False)
class Explanations(ReportOf[Explanation]):
    """The explanations of :func:`explain`, a sequence.

    Attributes:
        items: one for each text, in their order; empty where they were written to a file.
        written: the number of explanations written to a file.
        empty: texts without words, or without the word or the tag asked about, which have no
            explanation.
        notes: notes on what was repaired in the input.
    """

    items: list[Explanation] = field(default_factory=list)
    written: int = 0
    empty: int = 0
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return each text and its explanation as lines of text."""
        lines: list[str] = []
        for item in self.items:
            lines += [visible(shortened(text, _HEAD)) for text in item.texts]
            lines += [*item.lines(), ""]
        if self.written:
            lines.append(f"explained {plural(self.written, 'text')}")
        if self.empty:
            what = "nothing that could be explained"
            lines.append(f"{plural(self.empty, 'text', 'has', 'have')} {what}")
        return [*lines, *self.notes]

    def _repr_html_(self) -> str:
        """Return the texts with coloured words as HTML for notebooks; at most 20 texts."""
        shown = "".join(item._repr_html_() for item in self.items[:_IN_NOTEBOOK])
        more = len(self.items) - _IN_NOTEBOOK
        rest = [f"and {plural(more, 'more text')}"] if more > 0 else []
        return shown + html_of([*rest, *replace(self, items=[]).lines()])


@takes_options()
def explain(
    model: Predictor | Path | str,
    texts: Sequence[TextOrDict] | TextOrDict | None = None,
    *,
    input: Path | str | None = None,
    output: Path | str | None = None,
    method: ExplanationMethod = "leave-one-out",
    label: str | None = None,
    word: str | None = None,
    show_progress: bool = True,
    options: ExplainOptions,
) -> Explanations:
    """Explain how each word of a text contributes to the model's answer.

    Contributions are to the log-odds of the answer, of a regression to the score: above 0 a word
    speaks for the answer, below 0 against it. With ``"leave-one-out"`` a word's is what the score
    loses without the word; with ``"integrated-gradients"`` they add up to the difference between
    the scores of the text and of the text with every word masked, to 0.1 or 5% of it.

    For a tagger the tags of all its entities are explained together (`label`: those of one type),
    for spans the start and end of the answer, for multiple choice the choice against the others. A
    text that is too long for the model is explained as far as the model reads it.

    Args:
        model: a fine-tuned model directory, or a loaded one.
        texts: one text, or several; the texts that belong together are a tuple, a dictionary by
            column, or, where all are strings, every two for a model of pairs. Not with `input`.
        input: a csv, tsv, JSON lines, Parquet, .xlsx or plain-text file, or ``-`` for stdin.
        output: a file for JSON lines, or ``-`` for stdout: the columns of the input and the
            ``explanation``. None: the explanations are returned.
        method: ``"leave-one-out"`` or ``"integrated-gradients"``.
        label: the label to explain in place of the answer; for a tagger the type of the entities.
        word: for a tagger: explain the tag of this word alone, at its first place in the text.
        show_progress: on stderr.
        options: the options described below, on reading `input` and on where to compute; gradients
            are computed in fp32.

    Raises:
        BertineError: no such model; neither or both of `texts` and `input`; an unknown method,
            label or word; an item that is not a text; the file cannot be read; an output that is
            not JSON lines.
    """
    if texts is not None and not is_one(texts):
        texts = several(texts)
    if (texts is None or len(texts) == 0) == (input is None):
        raise BertineError(f"give either texts or an input file ({option('input')})")
    for name in ("text_columns", "format", "quotes", "sheet"):
        if input is None and getattr(options, name) is not None:
            raise BertineError(f"{option(name)} is for an input file; leave it out")
    kind = None if output is None or str(output) == "-" else named_kind(output)
    if kind not in (None, "jsonl") or is_typed(output):
        raise BertineError(f"{output}: explanations are JSON lines; name the output .jsonl")
    predictor = Predictor.opened(model, options.device, options.precision)
    predictor.explainer().check(method)
    nearest = nearest_of(predictor, options, show_progress)
    report = Explanations()
    with ExitStack() as stack:
        if input is None:
            assert texts is not None
            rows = _given(predictor, texts)
        else:
            show = show_progress and str(output) != "-"
            rows = _rows(stack, predictor, input, options, show, report)
        writer = None
        if output is not None:
            writer = stack.enter_context(open_writer(output, TableLayout("jsonl"), ()))
        for parts, row_with in rows:
            explanation = None
            try:
                explanation = predictor.explain(parts, method=method, label=label, word=word)
                if nearest is not None:
                    explanation = replace(explanation, nearest=nearest.to(parts))
            except NoWords:
                if input is None:
                    raise
                report.empty += 1
            if writer is not None:
                content = None if explanation is None else explanation.to_dict()
                writer.write(row_with(content))
                report.written += explanation is not None
            elif explanation is not None:
                report.items.append(explanation)
    return report


def _given(predictor: Predictor, texts: Sequence[TextOrDict] | TextOrDict) -> Iterator[_Row]:
    """Yield the given texts, and the function that makes a row of each explanation."""
    for text in checked_texts(predictor.task, grouped(predictor.task, texts)):
        parts = [text] if isinstance(text, str) else list(text)
        yield text, lambda explanation, parts=parts: {"texts": parts, "explanation": explanation}


@contextmanager
def _open_words(task: Task[Any], input: Path | str, options: ExplainOptions) -> Iterator[TaskTable]:
    named = as_columns(options.text_columns)
    if len(named) > 1:
        raise BertineError("a tagger takes one text column")
    reading = PlainTexts.of(options, text_column=next(iter(named), None))
    with open_texts(input, reading) as (table, column):
        yield TaskTable(table, table, (column,), [])


def _open_questions(
    task: Task[Any], input: Path | str, options: ExplainOptions
) -> AbstractContextManager[TaskTable]:
    if options.format is None and load_squad(input, options.encoding):
        columns = as_columns(options.text_columns) or task.text_columns
        raise BertineError(
            f"{input}: is in SQuAD's format; give a table with the columns "
            f"{' and '.join(columns)}, or a question and a context"
        )
    return open_task_table(task, input, options)


#: How the texts of a file are opened, by the reader of a task; else they are those of a table.
_OPENERS = {"words": _open_words, "questions": _open_questions}


def _rows(
    stack: ExitStack,
    predictor: Predictor,
    input: Path | str,
    options: ExplainOptions,
    show: bool,
    report: Explanations,
) -> Iterator[_Row]:
    """Yield the texts of each row of a file, and the function that adds their explanation to the
    row."""
    opener = _OPENERS.get(predictor.task.reader, open_task_table)
    opened = stack.enter_context(opener(predictor.task, input, options))
    table = opened.table
    report.notes += opened.notes
    name = unused("explanation", table.columns, "predicted_")
    progress = text_progress("explain", input, table.layout, show=show)
    advance = stack.enter_context(progress)

    for row in opened.rows:
        texts = row_texts(table, row, opened.columns)
        parts = texts[0] if len(texts) == 1 else texts
        yield (
            parts,
            lambda explanation, row=row: joined(
                table.name, row, {name: explanation}, opened.columns
            ),
        )
        advance(1)
    report.notes += table.stats.notes(table.name)


# Worst examples: the explanations on the page of a run.

#: The name of the file in a run's folder.
EXPLAINED = "explained.json"
#: The number of examples that are explained, of tokens of each that are read, and of words that are
#: written: each word costs the answer to one more text.
_EXAMPLES, TOKENS, _WORDS = 5, 128, 6
#: Training examples that are shown with each explanation.
_NEAREST = 2


def write_explained(
    folder: Path,
    explainer: Explainer,
    answering: Pipeline,
    worst: Sequence[WorstExample],
    validation: Sequence[Features],
    training: tuple[Examples[Any], Sequence[Features]],
) -> None:
    """Write the explanations of the worst predicted examples to ``explained.json`` in a run's
    `folder`: under ``examples`` the ``index`` of each, the ``answer``, the ``unit`` and its
    strongest ``words``, each with its ``contribution``, and the ``nearest`` training examples (of
    all that have labels, or of 1,000 drawn at random, with 65,536 tokens at most). The examples are
    the first five that are predicted wrongly, or, where none is, the first five; nothing is written
    for a task whose answers cannot be explained.

    Args:
        folder: the folder of the run.
        explainer: the explainer of the model; it should read at most :data:`TOKENS` of a text.
        answering: the model, which computes the vectors of examples.
        worst: the worst validation examples, in their order.
        validation: the features of the validation examples.
        training: the examples that the model was trained on, and their features.
    """
    wrong = [item for item in worst if item.label != item.answer]
    written: list[dict[str, Any]] = []
    near: NearestExamples | None = None
    for item in (wrong or worst)[:_EXAMPLES]:
        try:
            result = explainer.explain(item.texts)
        except BertineError:  # a text without words, or a task that generates text
            continue
        words = [
            {"word": word.word, "contribution": round(word.contribution, 4)}
            for word in result.strongest(_WORDS)
        ]
        entry = {"index": item.index, "answer": result.answer, "unit": result.unit, "words": words}
        try:
            near = near or NearestExamples.among_some(answering, *training, _NEAREST)
            own = [feature for feature in validation if feature.row == item.index]
            entry["nearest"] = [one.to_dict() for one in near.to_features(own)]
        except BertineError:  # no labels, or another number of choices
            pass
        written.append(entry)
    if written:
        write_json(folder / EXPLAINED, {"examples": written})
