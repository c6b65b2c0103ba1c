"""Read labelled data of every kind, for training and for judging a trained model.

The kinds are users' tables, SWAG's csv, questions (SQuAD's JSON or tables), tagged words and GLUE's
files.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.data.examples import (
    Examples,
    columns_of_training,
    find_splits,
    judged_table,
    unused_note,
)
from bertine.data.in_memory import Data, DataParts, InMemoryTable, TableLike, as_data
from bertine.data.spans import read_span_evaluation, read_span_splits, span_files
from bertine.data.tagged_sentences import WordColumns, find_tagged, named_columns, read_sentences
from bertine.datasets.glue import (
    find_glue_labelled,
    glue_folder,
    glue_task,
    glue_task_of,
    read_glue,
    read_glue_file,
    refuse_unlabelled,
)
from bertine.datasets.multiple_choice import RACE_LENGTH, tables_of_race
from bertine.datasets.own_data import DatasetSplits, read_for, read_own
from bertine.options.data import DEFAULTS, DataConfig, SpanReading
from bertine.options.finetuning import FinetuneOptions
from bertine.tasks import task_class
from bertine.tasks.base import Task
from bertine.tasks.spans import MAX_LENGTH, SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging

#: Labelled sets, by the prefix of their metrics' names; "" is that of the first.
Sets = dict[str, Examples[Any]]


class Reader(Protocol):
    """A reader of one kind of data."""

    def training(self, task: str, data: Data, config: DataConfig) -> DatasetSplits:
        """Read the examples for training `task`.

        Raises:
            BertineError: there is no training file; an option is given that the files do not allow;
                or the files cannot be read.
        """
        ...

    def has_validation(self, data: Data, config: DataConfig) -> bool:
        """Return whether `data` have a validation file, so that nothing is held out.

        Raises:
            BertineError: there is no such file or folder, or it is not clear which file is meant.
        """
        ...

    def evaluation(self, task: Task[Any], data: Data, config: DataConfig) -> Sets:
        """Read the examples for judging a trained `task`: from a file, or from the validation (else
        the test) file of a folder. Columns that are not named are those of its training.

        Raises:
            BertineError: there is no such file; or it cannot be read.
        """
        ...


class TableReader:
    """A reader of tables with a row for each example: users' own; with `swag` SWAG's csv, whose
    columns are known."""

    def __init__(self, *, swag: bool = False) -> None:
        self._swag = swag

    def training(self, task: str, data: Data, config: DataConfig) -> DatasetSplits:
        splits = find_splits(data)
        if splits.train is None:
            raise BertineError(f"{data}: has no training file (train.csv, .tsv, .jsonl or .txt)")
        kind = task_class("choice" if self._swag else task)
        return read_own(kind, splits, config, swag=self._swag)

    def has_validation(self, data: Data, config: DataConfig) -> bool:
        return find_splits(data).validation is not None

    def evaluation(self, task: Task[Any], data: Data, config: DataConfig) -> Sets:
        path = judged_table(data)
        with _columns_of(task, config):
            return {"": read_for(task, path, config)}


class ChoiceReader(TableReader):
    """A reader of multiple choice: tables, or a folder in RACE's layout."""

    def training(self, task: str, data: Data, config: DataConfig) -> DatasetSplits:
        tables = tables_of_race(data)
        splits = super().training(task, tables, config)
        return splits if tables is data else replace(splits, max_length=RACE_LENGTH)

    def has_validation(self, data: Data, config: DataConfig) -> bool:
        return super().has_validation(tables_of_race(data), config)

    def evaluation(self, task: Task[Any], data: Data, config: DataConfig) -> Sets:
        return super().evaluation(task, tables_of_race(data), config)


class SpanReader:
    """A reader of questions about contexts: from a table, or from SQuAD's JSON.

    Args:
        official: whether only SQuAD's format is accepted.
    """

    def __init__(self, *, official: bool) -> None:
        self._official = official

    def training(self, task: str, data: Data, config: DataConfig) -> DatasetSplits:
        questions, held = read_span_splits(data, config, official=self._official)
        settings = {"limits": SpanLimits(**SpanReading.of(config).changed())}
        return DatasetSplits(
            SpanExtraction, questions, held, settings=settings, max_length=MAX_LENGTH
        )

    def has_validation(self, data: Data, config: DataConfig) -> bool:
        return span_files(data, official=self._official, encoding=config.encoding)[1] is not None

    def evaluation(self, task: Task[Any], data: Data, config: DataConfig) -> Sets:
        own = task.task_info().dataset is None  # SQuAD's columns are not those of a table
        trained = (task.text_columns, task.label_column if own else None)
        with _columns_of(task, config):
            return {"": read_span_evaluation(data, config, trained_with=trained)}


