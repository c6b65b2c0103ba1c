"""Read a user's own tables as the examples of a task, and build the task for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.data.examples import (
    LABEL_COLUMNS,
    Examples,
    SoftExample,
    Splits,
    as_columns,
    read_examples,
)
from bertine.data.in_memory import Source, reads_again
from bertine.data.label_sets import labels_in, read_label_sets
from bertine.data.lines import quotes_for
from bertine.data.soft_labels import PREFIX, columns_of_labels, read_soft_examples
from bertine.data.tables import Table
from bertine.datasets.multiple_choice import SWAG, read_choices, read_trained_choices, refuse_added
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.labels import TableOptions
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.seq2seq import TextToText
from bertine.tasks.whole_text import TextRegression

#: The share of the training file that is held out if there is no validation file.
HOLD_OUT = 0.1
Build = Callable[[int], Task[Any]]


def read_own(
    kind: type[Task[Any]],
    splits: Splits,
    *,
    seed: int,
    options: TableOptions,
    swag: bool = False,
    known: Collection[int] = (),
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    **reading: Any,
) -> tuple[Examples, Examples, Build]:
    """Read training and validation examples; return also the function that builds their task from
    the longest input. Without a validation file, a tenth is held out, stratified by label (unless
    it is a score).

    Args:
        kind: the class of the task.
        swag: whether it is multiple choice with the columns of SWAG.
        known: the numbers of rows that are not held out
            (:meth:`~bertine.data.examples.Examples.hold_out`).
        reading: `format`, `quotes` and `strict` of :class:`~bertine.data.tables.Table`; `quotes`
            is for files that may have some.

    Raises:
        BertineError: there is no training file; or the files cannot be read.
    """
    if splits.train is None:
        raise BertineError("the data has no training file (train.csv, .tsv, .jsonl or .txt)")
    tables = _KINDS.get(kind, _LabelledTables)(kind, options, swag)
    named: dict[str, Any] = {"text_columns": text_columns, "label_column": label_column, **reading}
    files = [file for file in (splits.train, splits.validation) if file is not None]
    quotes = quotes_for(files, reading.get("format"), reading.get("quotes"))
    named["quotes"] = quotes[0]
    train = tables.training(splits.train, named)
    if splits.validation is None:
        stratify = tables.stratified(train)
        train, validation = train.hold_out(HOLD_OUT, seed, stratify=stratify, known=known)
    else:
        named |= {"text_columns": train.text_columns, "label_column": train.label_column}
        named["quotes"] = quotes[-1]
        validation = tables.validation(splits.validation, named, train)
    return train, validation, partial(tables.task, train)


class _LabelledTables:
    """Tables with one label, or one score, in each row."""

    def __init__(self, kind: type[Task[Any]], options: TableOptions, swag: bool) -> None:
        self.kind, self.options, self.swag = kind, options, swag
        self.scores = issubclass(kind, TextRegression)

    def training(self, path: Source, named: dict[str, Any]) -> Examples:
        """Read the training examples; `named` are columns, format, quotes and strictness."""
        columns = as_columns(self.options.probability_columns)
        if columns:
            _refuse_both_kinds(named["label_column"])
            named = {name: value for name, value in named.items() if name != "label_column"}
            return read_soft_examples(path, columns, **named)
        return read_examples(path, known=() if self.scores else None, **named)

    def validation(self, path: Source, named: dict[str, Any], train: Examples) -> Examples:
        """Read the validation examples for those of training; these may have labels if those have
        probabilities."""
        columns = as_columns(self.options.probability_columns)
        if columns and self._has(path, columns, named):
            named = {name: value for name, value in named.items() if name != "label_column"}
            return read_soft_examples(path, columns, **named)
        return read_examples(path, known=() if self.scores else _labels_of(train), **named)

    @staticmethod
    def _has(path: Source, columns: Sequence[str], named: dict[str, Any]) -> bool:
        """Return whether a table has all these columns."""
        how = {name: named[name] for name in ("format", "quotes") if name in named}
        with Table(path, wanted=named["text_columns"] or (), **how) as table:
            return set(columns) <= set(table.columns)

    def stratified(self, train: Examples) -> bool:
        """Return whether a part is held out label by label."""
        return not self.scores

    def task(self, train: Examples, max_length: int) -> Task[Any]:
        """Return the task for the training examples."""
        columns = as_columns(self.options.probability_columns)
        labels = [name.removeprefix(PREFIX) for name in columns] or None
        task = self.kind.from_examples(train, max_length=max_length, labels=labels)
        if isinstance(task, TextClassification):
            weights = task.balanced(train) if self.options.class_weights else None
            gamma = self.options.focal_gamma
            task = dataclasses.replace(task, class_weights=weights, focal_gamma=gamma)
        return dataclasses.replace(cast(Any, task), long_text=self.options.long_text)


class _LabelSetTables(_LabelledTables):
    """Tables with any number of labels in each row; the training table defines the labels and their
    separator."""

    separator: str | None
    labels: tuple[str, ...]
    one_hot: bool

    def _read(self, path: Source, named: dict[str, Any]) -> Examples:
        examples, self.separator = read_label_sets(
            path, label_columns=self.options.label_columns, separator=self.separator, **named
        )
        return examples

    def training(self, path: Source, named: dict[str, Any]) -> Examples:
        self.separator = self.options.label_separator
        train = self._read(path, named)
        # A label that occurs only once may be held out with its row, but is still a label.
        columns = as_columns(self.options.label_columns)
        self.labels = columns or train.class_names or _labels_of(train)
        self.one_hot = bool(train.class_names)
        return train

    def validation(self, path: Source, named: dict[str, Any], train: Examples) -> Examples:
        return self._read(path, {**named, "known": self.labels, "one_hot": self.one_hot})

    def stratified(self, train: Examples) -> bool:
        # Each set of labels may occur only once.
        return len({item.label for item in train.items}) < len(train)

    def task(self, train: Examples, max_length: int) -> MultiLabel:
        options = self.options
        labels = self.labels if len(self.labels) > 1 or options.label_columns else None
        task = MultiLabel.from_examples(train, max_length=max_length, labels=labels)
        return dataclasses.replace(
            task,
            threshold=options.threshold,
            separator=self.separator or "|",
            one_column_each=bool(as_columns(options.label_columns)),
            one_hot=self.one_hot,
            long_text=options.long_text,
            positive_weights=task.balanced(train) if options.class_weights else None,
            focal_gamma=options.focal_gamma,
        )


class _ChoiceTables(_LabelledTables):
    """Tables with a column for each choice; the training table defines which columns these are."""

    choices: tuple[str, ...]

    def training(self, path: Source, named: dict[str, Any]) -> Examples:
        train, self.choices = read_choices(
            path, choice_columns=self.options.choice_columns, swag=self.swag, **named
        )
        return train

    def validation(self, path: Source, named: dict[str, Any], train: Examples) -> Examples:
        if not self.options.choice_columns:
            columns = ("text_columns", "label_column")
            reading = {name: value for name, value in named.items() if name not in columns}
            refuse_added(path, train.text_columns, self.choices, swag=self.swag, **reading)
        return read_examples(path, optional=self.choices[2:], known=(), **named)

    def stratified(self, train: Examples) -> bool:
        return True

    def task(self, train: Examples, max_length: int) -> MultipleChoice:
        task = MultipleChoice.from_examples(train, max_length=max_length, labels=self.choices)
        return dataclasses.replace(
            task,
            dataset=SWAG if self.swag else None,
            named_choices=bool(self.options.choice_columns),
        )


#: Usual names of the column of texts to write, tried in this order.
TARGET_COLUMNS = ("target", "summary", "highlights", "output")


class _WrittenTables(_LabelledTables):
    """Tables with a text to write in each row."""

    def training(self, path: Source, named: dict[str, Any]) -> Examples:
        target, label = self.options.target_column, named["label_column"]
        if target and label and target != label:
            raise BertineError(
                f"give {option('target_column')} or {option('label_column')}, not both"
            )
        return read_examples(
            path, known=(), label_names=TARGET_COLUMNS, **{**named, "label_column": target or label}
        )

    def stratified(self, train: Examples) -> bool:
        return False

    def task(self, train: Examples, max_length: int) -> TextToText:
        options = self.options
        return dataclasses.replace(
            TextToText.from_examples(train, max_length=max_length),
            max_target_length=options.max_target_length,
            beams=options.beams,
            length_penalty=options.length_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            label_smoothing=options.label_smoothing,
        )


#: The kinds of tables, by the tasks whose rows do not have one label, or one score, each.
_KINDS: dict[type[Task[Any]], type[_LabelledTables]] = {
    MultiLabel: _LabelSetTables,
    MultipleChoice: _ChoiceTables,
    TextToText: _WrittenTables,
}


def _labels_of(train: Examples) -> tuple[str, ...]:
    """Sort the labels that occur, of one and of many labels; for soft labels return all."""
    if train.items and isinstance(train.items[0], SoftExample):
        return train.class_names
    return tuple(sorted({name for item in train.items for name in labels_in(item.label or "")}))


def read_for(
    task: Task[Any],
    path: Source,
    *,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    probability_columns: Sequence[str] | str | None = None,
    **reading: Any,
) -> Examples:
    """Read the labelled examples of a table for a trained `task`; columns that are not named are
    those of its training. For a classifier trained without a column of labels, a table with no such
    column under a usual name may have a column for the probability of each label.

    Raises:
        BertineError: a column is missing; a column of labels and some of probabilities are named;
            or the table cannot be read.
    """
    if isinstance(task, MultipleChoice):
        asked: dict[str, Any] = {"text_columns": text_columns, "label_column": label_column}
        return read_trained_choices(task, path, **asked, **reading)
    named: dict[str, Any] = {
        "text_columns": text_columns or task.text_columns,
        "label_column": label_column or task.label_column,
        **reading,
    }
    if isinstance(task, MultiLabel):
        label_columns = task.labels if task.one_column_each and not label_column else None
        named |= {"known": task.labels, "one_hot": task.one_hot or None}
        return read_label_sets(
            path, label_columns=label_columns, separator=task.separator, **named
        )[0]
    if not isinstance(task, TextClassification):
        return read_examples(path, known=(), **named)
    columns = as_columns(probability_columns)
    if columns:
        _refuse_both_kinds(label_column)
    elif not named["label_column"]:
        columns = _unnamed_probabilities(task, path, named)
    if columns:
        del named["label_column"]
        return read_soft_examples(path, columns, known=task.labels, **named)
    return read_examples(path, known=task.labels, **named)


def _refuse_both_kinds(label_column: str | None) -> None:
    if label_column:
        raise BertineError(
            f"give {option('label_column')} or {option('probability_columns')}, not both"
        )


def _unnamed_probabilities(
    task: TextClassification, path: Source, named: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the columns of a table with the probability of each of the task's labels; () if it has
    a label column under a usual name, or lacks one of them."""
    if not reads_again(path):
        return ()
    how = {name: named[name] for name in ("format", "quotes") if name in named}
    with Table(path, wanted=as_columns(named["text_columns"]), **how) as table:
        if set(LABEL_COLUMNS) & set(table.columns):
            return ()
        return columns_of_labels(table, task.labels)
