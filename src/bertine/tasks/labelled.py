"""The labelled examples of a fine-tuning run, or to judge a model on: which reader reads them.

A new kind of data is a reader in :mod:`bertine.tasks.readers` and a line here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.tasks import task_class
from bertine.tasks.base import Task
from bertine.tasks.glue import glue_task_of
from bertine.tasks.readers import (
    GlueReader,
    Reader,
    Sets,
    SpanReader,
    SwagReader,
    TableReader,
    TaggedReader,
)
from bertine.tasks.reading import Labelled, Reading

__all__ = ["Labelled", "Reading", "read_evaluation", "read_labelled", "same_split"]

#: By which validation examples are held out in place of the run's own seed; see `same_split`.
_split_seed: ContextVar[int | None] = ContextVar("split seed", default=None)

#: The kinds of data, by the tasks and data sets that are not read from tables of one's own.
_READERS: dict[str, Reader] = {
    "glue": GlueReader(),
    "squad": SpanReader(official=True),
    "spans": SpanReader(official=False),
    "swag": SwagReader(),
    "tagging": TaggedReader(),
}


@contextlib.contextmanager
def same_split(seed: int) -> Iterator[None]:
    """Within it, validation examples are held out by this seed, whatever the seed of the run: runs
    that are compared with each other must be judged on the same ones."""
    before = _split_seed.set(seed)
    try:
        yield
    finally:
        _split_seed.reset(before)


def read_labelled(
    task: str, data: Path | str, *, seed: int, reading: Reading | None = None
) -> Labelled:
    """The examples of `data` for `task`; see :func:`bertine.training.finetune.finetune`.

    Raises:
        BertineError: no such task; options of other tasks are given; a task of GLUE is named for
            another data set, or not named for GLUE; columns are named for GLUE or SWAG, which
            have their own; what reading the files raises.
    """
    fixed = _split_seed.get()
    seed = seed if fixed is None else fixed
    reading = reading or Reading()
    reading.refuse(task)
    if task not in _READERS:
        task_class(task)  # which knows the nearest name
    if task != "glue" and reading.glue_task is not None:
        raise BertineError(
            f"{reading.glue_task!r} is named as a task of GLUE, but the task is {task!r}"
        )
    return _READERS.get(task, TableReader()).training(task, data, seed, reading)


def read_evaluation(task: Task[Any], data: Path | str, reading: Reading | None = None) -> Sets:
    """The examples of `data` to judge the trained `task` on, by the word before the names of
    their metrics; see :func:`bertine.inference.predictor.evaluate`. Of a model that was trained
    on a task of GLUE its official files are known.

    Raises:
        BertineError: options of tagging are given for another task; what reading the files raises.
    """
    reading = reading or Reading()
    reading.refuse_tagging(task.name)
    kind = "glue" if glue_task_of(task.task_info().dataset) else task.name
    return _READERS.get(kind, TableReader()).evaluation(task, data, reading)
