"""Read the labelled examples of a fine-tuning run, or to judge a model on, by the reader of their
kind.

A new kind of data is a reader in :mod:`bertine.datasets.readers` and a line here.
"""

from __future__ import annotations

from typing import Any

from bertine.datasets.glue import glue_task_of
from bertine.datasets.readers import (
    GlueReader,
    Reader,
    Sets,
    SpanReader,
    SwagReader,
    TableReader,
    TaggedReader,
)
from bertine.datasets.reading import Labelled, Reading
from bertine.errors import BertineError
from bertine.options.names import option
from bertine.records.splits import unused_note
from bertine.tables.given import Data, GivenParts, GivenTable
from bertine.tasks import task_class
from bertine.tasks.base import Task

__all__ = ["Labelled", "Reading", "has_validation", "read_evaluation", "read_labelled"]

#: The kinds of data, by the tasks and data sets that are not read from tables of one's own.
_READERS: dict[str, Reader] = {
    "glue": GlueReader(),
    "squad": SpanReader(official=True),
    "spans": SpanReader(official=False),
    "swag": SwagReader(),
    "tagging": TaggedReader(),
}

#: The tasks whose data have files of known names, beside which there may be others.
_OFFICIAL = ("glue", "squad", "swag")


def read_labelled(task: str, data: Data, *, seed: int, reading: Reading | None = None) -> Labelled:
    """Read the examples of `data` for `task`; see :func:`bertine.finetune`. Where
    there is no validation file, the `split_seed` of `reading`, or `seed`, decides what is held out.

    Raises:
        BertineError: no such task; options of other tasks are given; a task of GLUE is named for
            another data set, or not named for GLUE; columns are named for GLUE or SWAG, which
            have their own; there is a `split_seed`, and a validation file; what reading the files
            raises.
    """
    reading = reading or Reading()
    reading.refuse(task)
    if task in ("glue", "squad") and isinstance(data, GivenTable | GivenParts):
        raise BertineError(
            f"{data}: the task {task!r} reads official files, not tables in memory; give their "
            "path, or fine-tune on the table as your own data"
        )
    if task not in _READERS:
        task_class(task)  # which knows the nearest name
    if task != "glue" and reading.glue_task is not None:
        raise BertineError(
            f"{reading.glue_task!r} is named as a task of GLUE, but the task is {task!r}"
        )
    if reading.split_seed is not None and has_validation(task, data, reading):
        raise BertineError(
            f"{data}: has validation examples of its own, so that {option('split_seed')} holds "
            "none out; leave it out"
        )
    labelled = _READERS.get(task, TableReader()).training(
        task, data, seed if reading.split_seed is None else reading.split_seed, reading
    )
    if task not in _OFFICIAL:
        used = {labelled.train.source, labelled.validation.source}
        labelled.train.notes += unused_note(data, used)
    held_out = reading.whole and not has_validation(task, data, reading)
    return labelled.whole() if held_out else labelled


def has_validation(task: str, data: Data, reading: Reading) -> bool:
    """Tell whether `data` have a validation file for `task`, so that nothing is held out.

    Raises:
        BertineError: there is no such file or folder, or it is not clear which file is meant.
    """
    return _READERS.get(task, TableReader()).has_validation(data, reading)


def read_evaluation(task: Task[Any], data: Data, reading: Reading | None = None) -> Sets:
    """Read the examples of `data` to judge the trained `task` on, by the word before the names of
    their metrics; see :func:`bertine.evaluate`. Of a model that was trained
    on a task of GLUE its official files are known.

    Raises:
        BertineError: options of tagging, or of texts with one label, are given for another task;
            what reading the files raises.
    """
    reading = reading or Reading()
    reading.refuse_tagging(task.name)
    reading.options.refuse(task.name)
    kind = "glue" if glue_task_of(task.task_info().dataset) else task.name
    return _READERS.get(kind, TableReader()).evaluation(task, data, reading)