class TaggedReader:
    """A reader of words with their tags: column files, JSON lines or Parquet."""

    def training(self, task: str, data: Data, config: DataConfig) -> DatasetSplits:
        columns = named_columns(config)
        splits = find_tagged(data)
        if splits.train is None:
            raise BertineError(f"{data}: has no training file (train.conll, .txt, .jsonl, …)")
        train = read_sentences(splits.train, config)
        if splits.validation is None:
            train, validation = train.hold_out_by(config)
        else:
            own = WordColumns.trained_with(train.text_columns, train.label_column)
            if train.scheme == "plain":
                config = DataConfig.of(config, tag_scheme="plain")
            # Columns of the training file are known; another kind of file has its own.
            columns = replace(columns.merged(own), given=())
            validation = read_sentences(splits.validation, config, columns)
        settings = {"document_context": config.document_context}
        return DatasetSplits(Tagging, train, validation, settings=settings)

    def has_validation(self, data: Data, config: DataConfig) -> bool:
        return find_tagged(data).validation is not None

    def evaluation(self, task: Task[Any], data: Data, config: DataConfig) -> Sets:
        assert isinstance(task, Tagging)
        columns = named_columns(config)
        if not task.has_entities and config.tag_scheme not in (None, "plain"):
            raise BertineError(
                "the model's tags mark no entities, so they are in no scheme; leave out tag_scheme"
            )
        trained = WordColumns.trained_with(task.text_columns, task.label_column)
        scheme = config.tag_scheme if task.has_entities else "plain"
        config = DataConfig.of(config, tag_scheme=scheme)
        path = judged_table(data, find_tagged)
        return {"": read_sentences(path, config, columns.merged(trained))}


class GlueReader:
    """A reader of GLUE's official files."""

    def training(self, task: str, data: Data, config: DataConfig) -> DatasetSplits:
        if config.glue_task is None:
            raise BertineError(
                "which task of GLUE? name it with glue_task (--task CoLA), or take all there are "
                "(--all)"
            )
        kind = glue_task(config.glue_task)
        assert isinstance(data, str | Path)  # read_labelled refuses tables in memory
        train, sets = read_glue(data, kind, config)
        validation = sets.pop("", None)
        if validation is None:
            if len(kind.validation) > 1:
                wanted = " and ".join(kind.validation.values())
                raise BertineError(
                    f"{data}: {kind.name} is judged on {wanted}, which are not there"
                )
            train, validation = train.hold_out_by(config, stratify=not kind.regression)
        return DatasetSplits(kind.kind, train, validation, sets, kind.settings)

    def has_validation(self, data: Data, config: DataConfig) -> bool:
        if config.glue_task is None or not isinstance(data, str | Path):
            return False
        kind = glue_task(config.glue_task)
        folder = glue_folder(data, kind)
        return any((folder / name).is_file() for name in kind.validation.values())

    def evaluation(self, task: Task[Any], data: Data, config: DataConfig) -> Sets:
        kind = glue_task_of(task.task_info().dataset)
        own = config.layout or config.probability_columns
        if kind is None or own or isinstance(data, InMemoryTable | DataParts):
            return TableReader().evaluation(task, data, config)
        labelled = find_glue_labelled(data, kind)
        if labelled is None:  # a user's table, for a model of GLUE
            refuse_unlabelled(data, kind)
            return TableReader().evaluation(task, data, config)
        kind, files = labelled
        return {word: read_glue_file(path, kind, config) for word, path in files.items()}


def _columns_of(task: Task[Any], config: DataConfig) -> AbstractContextManager[None]:
    """Use the columns of training for those that `config` does not name."""
    return columns_of_training(
        () if config.text_columns else task.text_columns,
        None if config.label_column else task.label_column,
    )


# Readers by task: labelled examples for fine-tuning or judging, read by the reader of their kind. A
# new kind of data is a class above. A task that is not read from users' tables has a line here,
# also where another task has the same kind of data.

