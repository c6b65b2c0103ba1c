"""Read GLUE's official files into examples."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples, check_texts, row_texts
from bertine.data.lines import first_numbers
from bertine.data.tables import Table
from bertine.options.data import DEFAULTS, DataConfig
from bertine.tasks.classification import TextClassification
from bertine.tasks.whole_text import TextRegression

# GLUE's tasks: files, columns, labels, metrics (Wang et al. 2018, arXiv 1804.07461).
#
# The layouts are those of the files on gluebenchmark.com: a folder for each task, tab-separated,
# quotes never escaped. Only CoLA's training and dev files have no header.

_ENTAILMENT = ("contradiction", "entailment", "neutral")
_NOT_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")


@dataclass(frozen=True)
class GlueTask:
    """One task of GLUE; the defaults are the values of most tasks.

    Attributes:
        name: the leaderboard's name.
        asks: what it asks of a text or a pair, in a few words.
        text_columns: in all of its files, unless `test_text_columns` says otherwise.
        label_column: in the training and dev files.
        labels: the label texts in order; empty for a regression.
        metrics: the official ones, on `validation`; their mean is the task's score.
        paper_metrics: those that are columns in table 1 of Devlin et al. 2018; None: all.
        directory: the folder of its files, if its name is not the task's.
        index_column: of the test files.
        columns: names for the columns of the training and dev files if they have no header.
        test_text_columns: those of the test file if its names differ; empty: the same.
        train: the training file; None for AX, which is only a test of a model for MNLI.
        validation: the dev files: by the prefix of their metrics' names ("" for the first).
        tests: the test files, by the leaderboard's names for the predictions; empty: ``test.tsv``,
            for ``NAME.tsv``.
        alone: the name of a test file that the site offers separately.
        score_range: of a regression; predictions for the leaderboard are clipped to it.
    """

    name: str
    asks: str
    text_columns: tuple[str, ...]
    label_column: str = "label"
    labels: tuple[str, ...] = ("0", "1")
    metrics: tuple[str, ...] = ("accuracy",)
    paper_metrics: tuple[str, ...] | None = None
    directory: str = ""
    index_column: str = "index"
    columns: tuple[str, ...] = ()
    test_text_columns: tuple[str, ...] = ()
    train: str | None = "train.tsv"
    validation: Mapping[str, str] = field(default_factory=lambda: {"": "dev.tsv"})
    tests: Mapping[str, str] = field(default_factory=dict)
    alone: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None

    @property
    def columns_in_paper(self) -> tuple[str, ...]:
        """Its metrics that are columns in table 1 of Devlin et al. 2018, whose average is the mean
        of the columns."""
        return self.metrics if self.paper_metrics is None else self.paper_metrics

    @property
    def folder(self) -> str:
        """Name of the folder of its files."""
        return self.directory or self.name

    @property
    def test(self) -> Mapping[str, str]:
        """The test files, by the leaderboard's names for the predictions."""
        return self.tests or {f"{self.name}.tsv": "test.tsv"}

    @property
    def dataset(self) -> str:
        """Its name in a model directory."""
        return f"glue/{self.name}"

    @property
    def regression(self) -> bool:
        """Whether its labels are scores."""
        return not self.labels

    @property
    def kind(self) -> type[TextClassification | TextRegression]:
        """The class of its task."""
        return TextRegression if self.regression else TextClassification

    @property
    def settings(self) -> dict[str, Any]:
        """What its task is made from besides the training examples."""
        labels = {} if self.regression else {"labels": self.labels}
        return {**labels, "metric_names": self.metrics, "dataset": self.dataset}


