"""The tasks of the table, and what both sides are told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertine.core.names import TaskName
from bertine.data.examples import Examples, read_examples
from bertine.data.squad import read_squad
from bertine.data.tagged_sentences import read_sentences
from bertine.datasets.glue import glue_task, read_glue_file
from bertine.datasets.multiple_choice import read_choices

Kind = Literal["text", "regression", "spans", "choice", "tagging"]


@dataclass(frozen=True)
class Task:
    """A row of the table.

    Attributes:
        name: on the command line, and of GLUE's tasks as GLUE has it.
        kind: which head it takes.
        verb: of ``bertine.finetune``.
        folder: below that of all data.
        train: the training file in it.
        held: the file that both sides are judged on.
        metrics: of :func:`sides.scores.judge`, those that the table shows.
        epochs, max_length: where nobody says otherwise.
    """

    name: str
    kind: Kind
    verb: TaskName
    folder: str
    train: str
    held: str
    metrics: tuple[str, ...]
    epochs: int = 3
    max_length: int = 128


def _glue(name: str, epochs: int = 3, kind: Kind = "text") -> Task:
    metrics = glue_task(name).metrics
    return Task(name, kind, "glue", f"glue/{name}", "train.tsv", "dev.tsv", metrics, epochs)


def _squad(version: str, metrics: tuple[str, ...]) -> Task:
    files = f"train-{version}.json", f"dev-{version}.json"
    return Task(f"SQuAD-{version}", "spans", "squad", "squad", *files, metrics, 2, 384)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _glue("CoLA"),
        _glue("SST-2", epochs=1),
        _glue("MRPC"),
        _glue("STS-B", kind="regression"),
        _glue("RTE", epochs=5),
        Task("emotion", "text", "text", "emotion", "train.txt", "val.txt", ("accuracy",)),
        # Of BANKING77 only the training file is there: a tenth of it is held out.
        Task("BANKING77", "text", "text", "banking77", "train.csv", "train.csv", ("accuracy",)),
        Task("CLINC150", "text", "text", "clinc150", "train.csv", "val.csv", ("accuracy",)),
        _squad("v1.1", ("exact_match", "f1")),
        _squad("v2.0", ("exact_match", "f1", "best_f1")),
        Task(
            "CODAH",
            "choice",
            "swag",
            "swag-format-codah",
            "train.csv",
            "val.csv",
            ("accuracy",),
            epochs=5,
        ),
        Task(
            "WNUT-17",
            "tagging",
            "tagging",
            "wnut17",
            "train.conll",
            "dev.conll",
            ("f1",),
            epochs=5,
        ),
    )
}


@dataclass(frozen=True)
class Setting:
    """What both sides are told.

    Attributes:
        data: the folder with the task's files, or with a part of them.
        scorers: the folder of SQuAD's official scripts.
        adam_epsilon: that of the paper's code, not Trainer's 1e-8.
        doc_stride: ours is the distance from window to window, as in the paper's code; that of
            transformers is what two windows share, as its users pass it.
        max_answer_length: pieces.
    """

    task: Task
    model: Path
    data: Path
    scorers: Path
    epochs: int
    batch_size: int
    learning_rate: float
    max_length: int
    seed: int = 0
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    adam_epsilon: float = 1e-6
    max_grad_norm: float = 1.0
    doc_stride: int = 128
    max_answer_length: int = 30

    def hyper_parameters(self) -> dict[str, Any]:
        """What the scores depend on besides data, model and seed."""
        values = dataclasses.asdict(self)
        for name in ("task", "model", "data", "scorers", "seed"):
            del values[name]
        return values


def read_file(task: Task, path: Path) -> Examples[Any]:
    """The labelled examples of one of the task's files."""
    if task.verb == "glue":
        return read_glue_file(path, glue_task(task.name))
    if task.kind == "spans":
        return read_squad(path)
    if task.kind == "choice":
        return read_choices(path, swag=True)[0]
    if task.kind == "tagging":
        return read_sentences(path)
    return read_examples(path)


def labels_of(task: Task, train: Examples[Any]) -> list[str]:
    """The classes or tags of a task, sorted; of GLUE's tasks in their official order."""
    if task.verb == "glue":
        return list(glue_task(task.name).labels)
    if task.kind == "tagging":
        return sorted({tag for item in train.items for tag in item.tags})
    return sorted({str(item.label) for item in train.items})
