"""One's own tables as the examples of a task, and the task that they describe."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from bertine.datasets.choice_data import (
    all_columns,
    choice_task,
    read_choices,
    read_trained_choices,
    refuse_added,
)
from bertine.errors import BertineError
from bertine.records.examples import Examples, Splits, read_examples
from bertine.records.label_sets import labels_in, read_label_sets
from bertine.tables.given import Source
from bertine.tables.layout import quotes_for
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.options import TableOptions
from bertine.tasks.texts.classification import TextClassification
from bertine.tasks.texts.multi_label import MultiLabel
from bertine.tasks.texts.regression import TextRegression

#: Held out of the training file where the data has no validation file.
HOLD_OUT = 0.1
Build = Callable[[int], Task[Any]]


def read_own(
    kind: type[Task[Any]],
    splits: Splits,
    *,
    seed: int,
    options: TableOptions,
    swag: bool = False,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    **reading: Any,
) -> tuple[Examples, Examples, Build]:
    """Read training and validation examples, and what makes the task they describe of the longest
    input. Where
    there is no validation file, a tenth is held out, stratified by label (unless it is a score).

    Args:
        kind: the class of the task.
        swag: multiple choice with the columns of SWAG.
        reading: `format`, `quotes` and `strict` of :class:`~bertine.tables.table.Table`; `quotes`
            of the files that may have some.

    Raises:
        BertineError: there is no training file; what reading the files raises.
    """
    if splits.train is None:
        raise BertineError("the data has no training file (train.csv, .tsv, .jsonl or .txt)")
    named: dict[str, Any] = {"text_columns": text_columns, "label_column": label_column, **reading}
    files = [file for file in (splits.train, splits.validation) if file is not None]
    quotes = quotes_for(files, reading.get("format"), reading.get("quotes"))
    named["quotes"] = quotes[0]
    choices: tuple[str, ...] = ()
    separator = options.label_separator
    if kind is MultipleChoice:
        train, choices = read_choices(
            splits.train, choice_columns=options.choice_columns, swag=swag, **named
        )
    elif kind is MultiLabel:
        train, separator = read_label_sets(
            splits.train, label_columns=options.label_columns, separator=separator, **named
        )
    else:
        train = read_examples(splits.train, known=None if _has_names(kind) else (), **named)
    occurring: set[str] = set()
    if splits.validation is None:
        labels = [item.label for item in train.items]
        if kind is MultiLabel:
            # A label that is there but once may be held out with its row, and is one all the same.
            occurring = {name for label in labels for name in labels_in(label or "")}
        # Of sets of labels each may be there but once.
        repeated = kind is not MultiLabel or len(set(labels)) < len(labels)
        stratify = kind is not TextRegression and repeated
        train, validation = train.hold_out(HOLD_OUT, seed, stratify=stratify)
    else:
        named |= {"text_columns": train.text_columns, "label_column": train.label_column}
        named["quotes"] = quotes[-1]
        named["known"] = _names_in(train) if _has_names(kind) else ()
        if kind is MultiLabel:
            validation, _ = read_label_sets(
                splits.validation,
                label_columns=options.label_columns,
                separator=separator,
                **named,
            )
        else:
            if kind is MultipleChoice and not options.choice_columns:
                keys = all_columns(
                    splits.validation, train.text_columns, **{**reading, "quotes": quotes[-1]}
                )
                refuse_added(str(splits.validation), keys, choices, swag=swag)
            validation = read_examples(splits.validation, optional=choices[2:], **named)

    def build(max_length: int) -> Task[Any]:
        if kind is MultipleChoice:
            named_choices = bool(options.choice_columns)
            return choice_task(train, choices, max_length, swag=swag, named=named_choices)
        if kind is MultiLabel:
            return _multi_label(train, max_length, options, separator, sorted(occurring))
        task = kind.from_examples(train, max_length=max_length)
        if isinstance(task, TextClassification) and options.class_weights:
            task = dataclasses.replace(task, class_weights=task.balanced(train))
        if isinstance(task, TextClassification):
            task = dataclasses.replace(task, focal_gamma=options.focal_gamma)
        if isinstance(task, TextClassification | TextRegression):
            task = dataclasses.replace(task, long_text=options.long_text)
        return task

    return train, validation, build


def _has_names(kind: type[Task[Any]]) -> bool:
    """Tell whether the labels of a task are names, and not scores or places."""
    return not issubclass(kind, TextRegression | MultipleChoice)


def _names_in(train: Examples) -> list[str]:
    """List the labels that occur, of one and of many labels."""
    return sorted({name for item in train.items for name in labels_in(item.label or "")})


def _multi_label(
    train: Examples,
    max_length: int,
    options: TableOptions,
    separator: str | None,
    occurring: Sequence[str],
) -> MultiLabel:
    """Make the task; `occurring` are the labels of the whole file of which a part was held out, if
    it was."""
    columns = options.label_columns
    labels = (columns,) if isinstance(columns, str) else tuple(columns or ())
    known = labels or (occurring if len(occurring) > 1 else None)
    task = MultiLabel.from_examples(train, max_length=max_length, labels=known)
    return dataclasses.replace(
        task,
        threshold=options.threshold,
        separator=separator or "|",
        one_column_each=bool(labels),
        long_text=options.long_text,
        positive_weights=task.balanced(train) if options.class_weights else None,
        focal_gamma=options.focal_gamma,
    )


def read_for(
    task: Task[Any],
    path: Source,
    *,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    **reading: Any,
) -> Examples:
    """Read the labelled examples of a table for a trained `task`; columns that are not named are
    those of its training.

    Raises:
        BertineError: a column is missing; what reading the table raises.
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
        named["known"] = task.labels
        return read_label_sets(
            path, label_columns=label_columns, separator=task.separator, **named
        )[0]
    known = task.labels if isinstance(task, TextClassification) else ()
    return read_examples(path, known=known, **named)