_TASKS = (
    GlueTask(
        name="CoLA",
        asks="is the sentence grammatical?",
        text_columns=("sentence",),
        metrics=("matthews",),
        columns=("source", "label", "author_label", "sentence"),
    ),
    GlueTask("SST-2", "does the sentence about a film praise it?", ("sentence",)),
    GlueTask(
        name="MRPC",
        asks="do two sentences of news say the same?",
        text_columns=("#1 String", "#2 String"),
        label_column="Quality",
        metrics=("f1", "accuracy"),
        paper_metrics=("f1",),
    ),
    GlueTask(
        name="STS-B",
        asks="how alike are two sentences, from 0 to 5?",
        text_columns=_PAIR,
        label_column="score",
        labels=(),
        metrics=("pearson", "spearman"),
        paper_metrics=("spearman",),
        score_range=(0.0, 5.0),
    ),
    GlueTask(
        name="QQP",
        asks="do two questions of Quora ask the same?",
        text_columns=("question1", "question2"),
        label_column="is_duplicate",
        metrics=("f1", "accuracy"),
        paper_metrics=("f1",),
        index_column="id",
    ),
    GlueTask(
        name="MNLI",
        asks="does the second sentence follow from the first, contradict it, or neither?",
        text_columns=_PAIR,
        label_column="gold_label",
        labels=_ENTAILMENT,
        metrics=("accuracy", "mismatched_accuracy"),
        validation={"": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"},
        tests={"MNLI-m.tsv": "test_matched.tsv", "MNLI-mm.tsv": "test_mismatched.tsv"},
    ),
    GlueTask(
        name="QNLI",
        asks="does the sentence answer the question?",
        text_columns=("question", "sentence"),
        labels=_NOT_ENTAILMENT,
    ),
    GlueTask(
        name="RTE",
        asks="does the second text follow from the first?",
        text_columns=_PAIR,
        labels=_NOT_ENTAILMENT,
    ),
    GlueTask(
        name="WNLI",
        asks="does the sentence with a name for the pronoun follow from the first?",
        text_columns=_PAIR,
        paper_metrics=(),
    ),
    # The diagnostic set: a test of a model for MNLI. Its labels, for those who have them, are in
    # a file with its own columns, diagnostic-full.tsv.
    GlueTask(
        name="AX",
        asks="as MNLI, of sentences that test one thing each",
        text_columns=("Premise", "Hypothesis"),
        label_column="Label",
        labels=_ENTAILMENT,
        metrics=("matthews",),
        directory="diagnostic",
        test_text_columns=_PAIR,
        train=None,
        validation={"": "diagnostic-full.tsv"},
        tests={"AX.tsv": "diagnostic.tsv"},
        alone=("AX.tsv",),
    ),
)

#: By name, in the leaderboard's order.
GLUE: Mapping[str, GlueTask] = MappingProxyType({task.name: task for task in _TASKS})

#: The label of a row on which the annotators did not agree (MNLI, SNLI).
NO_LABEL = "-"

#: The tasks in the leaderboard's average, which excludes AX.
AVERAGED = tuple(task.name for task in _TASKS if task.train)


def glue_task(name: str) -> GlueTask:
    """Return the task called `name`, in upper or lower case.

    Raises:
        BertineError: GLUE has no such task; names the nearest.
    """
    by_lower = {known.lower(): known for known in GLUE}
    if name.lower() not in by_lower:
        near = difflib.get_close_matches(name.lower(), by_lower, n=1)
        hint = f"did you mean {by_lower[near[0]]!r}?" if near else f"there are {', '.join(GLUE)}"
        raise BertineError(f"GLUE has no task {name!r}; {hint}")
    return GLUE[by_lower[name.lower()]]


def glue_task_of(dataset: str | None) -> GlueTask | None:
    """Return the task of the data set in a model directory; None if it is not one of GLUE's."""
    name = (dataset or "").removeprefix("glue/")
    return GLUE.get(name) if dataset == f"glue/{name}" else None


def glue_folder(data: Path | str, task: GlueTask) -> Path:
    """Find the folder of `task`: ``DATA/<its name>``, or `data` itself.

    Raises:
        BertineError: neither has one of the task's files.
    """
    data = Path(data)
    if not data.exists():
        raise BertineError(f"{data}: no such folder")
    train = [task.train] if task.train else []
    wanted = [*train, *task.validation.values(), *task.test.values()]
    for folder in (*_folders(data, task), data):
        if any((folder / name).is_file() for name in wanted):
            return folder
    raise BertineError(
        f"{data}: has no files of GLUE's {task.name}; expected {task.folder}/{wanted[0]} in it, "
        f"or {wanted[0]}"
    )


def _folders(data: Path | str, task: GlueTask) -> list[Path]:
    """Return the folders in `data` that may hold the files of `task`."""
    return [Path(data) / task.folder, Path(data) / task.name]


def glue_tasks_in(data: Path | str) -> list[GlueTask]:
    """Find the tasks that have a folder with a training file in `data`, in GLUE's order.

    Raises:
        BertineError: there are none.
    """
    tasks = [
        task
        for task in GLUE.values()
        if task.train and any((folder / task.train).is_file() for folder in _folders(data, task))
    ]
    if not tasks:
        raise BertineError(
            f"{data}: has no folder of a GLUE task with a train.tsv in it, such as CoLA/train.tsv"
        )
    return tasks


def read_glue(
    data: Path | str, task: GlueTask, config: DataConfig = DEFAULTS
) -> tuple[Examples, dict[str, Examples]]:
    """Read the training examples of `task`, and its dev sets by the prefix of their metrics' names:
    "" for the first, the matched one of MNLI. There are none if the folder has none.

    Raises:
        BertineError: see :func:`read_glue_file`; there is no training file; MNLI has only one of
            its dev files.
    """
    if task.train is None:
        raise BertineError(
            f"{task.name} is a test of a model for MNLI and has nothing to train on; fine-tune "
            "MNLI, and evaluate that model on it"
        )
    folder = glue_folder(data, task)
    if not (folder / task.train).is_file():
        raise BertineError(f"{folder}: has no {task.train} to train on")
    train = read_glue_file(folder / task.train, task, config)
    files = {word: folder / name for word, name in task.validation.items()}
    present = [path.name for path in files.values() if path.is_file()]
    missing = [path.name for path in files.values() if path.name not in present]
    if present and missing:
        raise BertineError(
            f"{folder}: has {present[0]}, but no {missing[0]}; {task.name} needs both"
        )
    sets = files if present else {}
    return train, {word: read_glue_file(path, task, config) for word, path in sets.items()}


def read_glue_file(path: Path, task: GlueTask, config: DataConfig = DEFAULTS) -> Examples:
    """Read a labelled file of `task`. Rows with too many or too few cells, which QQP has a few of,
    and rows without a gold label are left out, counted and named.

    Raises:
        BertineError: an error of :class:`~bertine.data.tables.Table`; the file is not one of the
            task's; a label is not one of the task's.
    """
    texts, label = task.text_columns, task.label_column
    examples: Examples[Example] = Examples(str(path), texts, label)
    unlabelled: list[int] = []
    with Table(
        path,
        format="tsv",
        wanted=[*texts, label],
        quotes=False,
        strict=config.strict,
        encoding=config.encoding,
        header=task.columns or None,
        skip_damaged=True,
    ) as table:
        for row in table:
            gold = table.label(row, label)
            if gold == NO_LABEL and NO_LABEL not in task.labels:
                unlabelled.append(row.line)
                continue
            if task.labels and gold not in task.labels:
                raise BertineError(
                    f"{path}:{row.line}: unknown label {gold!r} in the column {label!r}; "
                    f"{task.name} has {', '.join(task.labels)}"
                )
            examples.items.append(Example(row_texts(table, row, texts), gold, row.line))
        if not examples.items:
            raise BertineError(
                f"{path}: no row has the {len(table.columns)} columns and the label of GLUE's "
                f"{task.name}; is it another task's file?"
            )
        examples.notes = table.stats.notes(table.name)
    if unlabelled:
        examples.notes.append(
            f"{path}: {plural(len(unlabelled), 'row')} without a gold label left out "
            f"({first_numbers(unlabelled)})"
        )
    check_texts(examples)
    return examples


def read_glue_test(path: Path, task: GlueTask) -> tuple[list[str], Examples]:
    """Read the indices and the texts of a test file. Every row needs a prediction, so none is left
    out.

    Raises:
        BertineError: an error of :class:`~bertine.data.tables.Table`; an index is not an integer,
            or is repeated.
    """
    texts = task.test_text_columns or task.text_columns
    examples: Examples[Example] = Examples(str(path), texts, None)
    indices: list[str] = []
    with Table(path, format="tsv", wanted=[task.index_column, *texts], quotes=False) as table:
        for row in table:
            index = table.text(row, task.index_column).strip()
            if not (index.isascii() and index.isdigit()):
                raise BertineError(
                    f"{path}:{row.line}: the {task.index_column} is {index!r}, but must be a whole "
                    "number"
                )
            indices.append(index)
            examples.items.append(Example(row_texts(table, row, texts), None, row.line))
        examples.notes = table.stats.notes(table.name)
    if len(set(indices)) < len(indices):
        twice = Counter(indices).most_common(1)[0][0]
        raise BertineError(f"{path}: the {task.index_column} {twice} is there twice")
    check_texts(examples)
    return indices, examples


def find_glue_labelled(data: Path | str, task: GlueTask) -> tuple[GlueTask, dict[str, Path]] | None:
    """Find the labelled files in `data` for scoring a model for `task`, and their task: the dev
    files of a folder, by the prefix of their metrics; or the one file, by its name. A model for
    MNLI can be scored on AX too. None if `data` is not GLUE's.
    """
    data = Path(data)
    kinds = [task, GLUE["AX"]] if task.name == "MNLI" else [task]
    for kind in kinds:
        if data.is_file():
            if data.name in (kind.train, *kind.validation.values()):
                return kind, {"": data}
            continue
        for folder in (*_folders(data, kind), data):
            files = {
                word: folder / name
                for word, name in kind.validation.items()
                if (folder / name).is_file()
            }
            if files:
                return kind, files
    return None


def find_glue_test(data: Path | str, task: GlueTask, *, required: bool = True) -> dict[str, Path]:
    """Find the test files of `task`, by the leaderboard's names for their predictions.

    Raises:
        BertineError: one is missing, unless not `required`; then the existing ones are returned.
    """
    files: dict[str, Path] = {}
    for written, name in task.test.items():
        # Single-sentence tasks have the same columns, so the folder of another one would go
        # unnoticed.
        places = _folders(data, task)
        if not _of_another(Path(data), task, name):
            places.append(Path(data))
        names = (name, *task.alone)
        paths = [place / file for place in places for file in names if (place / file).is_file()]
        path = paths[0] if paths else None
        if path is not None:
            files[written] = path
        elif required:
            raise BertineError(f"{data}: has no {task.folder}/{name}, the test file for {written}")
    return files


def refuse_unlabelled(data: Path | str, task: GlueTask) -> None:
    """Refuse `data` that are only AX's test file, on which a model for MNLI cannot be scored.

    Raises:
        BertineError: they are; the message describes the file.
    """
    path, ax = Path(data), GLUE["AX"]
    if task.name != "MNLI":
        return
    if path.is_file():
        files = [path] if path.name in (*ax.test.values(), *ax.alone) else []
    else:
        files = list(find_glue_test(path, ax, required=False).values())
    if files:
        raise BertineError(
            f"{files[0]}: is the test file of AX, which has no labels to compare with; give "
            f"{ax.validation['']}, or have it answered by 'bertine glue-submission'"
        )


def _of_another(folder: Path, task: GlueTask, name: str) -> bool:
    """Return whether `folder` has the name of a task other than `task` that has a test file `name`
    too."""
    called = folder.resolve().name
    return any(
        called in (other.folder, other.name) and name in other.test.values()
        for other in GLUE.values()
        if other is not task
    )
