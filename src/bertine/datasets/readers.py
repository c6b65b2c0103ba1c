"""Read labelled data of every kind, for training and for judging a trained model.

The kinds are users' tables, SWAG's csv, questions (SQuAD's JSON or tables), tagged words and GLUE's
files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
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
from bertine.data.in_memory import Data, InMemorySplits, InMemoryTable
from bertine.data.spans import read_span_evaluation, read_span_splits, span_files
from bertine.data.tagged_sentences import WordColumns, find_tagged, named_columns, read_sentences
from bertine.datasets.glue import (
    find_glue_labelled,
    glue_built,
    glue_folder,
    glue_task,
    glue_task_of,
    read_glue,
    read_glue_file,
    refuse_unlabelled,
)
from bertine.datasets.own_data import HOLD_OUT, read_for, read_own
from bertine.options.data import (
    DocumentContext,
    GlueChoice,
    SplitSeed,
    TableColumns,
    TableReading,
    TaggedColumns,
)
from bertine.options.finetuning import FinetuneOptions
from bertine.tasks import task_class
from bertine.tasks.base import Task
from bertine.tasks.labels import TableOptions
from bertine.tasks.spans import MAX_LENGTH, SpanExtraction, SpanLimits
from bertine.tasks.tagging import Tagging

# Options and results: the common parts of all kinds of data.


@dataclass(frozen=True)
class DatasetSplits:
    """The examples that a run is trained and judged on.

    Attributes:
        build: (the longest input) → the task for the training examples.
        train: the training examples.
        validation: the examples that the model is judged on after each epoch; without any it is not
            judged.
        others: further validation sets, by the prefix of their metrics' names.
        max_length: the longest input by default, in pieces.
    """

    build: Callable[[int], Task[Any]]
    train: Examples[Any]
    validation: Examples[Any]
    others: dict[str, Examples[Any]] = field(default_factory=dict)
    max_length: int = 128

    def whole(self) -> DatasetSplits:
        """Return the splits with the examples that were held out of a file back in their places."""
        items = sorted([*self.train.items, *self.validation.items], key=lambda item: item.line)
        return replace(
            self,
            train=replace(self.train, items=items),
            validation=replace(self.validation, items=[]),
        )


class DataConfig(GlueChoice, TableColumns, TableReading, TaggedColumns, DocumentContext, SplitSeed):
    """The options for reading data; see :func:`bertine.finetune`, whose arguments the attributes
    are: `options` are those for users' tables, `limits` those for questions and contexts. If there
    is no validation file, `whole` means that no examples are held out, and rows whose numbers are
    `known` (:mod:`~bertine.data.examples`) are not, because a model was trained on them."""

    options: TableOptions = field(default_factory=TableOptions)
    limits: SpanLimits | None = None
    whole: bool = False
    known: frozenset[int] = frozenset()

    @property
    def table(self) -> dict[str, Any]:
        """The options of a table: columns, format, quotes, strictness, by name."""
        return {
            "text_columns": self.text_columns,
            "label_column": self.label_column,
            "format": self.format,
            "quotes": self.quotes,
            "strict": self.strict,
        }

    @property
    def named(self) -> bool:
        """Whether columns, format or quotes are given, which are fixed for official files."""
        return any(value is not None for name, value in self.table.items() if name != "strict")

    def refuse_options_of_others(self, task: str) -> None:
        """Raise a :class:`BertineError` if an option for other tasks is given."""
        FinetuneOptions.refuse_others(task, self.given(), f"the task is {task!r}")

    def given(self) -> dict[str, Any]:
        """Return all given options by name."""
        said = _said(self, ("options", "limits", "known")) | _said(self.options)
        return said if self.limits is None else said | (_said(self.limits) or vars(self.limits))

    def to_facts(self) -> dict[str, Any]:
        """Return all given options as JSON, which :meth:`from_facts` accepts. Limits of spans are
        left out, as they do not affect how a file is read."""
        return dataclasses.replace(self, limits=None).given()

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> DataConfig:
        """Return the options from the result of :meth:`to_facts`; unknown names are left out."""
        own = {field.name for field in fields(cls)} - {"options", "limits", "known"}
        options = {field.name for field in fields(TableOptions)} & facts.keys()
        return cls(
            **{name: facts[name] for name in own & facts.keys()},
            options=TableOptions(**{name: facts[name] for name in options}),
        )

    def refuse_all(self) -> None:
        """Raise a :class:`BertineError` if any option is given: for examples that are already read,
        and define their task."""
        for name in self.given():
            raise BertineError(
                f"{name} is given, but the data are examples that are read already; leave it out, "
                "or give a file or a folder"
            )


def _said(group: Any, but: Container[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, by name, except `but`."""
    values = {field: getattr(group, field.name) for field in fields(group) if field.name not in but}
    return {field.name: value for field, value in values.items() if value != field.default}


#: Labelled sets, by the prefix of their metrics' names; "" is that of the first.
Sets = dict[str, Examples[Any]]


