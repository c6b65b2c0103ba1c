"""The labelled examples of a fine-tuning run: one's own tables, or a public data set's files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.tasks import task_class
from bertine.tasks.base import Task
from bertine.tasks.choice_data import SWAG
from bertine.tasks.conll import Columns, find_tagged, named_columns, read_sentences
from bertine.tasks.examples import Examples, find_splits
from bertine.tasks.glue import GlueTask, glue_task
from bertine.tasks.glue_data import glue_built, read_glue
from bertine.tasks.options import TableOptions
from bertine.tasks.own_data import HOLD_OUT, read_own
from bertine.tasks.span_data import read_span_splits
from bertine.tasks.spans import MAX_LENGTH, SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging

#: By which validation examples are held out in place of the run's own seed; see `same_split`.
_split_seed: ContextVar[int | None] = ContextVar("split seed", default=None)


@contextlib.contextmanager
def same_split(seed: int) -> Iterator[None]:
    """Within it, validation examples are held out by this seed, whatever the seed of the run: runs
    that are compared with each other must be judged on the same ones."""
    before = _split_seed.set(seed)
    try:
        yield
    finally:
        _split_seed.reset(before)


@dataclass(frozen=True)
class Labelled:
    """What a run is trained and judged on.

    Attributes:
        build: (the longest input) → the task that the training examples describe.
        train: the training examples.
        validation: what the model is judged on after each epoch.
        others: further validation sets, by the word before the names of their metrics.
        max_length: the longest input, in pieces, where nobody says.
    """

    build: Callable[[int], Task[Any]]
    train: Examples
    validation: Examples
    others: dict[str, Examples] = field(default_factory=dict)
    max_length: int = 128


@dataclass(frozen=True)
class TaggedReading:
    """How tagged words are read; see :func:`bertine.training.finetune.finetune`."""

    word_column: int | None = None
    tag_column: int | None = None
    tag_scheme: str | None = None
    document_context: bool = False

    def refuse(self, task: str) -> None:
        """Raise a :class:`BertineError` if any of it is given for another task."""
        for name, default in ((f.name, f.default) for f in fields(self)):
            if getattr(self, name) != default:
                raise BertineError(f"{name} is for the task tagging, but the task is {task!r}")

    def read(
        self,
        data: Path | str,
        seed: int,
        text_columns: Sequence[str] | str | None,
        label_column: str | None,
        format: str | None,
        strict: bool,
    ) -> Labelled:
        """The tagged sentences of `data`.

        Raises:
            BertineError: there is no training file; what reading the files raises.
        """
        splits = find_tagged(data)
        if splits.train is None:
            raise BertineError(f"{data}: has no training file (train.conll, .txt, .jsonl, …)")
        columns = named_columns(text_columns, label_column, self.word_column, self.tag_column)
        reading: dict[str, Any] = {"scheme": self.tag_scheme, "format": format, "strict": strict}
        train = read_sentences(splits.train, columns, **reading)
        if splits.validation is None:
            train, validation = train.hold_out(HOLD_OUT, seed)
        else:
            own = Columns.trained_with(train.text_columns, train.label_column)
            if train.scheme == "plain":
                reading["scheme"] = "plain"
            validation = read_sentences(splits.validation, columns.merged(own), **reading)
        return Labelled(
            lambda max_length: Tagging.from_examples(
                train, max_length=max_length, document_context=self.document_context
            ),
            train,
            validation,
        )


def read_labelled(
    task: str,
    data: Path | str,
    *,
    glue: str | None,
    seed: int,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    format: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    limits: SpanLimits | None = None,
    tagging: TaggedReading | None = None,
    options: TableOptions | None = None,
) -> Labelled:
    """The examples of `data` for `task`; see :func:`bertine.training.finetune.finetune`. `limits`
    are those of questions and contexts.

    Raises:
        BertineError: no such task; options of spans or of tagging are given for another task; a
            task of GLUE is named for another data set, or not named for GLUE; columns are named
            for GLUE, which has its own; what reading the files raises.
    """
    fixed = _split_seed.get()
    seed = seed if fixed is None else fixed
    if limits is not None and task not in ("squad", SpanExtraction.name):
        raise BertineError(
            "doc_stride, max_question_length and max_answer_length are for spans, but the task is "
            f"{task!r}"
        )
    tagging = tagging or TaggedReading()
    if task != Tagging.name:
        tagging.refuse(task)
    options = options or TableOptions()
    options.refuse("choice" if task == SWAG else task)
    if task == "glue":
        if glue is None:
            raise BertineError(
                "which task of GLUE? name it with glue_task (--task CoLA), or take all there are "
                "(--all)"
            )
        named = [text_columns, label_column, format, quotes]
        if any(value is not None for value in named):
            raise BertineError(
                "the columns and the format of GLUE's files are known; leave them out, or "
                "fine-tune on the file as your own data (bertine finetune text)"
            )
        return _glue(data, glue_task(glue), seed, strict)
    swag = task == SWAG
    if swag and (text_columns or label_column or options.choice_columns):
        raise BertineError(
            "the columns of SWAG are known; leave them out, or fine-tune on the file as your own "
            "data (bertine finetune choice)"
        )
    kind = task_class({SWAG: "choice", "squad": SpanExtraction.name}.get(task, task))
    if glue is not None:
        raise BertineError(f"{glue!r} is named as a task of GLUE, but the task is {task!r}")
    if kind is SpanExtraction:
        questions, held = read_span_splits(
            data,
            official=task == "squad",
            seed=seed,
            text_columns=text_columns,
            label_column=label_column,
            format=format,
            quotes=quotes,
            strict=strict,
        )
        return Labelled(
            lambda longest: SpanExtraction.from_examples(
                questions, max_length=longest, limits=limits
            ),
            questions,
            held,
            max_length=MAX_LENGTH,
        )
    if kind is Tagging:
        if quotes is not None:
            raise BertineError("files of tagged words have no quotes; leave quotes out")
        return tagging.read(data, seed, text_columns, label_column, format, strict)
    splits = find_splits(data)
    if splits.train is None:
        raise BertineError(f"{data}: has no training file (train.csv, .tsv, .jsonl or .txt)")
    train, validation, build = read_own(
        kind,
        splits,
        seed=seed,
        options=options,
        swag=swag,
        text_columns=text_columns,
        label_column=label_column,
        format=format,
        quotes=quotes,
        strict=strict,
    )
    return Labelled(build, train, validation)


def _glue(data: Path | str, task: GlueTask, seed: int, strict: bool) -> Labelled:
    read = read_glue(data, task, strict=strict)
    train, validation = read.train, read.validation
    if validation is None:
        if len(task.validation) > 1:
            wanted = " and ".join(task.validation.values())
            raise BertineError(f"{data}: {task.name} is judged on {wanted}, which are not there")
        train, validation = train.hold_out(HOLD_OUT, seed, stratify=not task.regression)
    return Labelled(
        lambda max_length: glue_built(task, train, max_length), train, validation, read.others
    )
