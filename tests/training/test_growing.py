"""A classifier gets labels: its own rows stay, and what its old labels lose is measured."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.hub.model_directory import load_model
from bertine.models.heads import Model
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
    given = {"epochs": 2, "add_labels": True, **FAST, **others}
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


@pytest.mark.takes(4)
def test_a_label_is_learned_beside_the_old_examples(
    old: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = grow(old, new, tmp_path / "run", epochs=4)
    said = capsys.readouterr().err
    assert f"its 2 labels and gets 1 more; learned again: 108 examples of {old.parent}" in said
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
    (answer,) = learner.predict([f"{toys.sentence(TOPICS[6], 'old')} 9"])
    assert answer.label == NEW


@pytest.fixture(scope="module")
def moved(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, whose training file is gone."""
    folder = tmp_path_factory.mktemp("moved") / "model"
    shutil.copytree(old / "model", folder)
    facts = json.loads((folder / "bertine.json").read_text(encoding="utf-8"))
    facts["training"]["data_path"] = str(folder / "gone.csv")
    (folder / "bertine.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder


def test_old_examples_may_be_named_and_are_a_sample(old: Path, moved: Path, new: Path) -> None:
    alone = prepared(moved, new)
    assert alone.growth is not None
    assert not alone.growth.complete
    assert {item.label for item in alone.data.train.items} == {NEW}
    few = write(new, (6, 7), range(200, 212))
    named = prepared(moved, few, old_data=old.parent / "old.csv")
    assert named.growth is not None
    assert named.growth.complete
    counts = Counter(item.label for item in named.data.train.items)
    assert counts == {NEW: 11, "animal": 22, "dish": 22}
    # A row that is among the new ones, here with another label, counts as it is there.
    moved_row = f"{toys.sentence(TOPICS[0], 'old')} 0"
    with few.open("a", encoding="utf-8") as file:
        file.write(f"{moved_row},{NEW}\n")
    again = prepared(old, few).data
    rows = [*again.train.items, *again.validation.items]
    assert [item.label for item in rows if item.texts == (moved_row,)] == [NEW]


@pytest.mark.takes(4)
def test_without_old_examples_only_the_new_rows_are_fitted(
    moved: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = grow(moved, new, tmp_path / "run", frozen=None)
    said = capsys.readouterr().err
    assert "may forget: only the rows of the new ones are fitted; old_data names a file" in said
    assert "calibrated" not in said
    assert learner.report is not None
    assert "what the old labels lost is not measured" in learner.report.notes[0]
    before, after = toys.weights(moved), toys.weights(learner.model)
    for name, tensor in before.items():
        assert torch.equal(after[name][: len(tensor)], tensor)
    assert after["classifier.weight"][2].any()
    # With some examples of an old label it is measured, also where all weights are trained.
    learner = grow(moved, write(new, (0, 6), range(200, 260)), tmp_path / "some", epochs=1)
    assert "which the model may forget; old_data names" in capsys.readouterr().err
    assert learner.report is not None
    assert re.match(r"old labels \(2\): 100.0% before, \S+ now, of 3 ", learner.report.notes[0])


@pytest.mark.takes(4)
def test_a_head_that_was_fitted_alone_grows_alone(old: Path, new: Path, tmp_path: Path) -> None:
    def grown(data: Path, name: str, **others: Any) -> tuple[Model, Learner]:
        learner = bertine.finetune(
            "text", data=data, out=tmp_path / name, precision="fp32", device="cpu", **others
        )
        return load_model(learner.model).model, learner

    data = old.parent / "old.csv"
    copy = Path(shutil.copy(data, tmp_path / "copy.csv"))
    before, first = grown(copy, "first", model=old.parent / "base", frozen=True)
    whole, learner = grown(new, "whole", model=first.model, add_labels=True)
    assert len(whole.backbone.layers) == len(before.backbone.layers)  # one mean is enough
    assert learner.metrics["new_labels_accuracy"] == 1.0
    assert learner.metrics["old_labels_accuracy"] == 1.0
    copy.unlink()
    alone, _ = grown(new, "alone", model=first.model, add_labels=True)
    out, own = alone.heads["classifier"].out, before.heads["classifier"].out
    assert torch.equal(out.weight[:2], own.weight)
    assert torch.equal(out.bias[:2], own.bias)
    assert out.weight[2].any()
    with pytest.raises(BertineError, match=r"fitted alone, which stays so; omit frozen=F"):
        grown(new, "trained", model=first.model, add_labels=True, frozen=False)


@pytest.mark.takes(4)
def test_a_resumed_run_is_the_same_bit_for_bit(old: Path, new: Path, tmp_path: Path) -> None:
    whole = grow(old, new, tmp_path / "whole", epochs=2)
    with toys.interrupted_at(24, AdamW, "clipped_step"):  # after the first epoch
        grow(old, new, tmp_path / "killed", epochs=2)
    again = grow(old, new, tmp_path / "killed", epochs=2, resume=True)
    assert toys.same_weights(again.model, whole.model)
    assert again.metrics == whole.metrics


def test_what_cannot_grow_is_refused(
    old: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, base = tmp_path / "run", old.parent / "base"
    with pytest.raises(BertineError, match=r"base: was not fine-tuned, so that it has no labels"):
        grow(base, new, out)
    for task in ("multi-label", "regression"):
        with pytest.raises(BertineError, match=rf"is for the task 'text', not for '{task}'"):
            bertine.finetune(task, model=old, data=new, out=out, add_labels=True)
    with pytest.raises(BertineError, match=r"old_data is for add_labels=True; give both"):
        grow(old, new, out, add_labels=False, old_data=new)
    with pytest.raises(BertineError, match=r"add_labels=True needs a model that has labels"):
        bertine.finetune("text", data=new, out=out, add_labels=True)
    with pytest.raises(BertineError, match=r"so that fresh_weights does not go with it"):
        grow(old, new, out, fresh_weights=True)
    pairs = toys.write_pairs(tmp_path / "pairs.csv")
    with pytest.raises(BertineError, match=r"pairs\.csv: .* reads 1 text column; name as many"):
        grow(old, pairs, out)
    with pytest.raises(BertineError, match=r"known\.csv: .* has all its labels; leave out add_lab"):
        grow(old, write(tmp_path / "known.csv", (0, 5), range(40)), out)
    # Without the option the head begins anew, which is said.
    prepared(old, write(new, (0, 6), range(40)), add_labels=False)
    assert "its head begins anew; add_labels=True keeps its labels" in capsys.readouterr().err


@pytest.mark.takes(4)
def test_few_shot_adds_labels_beside_old_examples(
    old: Path, moved: Path, new: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"data": new, "add_labels": True, "steps": 4, "device": "cpu"}
    learner = bertine.few_shot(model=old, out=tmp_path / "run", **given)
    assert learner.predictor.task.labels == ("animal", "dish", NEW)
    assert {"old_labels_accuracy", "old_labels_accuracy_before"} <= learner.metrics.keys()
    with pytest.raises(BertineError, match=r"the label 'animal' has 0 examples, but few-shot"):
        bertine.few_shot(model=moved, out=tmp_path / "alone", **given)
