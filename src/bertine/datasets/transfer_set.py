"""Read the texts that a student learns from, with labels for all, some or none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option, text_option
from bertine.data.examples import (
    LABEL_COLUMNS,
    ClassLabels,
    Example,
    Examples,
    as_columns,
    check_texts,
    columns_of_training,
    find_splits,
    refuse_both,
    resolve_text_columns,
    row_texts,
)
from bertine.data.in_memory import Data, Source
from bertine.data.label_sets import read_label_sets
from bertine.data.lines import LINE_COLUMN
from bertine.data.streams import require_columns
from bertine.data.tables import Table
from bertine.datasets.glue import glue_folder, glue_task_of
from bertine.datasets.multiple_choice import open_texts_of, texts_of
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_labelled, refuse_options_of_others
from bertine.options.data import DataConfig
from bertine.tasks.base import Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.classification import TextClassification
from bertine.tasks.multi_label import MultiLabel
from bertine.tasks.spans import SpanExtraction
from bertine.tasks.tagging import Tagging
from bertine.tasks.whole_text import TextRegression

#: The fewest labelled rows of which a tenth is enough to judge a student, which also learns from
#: them.
FEW_LABELS = 100


@dataclass(frozen=True)
class TransferSet(DatasetSplits):
    """The examples that a student learns from: for training with labels, without, or some of each;
    for validation all with labels, or all without.

    Attributes:
        held_out: the indices of `validation` in the first file; empty if it is a separate file.
    """

    held_out: tuple[int, ...] = ()


def read_transfer_set(task: Task[Any], data: Data, config: DataConfig) -> TransferSet:
    """Read the examples for distilling a trained `task`. Without a validation file, a tenth is held
    out: of the rows with a label; or, if these are few and fewer than the others, of the rows
    without one, so that every label is learned from.

    Raises:
        BertineError: there is no training file; a column is missing; options of tagging are given
            for another task; or the files cannot be read.
    """
    read = _official(task, data, config)
    if read is not None:
        return TransferSet(type(task), read.train, read.validation, read.others, config=config)
    splits = find_splits(data)
    if splits.train is None:
        raise BertineError(f"{data}: has no training file (train.csv, .tsv, .jsonl or .txt)")
    train = _read(task, splits.train, config)
    labelled = [n for n, item in enumerate(train.items) if item.label is not None]
    if splits.validation is not None:
        if config.split_seed is not None:
            raise BertineError(
                f"{data}: has validation examples of its own, so that {option('split_seed')} "
                "holds none out; leave it out"
            )
        validation = _read(task, splits.validation, config)
        kept = [item for item in validation.items if item.label is not None]
        if kept and len(kept) < len(validation):
            missing = len(validation) - len(kept)
            validation.notes.append(
                f"{validation.source}: {plural(missing, 'row')} without a label "
                f"{'is' if missing == 1 else 'are'} not judged on"
            )
            validation.items = kept
        return TransferSet(type(task), train, validation, config=config)
    unlabelled = [n for n, item in enumerate(train.items) if item.label is None]
    by_labels = len(labelled) >= min(FEW_LABELS, len(unlabelled))
    some = labelled if by_labels and labelled else unlabelled
    part = replace(train, items=[train.items[n] for n in some])
    stratify = some is labelled and not isinstance(task, TextRegression)
    stratify &= len({str(item.label) for item in part.items}) < len(part)
    _, held = part.hold_out_by(config, stratify=stratify)
    chosen = {id(item) for item in held.items}
    numbers = tuple(n for n, item in enumerate(train.items) if id(item) in chosen)
    rest = [item for item in train.items if id(item) not in chosen]
    train = replace(train, items=rest)
    return TransferSet(type(task), train, held, config=config, held_out=numbers)


def _official(task: Task[Any], data: Data, config: DataConfig) -> DatasetSplits | None:
    """Read data other than tables of texts: words with tags, questions, files of GLUE, all of them
    labelled; return None for a table."""
    if isinstance(task, Tagging | SpanExtraction):
        return read_labelled(task.name, data, config)
    refuse_options_of_others(task.name, config)
    kind = glue_task_of(task.task_info().dataset)
    if kind is None or config.layout or not isinstance(data, str | Path):
        return None
    if kind.train is None or not Path(data).is_dir():
        return None
    try:
        folder = glue_folder(data, kind)
    except BertineError:  # a folder of a user's files
        return None
    if not (folder / kind.train).is_file():
        return None
    return read_labelled("glue", data, DataConfig.of(config, glue_task=kind.name))


def _read(task: Task[Any], path: Source, config: DataConfig) -> Examples[Any]:
    """Read a table; without a column of labels, no example has one."""
    if isinstance(task, MultiLabel):
        return _read_label_sets(task, path, config)
    with _opened(task, path, config) as table:
        texts, rows = _texts(task, table, as_columns(config.text_columns))
        column = _label_column(task, table, texts, config.label_column)
        examples: Examples[Any] = Examples(table.name, texts, column)
        if column is None:
            examples.items = [Example(row_texts(table, row, texts), None, row.line) for row in rows]
        else:
            refuse_both(table, texts, column)
            known = task.labels if isinstance(task, TextClassification) else ()
            named = isinstance(task, TextClassification) and task.numbered
            labels = ClassLabels(table, column, known, known if named else None)
            for row in labels.rows(rows):
                there = column in row.values and table.has_label(row, column)
                label = table.label(row, column) if there else None
                examples.items.append(Example(row_texts(table, row, texts), label, row.line))
            examples.notes += labels.notes()
        if not examples.items:
            raise BertineError(f"{table.name}: has no rows")
        examples.notes = [*table.stats.notes(table.name), *examples.notes]
    check_texts(examples)
    return examples


def _opened(task: Task[Any], path: Source, config: DataConfig) -> AbstractContextManager[Table]:
    with columns_of_training(() if config.text_columns else task.text_columns):
        return open_texts_of(task, path, config)


def _texts(task: Task[Any], table: Table, named: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    """Return the columns of the texts, and the rows."""
    width = len(task.text_columns)
    if table.layout.kind == "text":
        if width != 1 or named not in ((), (LINE_COLUMN,)):
            raise BertineError(
                f"{table.name}: is plain text, a text on each line, but the teacher takes "
                f"{' and '.join(task.text_columns)}; give csv, tsv, jsonl or Parquet"
            )
        return (LINE_COLUMN,), table
    if isinstance(task, MultipleChoice):
        columns, rows, _ = texts_of(task, table, (), named)
        return columns, rows
    columns = named
    if not columns:
        trained = set(task.text_columns) <= set(table.columns)
        columns = task.text_columns if trained else resolve_text_columns(table, None)
    require_columns(table.name, table.columns, columns)
    if len(columns) != width:
        raise BertineError(
            f"{table.name}: {plural(len(columns), 'text column')} ({', '.join(columns)}), but the "
            f"teacher takes {width}; name them with {text_option(width)}"
        )
    return columns, table


def _label_column(
    task: Task[Any], table: Table, texts: Sequence[str], named: str | None
) -> str | None:
    """Return the column of the labels: the one named, that of the teacher's training, or one with a
    usual name; None if the table has none."""
    if named is not None:
        require_columns(table.name, table.columns, [named])
        return named
    if table.layout.kind == "text":
        return None
    usual = [task.label_column] if task.label_column else []
    usual += [name for name in LABEL_COLUMNS if name not in usual]
    return next((n for n in usual if n in table.columns and n not in texts), None)


def _read_label_sets(task: MultiLabel, path: Source, config: DataConfig) -> Examples[Any]:
    """Read a table of texts with any number of labels each. A row without any has the empty set,
    which is a label like others; only a table without the columns has no labels."""
    with _opened(task, path, config) as table:
        texts, rows = _texts(task, table, as_columns(config.text_columns))
        item = task.one_column_each and not config.label_column
        column = None if item else _label_column(task, table, texts, config.label_column)
        if not (set(task.labels) <= set(table.columns) if item else column):
            items = [Example(row_texts(table, row, texts), None, row.line) for row in rows]
            return Examples(table.name, texts, None, items, table.stats.notes(table.name))
    config = DataConfig.of(
        config,
        text_columns=texts,
        label_column=column,
        label_columns=task.labels if item else None,
        label_separator=task.separator,
    )
    return read_label_sets(path, config, known=task.labels, one_hot=task.one_hot or None)[0]
