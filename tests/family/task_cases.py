"""The fine-tuning tasks that every variant is tried with: toy files, and what opens the models."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tagged
import toys
from bertine.core.rng import generator

from .conftest import Home, Once
from .conftest import bertine as command


def write_table(path: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])
    return path


def rows_of(make: Callable[[int, str, str], tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Make 48 rows, each of its number and two sentences."""
    draw = generator(0, "matrix rows")
    topics = list(toys.TOPICS)
    rows = []
    for number in range(48):
        first, second = (
            toys.sentence(topics[draw.integers(8)], toys.ADJECTIVES[draw.integers(4)])
            for _ in range(2)
        )
        rows.append(make(number, first, second))
    return rows


def numbers(path: Path) -> Path:
    return write_table(
        path, ("text", "label"), rows_of(lambda n, a, b: (a, str(1.0 + a.count("o") + n % 2)))
    )


def label_sets(path: Path) -> Path:
    return write_table(
        path, ("text", "label"), rows_of(lambda n, a, b: (a, "old|cat" if n % 3 else "cat"))
    )


def choices(path: Path) -> Path:
    header = ("context", "choice0", "choice1", "label")
    return write_table(path, header, rows_of(lambda n, a, b: (a, a, b, str(n % 2))))


def questions(path: Path) -> Path:
    def row(number: int, first: str, second: str) -> tuple[str, ...]:
        words = first.split()
        return (f"what {words[3]} ?", f"{second} {first}", " ".join(words[1:3]))

    return write_table(path, ("question", "context", "answer"), rows_of(row))


@dataclass(frozen=True)
class TaskCase:
    """A fine-tuning task.

    Attributes:
        task: its name on the command line.
        write: writes its labelled file.
        file: the name of the file.
        options: that say how it is read.
        auto: transformers' class that opens the model.
        texts: inputs as a program gives them.
    """

    task: str
    write: Callable[[Path], Path]
    file: str
    options: tuple[str, ...]
    auto: str
    texts: tuple[Any, ...]

    @property
    def head(self) -> str:
        """The head that it needs."""
        own = {"choice": "choice", "spans": "spans", "tagging": "token_classifier"}
        return own.get(self.task, "classifier")


ONE = ("the old cat sleeps in the sofa .", "the soup boils .", "a warm cake")
TWO = tuple(zip(ONE, reversed(ONE), strict=True))
_SPANS = ("--max-question-length", "12")
TASKS = {
    "text": TaskCase("text", toys.write_labelled, "t.csv", (), "SequenceClassification", ONE),
    "pair": TaskCase("text", toys.write_pairs, "p.csv", (), "SequenceClassification", TWO),
    "regression": TaskCase("regression", numbers, "r.csv", (), "SequenceClassification", ONE),
    "multi-label": TaskCase("multi-label", label_sets, "m.csv", (), "SequenceClassification", ONE),
    "choice": TaskCase(
        "choice", choices, "c.csv", (), "MultipleChoice", ((ONE[0], ONE[1], ONE[2]),)
    ),
    "spans": TaskCase("spans", questions, "s.csv", _SPANS, "QuestionAnswering", TWO),
    "tagging": TaskCase("tagging", tagged.write_columns, "g.conll", (), "TokenClassification", ONE),
}


def finetune_once(home: Home, once: Once, name: str, *ways: object) -> Path:
    """The model directory of the task `name`, fine-tuned in a way that options say."""
    case = TASKS[name]

    def finetune(folder: Path) -> None:
        data = case.write(folder / case.file)
        command(
            *("finetune", case.task, "--model", home.pretrained, "--data", data),
            *("--out", folder / "run", "--max-length", 48, "--precision", "fp32"),
            *(*ways, *case.options),
        )

    way = "frozen" if "--frozen" in ways else "whole"
    return once(f"{home.variant.model_type}-{name}-{way}", finetune) / "run" / "model"


#: Options that train all weights, a little.
WHOLE = ("--no-frozen", "--epochs", 1, "--batch-size", 16, "--learning-rate", 1e-3)