#: Readers, by the names of the tasks and data sets that are not only read from users' tables.
_READERS: dict[str, Reader] = {
    "glue": GlueReader(),
    "squad": SpanReader(official=True),
    "spans": SpanReader(official=False),
    "choice": ChoiceReader(),
    "swag": TableReader(swag=True),
    "tagging": TaggedReader(),
}

#: The tasks whose data have files of known names, possibly among others.
_OFFICIAL = ("glue", "squad", "swag")


def given_data(data: Path | str | DatasetSplits | TableLike) -> Data | DatasetSplits:
    """Return `data` as a path or as tables in memory, or unchanged if they are examples that are
    read already.

    Raises:
        BertineError: they are none of these.
    """
    return data if isinstance(data, DatasetSplits) else as_data(data)


def splits_of(task: str, data: Data | DatasetSplits, config: DataConfig) -> DatasetSplits:
    """Read the examples of `data` for `task`, or return `data` if they are examples that are read
    already.

    Raises:
        BertineError: options for reading are given for examples that are read already, or these are
            for another task or not all labelled; an error of :func:`read_labelled`.
    """
    if not isinstance(data, DatasetSplits):
        return read_labelled(task, data, config)
    for name in config.given():
        raise BertineError(
            f"{name} is given, but the data are examples that are read already; leave it out, or "
            "give a file or a folder"
        )
    if data.again:
        return data
    for examples in (data.train, data.validation, *data.others.values()):
        without = [number for number, item in enumerate(examples.items) if item.label is None]
        if without:
            raise BertineError(
                f"{examples.source}: {len(without)} of {len(examples)} examples have no label "
                f"(the first is items[{without[0]}]); label them or leave them out"
            )
    name = data.task_class.name
    if task != name:
        raise BertineError(f"the examples are for the task {name!r}, not for {task!r}")
    config = DataConfig(known_rows=config.known_rows)
    return replace(data, config=config, task="", source=None)


def read_labelled(task: str, data: Data, config: DataConfig = DEFAULTS) -> DatasetSplits:
    """Read the examples of `data` for `task`; see :func:`bertine.finetune`.

    Raises:
        BertineError: there is no such task; options of other tasks are given; a task of GLUE is
            named for another data set, or not named for GLUE; columns are named for GLUE or SWAG,
            which have their own; there is a `split_seed` and a validation file; or the files
            cannot be read.
    """
    refuse_options_of_others(task, config)
    if task in ("glue", "squad") and isinstance(data, InMemoryTable | DataParts):
        raise BertineError(
            f"{data}: the task {task!r} reads official files, not tables in memory; give their "
            "path, or fine-tune on the table as your own data"
        )
    if task not in _READERS:
        task_class(task)  # whose error names the nearest one
    if config.split_seed is not None and has_validation(task, data, config):
        raise BertineError(
            f"{data}: has validation examples of its own, so that {option('split_seed')} holds "
            "none out; leave it out"
        )
    labelled = _READERS.get(task, TableReader()).training(task, data, config)
    if task not in _OFFICIAL:
        used = {labelled.train.source, labelled.validation.source}
        labelled.train.notes += unused_note(data, used)
    return replace(labelled, config=config, task=task, source=data)


def refuse_options_of_others(task: str, config: DataConfig) -> None:
    """Raise a :class:`BertineError` if an option for other tasks is given."""
    FinetuneOptions.refuse_others(task, config.given(), f"the task is {task!r}")


def has_validation(task: str, data: Data, config: DataConfig) -> bool:
    """Return whether `data` have a validation file for `task`, so that nothing is held out.

    Raises:
        BertineError: there is no such file or folder, or it is not clear which file is meant.
    """
    return _READERS.get(task, TableReader()).has_validation(data, config)


def read_evaluation(task: Task[Any], data: Data, config: DataConfig = DEFAULTS) -> Sets:
    """Read the examples of `data` for judging the trained `task`, by the prefix of their metrics'
    names; see :func:`bertine.evaluate`. For a model that was trained on a task of GLUE, its
    official files are known.

    Raises:
        BertineError: options of other tasks are given; or the files cannot be read.
    """
    refuse_options_of_others(task.name, config)
    kind = "glue" if glue_task_of(task.task_info().dataset) else task.name
    return _READERS.get(kind, TableReader()).evaluation(task, data, config)
