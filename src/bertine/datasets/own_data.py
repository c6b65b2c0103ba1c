"""Read a user's own tables as the examples of a task, and build the task for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.data.annotated_texts import PREFIX
from bertine.data.examples import (
    LABEL_COLUMNS,
    Examples,
    SoftExample,
    Splits,
    as_columns,
    open_table,
    read_examples,
    read_scores,
)
from bertine.data.in_memory import Data, Source, reads_again
from bertine.data.label_sets import labels_in, read_label_sets
from bertine.data.lines import quotes_for
from bertine.data.soft_labels import columns_of_annotators, columns_of_labels, read_soft_examples
from bertine.datasets.multiple_choice import SWAG, read_choices, read_trained_choices, refuse_added
from bertine.options.data import DEFAULTS, DataConfig, TextWriting
from bertine.options.declare import declared
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.seq2seq import TextToText
from bertine.tasks.whole_text import TextRegression

#: Usual names of the column of texts to write, tried in this order.
TARGET_COLUMNS = ("target", "summary", "highlights", "output")


@dataclass(frozen=True)
class DatasetSplits:
    """The examples that a run is trained and judged on, and what their task is made from.

    Attributes:
        task_class: the class of the task.
        train: the training examples.
        validation: the examples that the model is judged on after each epoch; without any it is not
            judged.
        others: further validation sets, by the prefix of their metrics' names.
        settings: the arguments of the task's `from_examples` besides the training examples and the
            longest input: labels, weights, limits.
        max_length: the longest input by default, in pieces.
        config: how they were read.
        task, source: the name of the task, and the data, that they were read for and from; None:
            they were given.
        again: whether a model that was trained on them goes on with them: they stay as they were
            read and divided.
    """

    task_class: type[Task[Any]]
    train: Examples[Any]
    validation: Examples[Any]
    others: dict[str, Examples[Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    max_length: int = 128
    config: DataConfig = field(default_factory=DataConfig)
    task: str = ""
    source: Data | None = None
    again: bool = False

    @property
    def path(self) -> str:
        """The name of the data, for the records of a run."""
        return self.train.source if self.source is None else str(self.source)

    def make_task(self, max_length: int | None = None, **settings: Any) -> Any:
        """Return the task for the training examples, for inputs of `max_length` pieces (None: as by
        default); `settings` are further arguments."""
        length = self.max_length if max_length is None else max_length
        settings = {**self.settings, **settings}
        return self.task_class.from_examples(self.train, max_length=length, **settings)


def read_own(
    kind: type[Task[Any]], splits: Splits, config: DataConfig = DEFAULTS, *, swag: bool = False
) -> DatasetSplits:
    """Read training and validation examples for a task of the class `kind`; with `swag` they are
    multiple choice with the columns of SWAG. Without a validation file, a tenth is held out,
    stratified by label (unless it is a score).

    Raises:
        BertineError: there is no training file; or the files cannot be read.
    """
    if splits.train is None:
        raise BertineError("the data has no training file (train.csv, .tsv, .jsonl or .txt)")
    if config.annotators == "soft":
        shares = columns_of_annotators(splits.train, config)
        config = DataConfig.of(config, probability_columns=shares)
    tables = _TABLES.get(kind, _LabelledTables)(kind, config, swag)
    files = [file for file in (splits.train, splits.validation) if file is not None]
    quotes = quotes_for(files, config.format, config.quotes)
    train = tables.training(splits.train, DataConfig.of(config, quotes=quotes[0]))
    if splits.validation is None:
        train, validation = train.hold_out_by(config, stratify=tables.stratified(train))
    else:
        own = DataConfig.of(
            config,
            quotes=quotes[-1],
            text_columns=train.text_columns,
            label_column=train.label_column,
        )
        validation = tables.validation(splits.validation, own, train)
    return DatasetSplits(kind, train, validation, settings=tables.settings())


class _LabelledTables:
    """Tables with one label, or one score, in each row."""

    def __init__(self, kind: type[Task[Any]], config: DataConfig, swag: bool) -> None:
        self.kind, self.config, self.swag = kind, config, swag
        self.scores = issubclass(kind, TextRegression)

    def training(self, path: Source, config: DataConfig) -> Examples:
        """Read the training examples."""
        if config.probability_columns:
            _refuse_both_kinds(config)
            return read_soft_examples(path, config)
        return read_scores(path, config) if self.scores else read_examples(path, config)

    def validation(self, path: Source, config: DataConfig, train: Examples) -> Examples:
        """Read the validation examples for those of training; these may have labels if those have
        probabilities."""
        if columns := as_columns(config.probability_columns):
            with open_table(path, config) as table:
                soft = set(columns) <= set(table.columns)
            if soft:
                return read_soft_examples(path, config)
        if self.scores:
            return read_scores(path, config)
        return read_examples(path, config, known=_labels_of(train))

    def stratified(self, train: Examples) -> bool:
        """Return whether a part is held out label by label."""
        return not self.scores

    def settings(self) -> dict[str, Any]:
        """Return what the task is made from besides the training examples."""
        config = self.config
        if not issubclass(self.kind, TextClassification):
            return {"long_text": config.long_text}
        columns = as_columns(config.probability_columns)
        return {
            "labels": [name.removeprefix(PREFIX) for name in columns] or None,
            "numbered": config.label_names is not None,
            "class_weights": config.class_weights,
            "focal_gamma": config.focal_gamma,
            "long_text": config.long_text,
        }


class _LabelSetTables(_LabelledTables):
    """Tables with any number of labels in each row; the training table defines the labels and their
    separator."""

    separator: str | None
    labels: tuple[str, ...]
    one_hot: bool

    def training(self, path: Source, config: DataConfig) -> Examples:
        train, self.separator = read_label_sets(path, config)
        # A label that occurs only once may be held out with its row, but is still a label.
        columns = as_columns(config.label_columns)
        self.labels = columns or train.class_names or _labels_of(train)
        self.one_hot = bool(train.class_names)
        return train

    def validation(self, path: Source, config: DataConfig, train: Examples) -> Examples:
        config = DataConfig.of(config, label_separator=self.separator)
        return read_label_sets(path, config, known=self.labels, one_hot=self.one_hot)[0]

    def stratified(self, train: Examples) -> bool:
        # Each set of labels may occur only once.
        return len({item.label for item in train.items}) < len(train)

    def settings(self) -> dict[str, Any]:
        config, columns = self.config, as_columns(self.config.label_columns)
        return {
            "labels": self.labels if len(self.labels) > 1 or columns else None,
            "threshold": config.threshold,
            "separator": self.separator or "|",
            "one_column_each": bool(columns),
            "one_hot": self.one_hot,
            "long_text": config.long_text,
            "class_weights": config.class_weights,
            "focal_gamma": config.focal_gamma,
        }


class _ChoiceTables(_LabelledTables):
    """Tables with a column for each choice; the training table defines which columns these are."""

    choices: tuple[str, ...]

    def training(self, path: Source, config: DataConfig) -> Examples:
        train, self.choices = read_choices(path, config, swag=self.swag)
        return train

    def validation(self, path: Source, config: DataConfig, train: Examples) -> Examples:
        if not config.choice_columns:
            refuse_added(path, config, self.choices, swag=self.swag)
        return read_examples(path, config, optional=self.choices[2:], known=())

    def stratified(self, train: Examples) -> bool:
        return True

    def settings(self) -> dict[str, Any]:
        return {
            "labels": self.choices,
            "dataset": SWAG if self.swag else None,
            "named_choices": bool(self.config.choice_columns),
        }


class _WrittenTables(_LabelledTables):
    """Tables with a text to write in each row."""

    def training(self, path: Source, config: DataConfig) -> Examples:
        target, label = config.target_column, config.label_column
        if target and label and target != label:
            raise BertineError(
                f"give {option('target_column')} or {option('label_column')}, not both"
            )
        config = DataConfig.of(config, label_column=target or label)
        return read_examples(path, config, known=(), label_names=TARGET_COLUMNS)

    def stratified(self, train: Examples) -> bool:
        return False

    def settings(self) -> dict[str, Any]:
        names = {entry.name for entry in declared(TextWriting)} - {"target_column"}
        return {name: getattr(self.config, name) for name in names}


#: The class of their tables, by the tasks whose rows do not have one label, or one score, each.
_TABLES: dict[type[Task[Any]], type[_LabelledTables]] = {
    MultiLabel: _LabelSetTables,
    MultipleChoice: _ChoiceTables,
    TextToText: _WrittenTables,
}


def _labels_of(train: Examples) -> tuple[str, ...]:
    """Sort the labels that occur, of one and of many labels; for soft labels return all."""
    if train.items and isinstance(train.items[0], SoftExample):
        return train.class_names
    return tuple(sorted({name for item in train.items for name in labels_in(item.label or "")}))


def read_for(task: Task[Any], path: Source, config: DataConfig = DEFAULTS) -> Examples:
    """Read the labelled examples of a table for a trained `task`; columns that are not named are
    those of its training. For a classifier trained without a column of labels, a table with no such
    column under a usual name may have a column for the probability of each label.

    Raises:
        BertineError: a column is missing; a column of labels and some of probabilities are named;
            or the table cannot be read.
    """
    if isinstance(task, MultipleChoice):
        return read_trained_choices(task, path, config)
    named = config.over(task.text_columns, task.label_column)
    if isinstance(task, MultiLabel):
        own = task.labels if task.one_column_each and not config.label_column else None
        named = DataConfig.of(named, label_columns=own, label_separator=task.separator)
        return read_label_sets(path, named, known=task.labels, one_hot=task.one_hot or None)[0]
    if not isinstance(task, TextClassification):
        scores = isinstance(task, TextRegression)
        return read_scores(path, named) if scores else read_examples(path, named, known=())
    if config.probability_columns:
        _refuse_both_kinds(config)
        return read_soft_examples(path, named, known=task.labels)
    if not named.label_column and (columns := _unnamed_probabilities(task, path, named)):
        named = DataConfig.of(named, probability_columns=columns)
        return read_soft_examples(path, named, known=task.labels)
    if task.numbered:
        named = DataConfig.of(named, label_names=task.labels)
    return read_examples(path, named, known=task.labels)


def _refuse_both_kinds(config: DataConfig) -> None:
    for name in ("label_column", "label_names"):
        if getattr(config, name):
            raise BertineError(f"give {option(name)} or {option('probability_columns')}, not both")


def _unnamed_probabilities(
    task: TextClassification, path: Source, config: DataConfig
) -> tuple[str, ...]:
    """Return the columns of a table with the probability of each of the task's labels; () if it has
    a label column under a usual name, or lacks one of them."""
    if not reads_again(path):
        return ()
    with open_table(path, config) as table:
        if set(LABEL_COLUMNS) & set(table.columns):
            return ()
        return columns_of_labels(table, task.labels)
