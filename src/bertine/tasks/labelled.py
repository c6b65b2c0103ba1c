"""The labelled examples of a fine-tuning run: one's own tables, or a public data set's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.tasks import task_class
from bertine.tasks.base import Task
from bertine.tasks.choice_data import SWAG
from bertine.tasks.examples import Examples, find_splits
from bertine.tasks.glue import GlueTask, glue_task
from bertine.tasks.glue_data import glue_built, read_glue
from bertine.tasks.options import TableOptions
from bertine.tasks.own_data import HOLD_OUT, read_own


@dataclass(frozen=True)
class Labelled:
    """What a run is trained and judged on.

    Attributes:
        build: (the longest input) → the task that the training examples describe.
        train: the training examples.
        validation: what the model is judged on after each epoch.
        others: further validation sets, by the word before the names of their metrics.
    """

    build: Callable[[int], Task[Any]]
    train: Examples
    validation: Examples
    others: dict[str, Examples] = field(default_factory=dict)


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
    options: TableOptions | None = None,
) -> Labelled:
    """The examples of `data` for `task`; see :func:`bertine.training.finetune.finetune`.

    Raises:
        BertineError: no such task; a task of GLUE is named for another data set, or not named for
            GLUE; columns are named for GLUE, which has its own; what reading the files raises.
    """
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
    kind = task_class("choice" if swag else task)
    if glue is not None:
        raise BertineError(f"{glue!r} is named as a task of GLUE, but the task is {task!r}")
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
        train, validation = train.hold_out(HOLD_OUT, seed, stratify=not task.regression)
    return Labelled(
        lambda max_length: glue_built(task, train, max_length), train, validation, read.others
    )
