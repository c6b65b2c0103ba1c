"""The examples of a table of features: what is learned, and on what it is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from bertine.datasets.labelled import Labelled, read_evaluation, read_labelled
from bertine.datasets.reading import Reading
from bertine.errors import BertineError
from bertine.options.feature_based import FeatureBasedOptions
from bertine.records.conll import WordColumns, find_tagged, read_sentences
from bertine.records.examples import Examples
from bertine.records.sentences import Sentences
from bertine.records.splits import find_splits
from bertine.tasks.base import Task
from bertine.tasks.options import TableOptions
from bertine.tasks.tagging.task import Tagging
from bertine.terminal.console import warn


def read_sets(
    data: Path | str, options: FeatureBasedOptions, max_length: int, known: frozenset[int]
) -> tuple[Task[Any], dict[str, Examples[Any]], Path | None]:
    """Read the examples of `data`, and make the task that they describe.

    Returns:
        The task; the examples: "train", "validation", "test" where a file has labelled ones, and
        further validation sets; and the file of "test", if there is one.

    Raises:
        BertineError: what reading the data raises.
    """
    reading = Reading.of(
        options,
        quotes=None,
        split_seed=None,
        options=TableOptions(),
        whole=False,
        known=known,
        limits=None,
    )
    labelled = read_labelled(options.task, data, seed=options.seed, reading=reading)
    task = labelled.build(max_length)
    sets = {"train": labelled.train, "validation": labelled.validation}
    if options.task == "tagging":
        test_file = find_tagged(data).test
        if test_file is not None:
            sets["test"] = _tagged_test(
                cast(Path, test_file), labelled, cast(Tagging, task), options
            )
        return task, sets, cast("Path | None", test_file)
    if options.task == "glue":
        return task, sets | labelled.others, None
    test_file = find_splits(data).test
    if test_file is None:
        return task, sets, None
    try:
        sets["test"] = read_evaluation(task, test_file, reading)[""]
    except BertineError as error:  # often it has no labels
        warn(f"the test file is left out: {error}")
        return task, sets, None
    return task, sets, cast(Path, test_file)


def _tagged_test(
    path: Path, labelled: Labelled, task: Tagging, options: FeatureBasedOptions
) -> Sentences:
    train = labelled.train
    return read_sentences(
        path,
        WordColumns.trained_with(train.text_columns, train.label_column),
        scheme=options.tag_scheme if task.has_entities else "plain",
        format=options.format,
        strict=options.strict,
    )