class Reader(Protocol):
    """A reader of one kind of data."""

    def training(self, task: str, data: Data, seed: int, reading: DataConfig) -> DatasetSplits:
        """Read the examples for training `task`; `seed` decides which are held out if there is no
        validation file.

        Raises:
            BertineError: there is no training file; an option is given that the files do not allow;
                or the files cannot be read.
        """
        ...

    def has_validation(self, data: Data, reading: DataConfig) -> bool:
        """Return whether `data` have a validation file, so that nothing is held out.

        Raises:
            BertineError: there is no such file or folder, or it is not clear which file is meant.
        """
        ...

    def evaluation(self, task: Task[Any], data: Data, reading: DataConfig) -> Sets:
        """Read the examples for judging a trained `task`: from a file, or from the validation (else
        the test) file of a folder. Columns that are not named are those of its training.

        Raises:
            BertineError: there is no such file; or it cannot be read.
        """
        ...


class TableReader:
    """A reader of users' own tables, with a row for each example."""

    swag = False

    def training(self, task: str, data: Data, seed: int, reading: DataConfig) -> DatasetSplits:
        splits = find_splits(data)
        if splits.train is None:
            raise BertineError(f"{data}: has no training file (train.csv, .tsv, .jsonl or .txt)")
        train, validation, build = read_own(
            task_class("choice" if self.swag else task),
            splits,
            seed=seed,
            options=reading.options,
            swag=self.swag,
            known=reading.known,
            **reading.table,
        )
        return DatasetSplits(build, train, validation)

    def has_validation(self, data: Data, reading: DataConfig) -> bool:
        return find_splits(data).validation is not None

    def evaluation(self, task: Task[Any], data: Data, reading: DataConfig) -> Sets:
        path = judged_table(data)
        with _columns_of(task, reading):
            soft = reading.options.probability_columns
            return {"": read_for(task, path, probability_columns=soft, **reading.table)}


class SwagReader(TableReader):
    """A reader of SWAG's csv, whose columns are known."""

    swag = True


class SpanReader:
    """A reader of questions about contexts: from a table, or from SQuAD's JSON.

    Args:
        official: whether only SQuAD's format is accepted.
    """

    def __init__(self, *, official: bool) -> None:
        self._official = official

    def training(self, task: str, data: Data, seed: int, reading: DataConfig) -> DatasetSplits:
        questions, held = read_span_splits(
            data, official=self._official, seed=seed, known=reading.known, **reading.table
        )
        return DatasetSplits(
            lambda longest: SpanExtraction.from_examples(
                questions, max_length=longest, limits=reading.limits
            ),
            questions,
            held,
            max_length=MAX_LENGTH,
        )

    def has_validation(self, data: Data, reading: DataConfig) -> bool:
        return span_files(data, official=self._official)[1] is not None

    def evaluation(self, task: Task[Any], data: Data, reading: DataConfig) -> Sets:
        own = task.task_info().dataset is None  # SQuAD's columns are not those of a table
        trained = (task.text_columns, task.label_column if own else None)
        with _columns_of(task, reading):
            return {"": read_span_evaluation(data, trained_with=trained, **reading.table)}


class TaggedReader:
    """A reader of words with their tags: column files, JSON lines or Parquet."""

    def training(self, task: str, data: Data, seed: int, reading: DataConfig) -> DatasetSplits:
        columns = _word_columns(reading)
        splits = find_tagged(data)
        if splits.train is None:
            raise BertineError(f"{data}: has no training file (train.conll, .txt, .jsonl, …)")
        how: dict[str, Any] = {
            "scheme": reading.tag_scheme,
            "format": reading.format,
            "strict": reading.strict,
        }
        train = read_sentences(splits.train, columns, **how)
        if splits.validation is None:
            train, validation = train.hold_out(HOLD_OUT, seed, known=reading.known)
        else:
            own = WordColumns.trained_with(train.text_columns, train.label_column)
            if train.scheme == "plain":
                how["scheme"] = "plain"
            # Columns of the training file are known; another kind of file has its own.
            known = dataclasses.replace(columns.merged(own), given=())
            validation = read_sentences(splits.validation, known, **how)
        return DatasetSplits(
            lambda max_length: Tagging.from_examples(
                train, max_length=max_length, document_context=reading.document_context
            ),
            train,
            validation,
        )

    def has_validation(self, data: Data, reading: DataConfig) -> bool:
        return find_tagged(data).validation is not None

    def evaluation(self, task: Task[Any], data: Data, reading: DataConfig) -> Sets:
        assert isinstance(task, Tagging)
        columns = _word_columns(reading)
        if not task.has_entities and reading.tag_scheme not in (None, "plain"):
            raise BertineError(
                "the model's tags mark no entities, so they are in no scheme; leave out tag_scheme"
            )
        trained = WordColumns.trained_with(task.text_columns, task.label_column)
        sentences = read_sentences(
            judged_table(data, find_tagged),
            columns.merged(trained),
            scheme=reading.tag_scheme if task.has_entities else "plain",
            format=reading.format,
            strict=reading.strict,
        )
        return {"": sentences}


