"""A classifier gets labels: its own rows stay, and what its old labels lose is measured."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.hub.model_directory import load_model
from bertine.options.data import DataConfig
from bertine.options.finetuning import FinetuneOptions
from bertine.training.adamw import AdamW
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.setup import Prepared, prepare

FAST: dict[str, Any] = {
    "max_length": 16,
    "batch_size": 8,
    "learning_rate": 3e-3,
    "precision": "fp32",
    "device": "cpu",
    "baselines": False,
    "frozen": False,
}
TOPICS = list(toys.TOPICS)
NEW = "warm"


def label_of(topic: int) -> str:
    return "animal" if topic < 3 else "dish" if topic < 6 else NEW


def write(path: Path, topics: Sequence[int], numbers: Iterable[int]) -> Path:
    """Rows of different texts about some of the topics in turn: 0 to 2 are animals, 3 to 5 dishes,
    6 and 7 the new label."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for number in numbers:
            topic = topics[number % len(topics)]
            rows.writerow([f"{toys.sentence(TOPICS[topic], 'old')} {number}", label_of(topic)])
    return path


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on ``old.csv``, with two labels."""
    folder = tmp_path_factory.mktemp("old")
    model = toys.write_model(folder / "base")
    data = write(folder / "old.csv", range(6), range(120))
    bertine.finetune("text", model=model, data=data, out=folder / "run", epochs=6, **FAST)
    return folder / "run"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write(tmp_path / "new.csv", (6, 7), range(200, 260))


def grow(old: Path, data: Path, out: Path, **others: Any) -> Learner:
    given = {"epochs": 4, "add_labels": True, **FAST, **others}
    return bertine.finetune("text", model=old, data=data, out=out, **given)


def prepared(old: Path, data: Path, **others: Any) -> Prepared:
    options = FinetuneOptions(**{**FAST, "add_labels": True, **others})
    where, config = torch.device("cpu"), DataConfig()
    return prepare("text", data, model=old, config=config, options=options, where=where)


def test_old_rows_are_the_old_ones_before_the_first_step(old: Path, new: Path) -> None:
    begun, before = prepared(old, new), load_model(old).model
    assert begun.task.labels == ("animal", "dish", NEW)
    out, own = begun.loaded.model.heads["classifier"].out, before.heads["classifier"].out
    assert torch.equal(out.weight[:2], own.weight)
    assert torch.equal(out.bias[:2], own.bias)
    for name, tensor in before.backbone.state_dict().items():
        assert torch.equal(begun.loaded.model.backbone.state_dict()[name], tensor)


def test_a_label_is_learned_beside_the_old_examples(
    old: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = grow(old, new, tmp_path / "run")
    said = capsys.readouterr().err
    assert f"keeps its 2 labels and gets 1 more; learned again: examples of {old.parent}" in said
    # The old rows that were held out before are held out again.
    assert learner.report is not None
    assert learner.report.num_examples == 12 + 6
    metrics = learner.metrics
    assert metrics["old_labels_accuracy_before"] == 1.0
    assert metrics["old_labels_accuracy"] == 1.0
    assert metrics["new_labels_accuracy"] == 1.0
    line = "old labels (2): 100.0% before, 100.0% now, of 12 held-out texts; "
    line += "new labels (1): 100.0% of 6"
    assert line in learner.lines()
    assert line[:45] in (tmp_path / "run/report.html").read_text(encoding="utf-8").lower()
    assert [answer.label for answer in learner.predict([f"{toys.sentence(TOPICS[6], 'old')} 9"])]
