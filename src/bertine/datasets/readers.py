"""One reader for each kind of data: to train on, and to judge a trained model on.

Tables of one's own, SWAG's csv, questions (SQuAD's JSON or tables), tagged words, GLUE's files.
:mod:`bertine.datasets.labelled` says which one a task takes.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from bertine.datasets.glue import glue_task, glue_task_of
from bertine.datasets.glue_data import (
    find_glue_labelled,
    glue_built,
    glue_folder,
    read_glue,
    read_glue_file,
    refuse_unlabelled,
)
from bertine.datasets.own_data import HOLD_OUT, read_for, read_own
from bertine.datasets.reading import Labelled, Reading
from bertine.errors import BertineError
from bertine.records.conll import WordColumns, find_tagged, named_columns, read_sentences
from bertine.records.examples import Examples, columns_of_training
from bertine.records.span_data import read_span_evaluation, read_span_splits, span_files
from bertine.records.splits import find_splits, judged_table
from bertine.tables.given import Data, GivenParts, GivenTable
from bertine.tasks import task_class
from bertine.tasks.base import Task
from bertine.tasks.spans.task import MAX_LENGTH, SpanExtraction
from bertine.tasks.tagging.task import Tagging

#: Labelled sets, by the word before the names of their metrics; "" is before those of the first.
Sets = dict[str, Examples[Any]]


class Reader(Protocol):
    """A reader of one kind of data."""

    def training(self, task: str, data: Data, seed: int, reading: Reading) -> Labelled:
        """Read the examples to train `task` on; `seed` decides what is held out where there is no
        validation file.

        Raises:
            BertineError: there is no training file; something is given that the files do not
                take; what reading them raises.
        """
        ...

    def has_validation(self, data: Data, reading: Reading) -> bool:
        """Tell whether `data` have a validation file, so that nothing is held out.

        Raises:
            BertineError: there is no such file or folder, or it is not clear which file is meant.
        """
        ...

    def evaluation(self, task: Task[Any], data: Data, reading: Reading) -> Sets:
        """Read the examples to judge a trained `task` on: of a file, or of the validation (else the
        test) file of a folder. Columns that are not named are those of its training.

        Raises:
            BertineError: there is no such file; what reading it raises.
        """
        ...


class TableReader:
    """A reader of the user's own tables, a row for each example."""

    swag = False

    def training(self, task: str, data: Data, seed: int, reading: Reading) -> Labelled:
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
        return Labelled(build, train, validation)

    def has_validation(self, data: Data, reading: Reading) -> bool:
        return find_splits(data).validation is not None

    def evaluation(self, task: Task[Any], data: Data, reading: Reading) -> Sets:
        path = judged_table(data)
        with _columns_of(task, reading):
            soft = reading.options.probability_columns
            return {"": read_for(task, path, probability_columns=soft, **reading.table)}


class SwagReader(TableReader):
    """A reader of SWAG's csv, whose columns are known."""

    swag = True

    def training(self, task: str, data: Data, seed: int, reading: Reading) -> Labelled:
        if reading.text_columns or reading.label_column or reading.options.choice_columns:
            raise BertineError(
                "the columns of SWAG are known; leave them out, or fine-tune on the file as your "
                "own data (bertine finetune choice)"
            )
        return super().training(task, data, seed, reading)


class SpanReader:
    """A reader of questions about contexts: a table's, or SQuAD's in their JSON.

    Args:
        official: only in SQuAD's format.
    """

    def __init__(self, *, official: bool) -> None:
        self._official = official

    def training(self, task: str, data: Data, seed: int, reading: Reading) -> Labelled:
        questions, held = read_span_splits(
            data, official=self._official, seed=seed, known=reading.known, **reading.table
        )
        return Labelled(
            lambda longest: SpanExtraction.from_examples(
                questions, max_length=longest, limits=reading.limits
            ),
            questions,
            held,
            max_length=MAX_LENGTH,
        )

    def has_validation(self, data: Data, reading: Reading) -> bool:
        return span_files(data, official=self._official)[1] is not None

    def evaluation(self, task: Task[Any], data: Data, reading: Reading) -> Sets:
        own = task.task_info().dataset is None  # SQuAD's columns are not those of a table
        trained = (task.text_columns, task.label_column if own else None)
        with _columns_of(task, reading):
            return {"": read_span_evaluation(data, trained_with=trained, **reading.table)}


class TaggedReader:
    """A reader of words with their tags: column files, JSON lines or Parquet."""

    def training(self, task: str, data: Data, seed: int, reading: Reading) -> Labelled:
        columns = self._columns(reading)
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
            # What is said of columns suits the training file; another kind of file has its own.
            known = dataclasses.replace(columns.merged(own), given=())
            validation = read_sentences(splits.validation, known, **how)
        return Labelled(
            lambda max_length: Tagging.from_examples(
                train, max_length=max_length, document_context=reading.document_context
            ),
            train,
            validation,
        )

    def has_validation(self, data: Data, reading: Reading) -> bool:
        return find_tagged(data).validation is not None

    def evaluation(self, task: Task[Any], data: Data, reading: Reading) -> Sets:
        assert isinstance(task, Tagging)
        columns = self._columns(reading)
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

    @staticmethod
    def _columns(reading: Reading) -> WordColumns:
        if reading.quotes is not None:
            raise BertineError("files of tagged words have no quotes; leave quotes out")
        return named_columns(
            reading.text_columns, reading.label_column, reading.word_column, reading.tag_column
        )


class GlueReader:
    """A reader of GLUE's official files."""

    def training(self, task: str, data: Data, seed: int, reading: Reading) -> Labelled:
        if reading.glue_task is None:
            raise BertineError(
                "which task of GLUE? name it with glue_task (--task CoLA), or take all there are "
                "(--all)"
            )
        if reading.named:
            raise BertineError(
                "the columns and the format of GLUE's files are known; leave them out, or "
                "fine-tune on the file as your own data (bertine finetune text)"
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
        return Labelled(
            lambda max_length: glue_built(kind, train, max_length), train, validation, sets
        )

    def has_validation(self, data: Data, reading: Reading) -> bool:
        if reading.glue_task is None or not isinstance(data, str | Path):
            return False
        kind = glue_task(reading.glue_task)
        folder = glue_folder(data, kind)
        return any((folder / name).is_file() for name in kind.validation.values())

    def evaluation(self, task: Task[Any], data: Data, reading: Reading) -> Sets:
        kind = glue_task_of(task.task_info().dataset)
        own = reading.named or reading.options.probability_columns
        if kind is None or own or isinstance(data, GivenTable | GivenParts):
            return TableReader().evaluation(task, data, reading)
        labelled = find_glue_labelled(data, kind)
        if labelled is None:  # a table of one's own, for a model of GLUE
            refuse_unlabelled(data, kind)
            return TableReader().evaluation(task, data, reading)
        kind, files = labelled
        return {
            word: read_glue_file(path, kind, strict=reading.strict) for word, path in files.items()
        }


def _columns_of(task: Task[Any], reading: Reading) -> AbstractContextManager[None]:
    """Let the columns of training stand in for what `reading` does not name."""
    return columns_of_training(
        () if reading.text_columns else task.text_columns,
        None if reading.label_column else task.label_column,
    )
