"""The tasks of GLUE as data: files, columns, labels, metrics (Wang et al. 2018, arXiv 1804.07461).

The layouts are those of the files that gluebenchmark.com gives out: a folder for each task,
tab-separated, quotes never escaped. Only CoLA's training and dev files have no header.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bertine.errors import BertineError

_ENTAILMENT = ("contradiction", "entailment", "neutral")
_NOT_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")


@dataclass(frozen=True)
class GlueTask:
    """One task of GLUE; what most tasks have in common are the defaults.

    Attributes:
        name: as the leaderboard calls it.
        text_columns: in all of its files, unless `test_text_columns` says otherwise.
        label_column: in the training and dev files.
        labels: the label texts in their order; empty for a regression.
        metrics: the official ones, on `validation`; their mean is the task's score.
        directory: the folder of its files, where that is not called as the task.
        index_column: of the test files.
        columns: names for the columns of the training and dev files where they have no header.
        test_text_columns: where the test file calls the text otherwise; empty: as elsewhere.
        train: the training file; None for AX, which is only a test of a model for MNLI.
        validation: the dev files: by the word that the metrics of each get before their names
            ("" for the first).
        tests: the test files, by the name that the leaderboard wants for the predictions; empty:
            ``test.tsv``, for ``NAME.tsv``.
        alone: what a test file is called where the site gives it out by itself.
        score_range: of a regression; predictions for the leaderboard are clipped to it.
    """

    name: str
    text_columns: tuple[str, ...]
    label_column: str = "label"
    labels: tuple[str, ...] = ("0", "1")
    metrics: tuple[str, ...] = ("accuracy",)
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
    def folder(self) -> str:
        """Name of the folder of its files."""
        return self.directory or self.name

    @property
    def test(self) -> Mapping[str, str]:
        """The test files, by the name that the leaderboard wants for the predictions."""
        return self.tests or {f"{self.name}.tsv": "test.tsv"}

    @property
    def dataset(self) -> str:
        """The name by which a model directory calls it."""
        return f"glue/{self.name}"

    @property
    def regression(self) -> bool:
        """Whether its labels are scores."""
        return not self.labels


_TASKS = (
    GlueTask(
        name="CoLA",
        text_columns=("sentence",),
        metrics=("matthews",),
        columns=("source", "label", "author_label", "sentence"),
    ),
    GlueTask(name="SST-2", text_columns=("sentence",)),
    GlueTask(
        name="MRPC",
        text_columns=("#1 String", "#2 String"),
        label_column="Quality",
        metrics=("f1", "accuracy"),
    ),
    GlueTask(
        name="STS-B",
        text_columns=_PAIR,
        label_column="score",
        labels=(),
        metrics=("pearson", "spearman"),
        score_range=(0.0, 5.0),
    ),
    GlueTask(
        name="QQP",
        text_columns=("question1", "question2"),
        label_column="is_duplicate",
        metrics=("f1", "accuracy"),
        index_column="id",
    ),
    GlueTask(
        name="MNLI",
        text_columns=_PAIR,
        label_column="gold_label",
        labels=_ENTAILMENT,
        metrics=("accuracy", "mismatched_accuracy"),
        validation={"": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"},
        tests={"MNLI-m.tsv": "test_matched.tsv", "MNLI-mm.tsv": "test_mismatched.tsv"},
    ),
    GlueTask(name="QNLI", text_columns=("question", "sentence"), labels=_NOT_ENTAILMENT),
    GlueTask(name="RTE", text_columns=_PAIR, labels=_NOT_ENTAILMENT),
    GlueTask(name="WNLI", text_columns=_PAIR),
    # The diagnostic set: a test of a model for MNLI. Its labels, where one has them, are in a
    # file with columns of its own, diagnostic-full.tsv.
    GlueTask(
        name="AX",
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

#: The tasks that the leaderboard's average is over; AX stands beside it.
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
    """Return the task of the data set that a model directory names; None where it is none of
    GLUE's."""
    name = (dataset or "").removeprefix("glue/")
    return GLUE.get(name) if dataset == f"glue/{name}" else None