def _word_columns(reading: DataConfig) -> WordColumns:
    return named_columns(
        reading.text_columns, reading.label_column, reading.word_column, reading.tag_column
    )


class GlueReader:
    """A reader of GLUE's official files."""

    def training(self, task: str, data: Data, seed: int, reading: DataConfig) -> DatasetSplits:
        if reading.glue_task is None:
            raise BertineError(
                "which task of GLUE? name it with glue_task (--task CoLA), or take all there are "
                "(--all)"
            )
        kind = glue_task(reading.glue_task)
        assert isinstance(data, str | Path)  # read_labelled refuses tables in memory
        train, sets = read_glue(data, kind, strict=reading.strict)
        validation = sets.pop("", None)
        if validation is None:
            if len(kind.validation) > 1:
                wanted = " and ".join(kind.validation.values())
                raise BertineError(
                    f"{data}: {kind.name} is judged on {wanted}, which are not there"
                )
            train, validation = train.hold_out(
                HOLD_OUT, seed, stratify=not kind.regression, known=reading.known
            )
        return DatasetSplits(
            lambda max_length: glue_built(kind, train, max_length), train, validation, sets
        )

    def has_validation(self, data: Data, reading: DataConfig) -> bool:
        if reading.glue_task is None or not isinstance(data, str | Path):
            return False
        kind = glue_task(reading.glue_task)
        folder = glue_folder(data, kind)
        return any((folder / name).is_file() for name in kind.validation.values())

    def evaluation(self, task: Task[Any], data: Data, reading: DataConfig) -> Sets:
        kind = glue_task_of(task.task_info().dataset)
        own = reading.named or reading.options.probability_columns
        if kind is None or own or isinstance(data, InMemoryTable | InMemorySplits):
            return TableReader().evaluation(task, data, reading)
        labelled = find_glue_labelled(data, kind)
        if labelled is None:  # a user's table, for a model of GLUE
            refuse_unlabelled(data, kind)
            return TableReader().evaluation(task, data, reading)
        kind, files = labelled
        return {
            word: read_glue_file(path, kind, strict=reading.strict) for word, path in files.items()
        }


def _columns_of(task: Task[Any], reading: DataConfig) -> AbstractContextManager[None]:
    """Use the columns of training for those that `reading` does not name."""
    return columns_of_training(
        () if reading.text_columns else task.text_columns,
        None if reading.label_column else task.label_column,
    )


# Readers by task: labelled examples for fine-tuning or judging, read by the reader of their kind. A
# new kind of data is a class above and a line here.

__all__ = ["DataConfig", "DatasetSplits", "has_validation", "read_evaluation", "read_labelled"]

#: The kinds of data, by the tasks and data sets that are not read from users' tables.
_READERS: dict[str, Reader] = {
    "glue": GlueReader(),
    "squad": SpanReader(official=True),
    "spans": SpanReader(official=False),
    "swag": SwagReader(),
    "tagging": TaggedReader(),
}

#: The tasks whose data have files of known names, possibly among others.
_OFFICIAL = ("glue", "squad", "swag")


def read_labelled(
    task: str, data: Data, *, seed: int, reading: DataConfig | None = None
) -> DatasetSplits:
    """Read the examples of `data` for `task`; see :func:`bertine.finetune`. Without a validation
    file, the `split_seed` of `reading`, or `seed`, decides which examples are held out.

    Raises:
        BertineError: there is no such task; options of other tasks are given; a task of GLUE is
            named for another data set, or not named for GLUE; columns are named for GLUE or SWAG,
            which have their own; there is a `split_seed` and a validation file; or the files
            cannot be read.
    """
    reading = reading or DataConfig()
    reading.refuse_options_of_others(task)
    if task in ("glue", "squad") and isinstance(data, InMemoryTable | InMemorySplits):
        raise BertineError(
            f"{data}: the task {task!r} reads official files, not tables in memory; give their "
            "path, or fine-tune on the table as your own data"
        )
    if task not in _READERS:
        task_class(task)  # whose error names the nearest one
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


def has_validation(task: str, data: Data, reading: DataConfig) -> bool:
    """Return whether `data` have a validation file for `task`, so that nothing is held out.

    Raises:
        BertineError: there is no such file or folder, or it is not clear which file is meant.
    """
    return _READERS.get(task, TableReader()).has_validation(data, reading)


def read_evaluation(task: Task[Any], data: Data, reading: DataConfig | None = None) -> Sets:
    """Read the examples of `data` for judging the trained `task`, by the prefix of their metrics'
    names; see :func:`bertine.evaluate`. For a model that was trained on a task of GLUE, its
    official files are known.

    Raises:
        BertineError: options of other tasks are given; or the files cannot be read.
    """
    reading = reading or DataConfig()
    reading.refuse_options_of_others(task.name)
    kind = "glue" if glue_task_of(task.task_info().dataset) else task.name
    return _READERS.get(kind, TableReader()).evaluation(task, data, reading)
