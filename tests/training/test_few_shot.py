"""A model from a few labels: what is drawn, what is learned, and what is refused."""

from __future__ import annotations

import csv
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bertine
import toys
from bertine import BertineError
from bertine.cli import main
from bertine.corpora.batch import Batch
from bertine.families.modernbert_layers import ModernBertConfig
from bertine.models.heads import Model
from bertine.reports.run_files import read_log
from bertine.tasks.base import Features
from bertine.training.contrastive import LabelBatches, contrastive_loss, count_pairs, likeness
from bertine.training.defaults import weights_for
from bertine.training.finetuning.run import _Finetuning

#: The toy model's vectors know nothing yet, so that all its weights must learn.
SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "steps": 25,
    "precision": "fp32",
    "trained_weights": "all",
}

label_sets = st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_labelled(tmp_path_factory.mktemp("held") / "held.csv", rows=40, seed=1)


def learn(data: Path, model: Path, out: Path, **changes: Any) -> Any:
    with toys.one_thread():
        return bertine.few_shot(model=model, data=data, out=out, **{**SETTINGS, **changes})


def features_of(chosen: np.ndarray) -> list[Features]:
    """Features that say their own numbers."""
    return [Features(np.array([row]), np.array([0]), row) for row in range(len(chosen))]


def _not_wanted(_: object) -> Batch:
    raise AssertionError("no batch is to be made")


def batches_of(chosen: np.ndarray, size: int, seed: int = 0) -> LabelBatches:
    return LabelBatches(features_of(chosen), chosen, _not_wanted, batch_size=size, seed=seed)


@given(label_sets)
def test_pairs_are_counted_as_one_would_count_them(rows: list[list[bool]]) -> None:
    chosen = np.array(rows)
    counts = count_pairs(chosen)
    alike = sum(bool((a & b).any()) or not (a.any() or b.any()) for a, b in combinations(chosen, 2))
    assert counts.alike == alike
    assert counts.total == len(rows) * (len(rows) - 1) // 2


@pytest.mark.slow
@given(label_sets, st.integers(2, 16), st.integers(0, 50))
def test_a_batch_is_the_same_whenever_it_is_asked_for(
    rows: list[list[bool]], size: int, step: int
) -> None:
    chosen = np.array(rows)
    begun = batches_of(chosen, size)
    one_after_the_other = [begun.rows(number) for number in range(step + 1)]
    assert batches_of(chosen, size).rows(step) == one_after_the_other[step]
    taken = one_after_the_other[step]
    assert len(set(taken)) == len(taken) <= size
    assert all(0 <= row < len(rows) for row in taken)


def test_rare_labels_are_met_as_often_as_frequent_ones_and_never_alone() -> None:
    labels = np.array([0] * 100 + [1] * 4 + [2] * 30)
    drawn = [batches_of(np.eye(3, dtype=bool)[labels], 12).rows(step) for step in range(60)]
    met = np.bincount(labels[np.concatenate(drawn)], minlength=3)
    assert met.min() > 0.8 * met.max()
    assert all(np.bincount(labels[rows], minlength=3).min() >= 2 for rows in drawn)
    # Nobody is left out: each label's texts are gone through in turn.
    assert set(np.concatenate(drawn).tolist()) == set(range(134))


def test_a_batch_has_pairs_that_are_alike_however_many_labels_there_are() -> None:
    labels = np.repeat(np.arange(150), 5)
    for step in range(10):
        rows = batches_of(np.eye(150, dtype=bool)[labels], 32).rows(step)
        assert np.bincount(labels[rows]).max() >= 2


def test_the_loss_is_that_of_the_paper() -> None:
    """Equation 2 of Khosla et al. 2020, written out."""
    draw = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(6, 4, generator=draw), dim=-1)
    labels = [0, 0, 1, 1, 1, 2]
    expected, count = 0.0, 0
    for i in range(6):
        same = [j for j in range(6) if j != i and labels[j] == labels[i]]
        if not same:
            continue
        below = sum(float(torch.exp(vectors[i] @ vectors[a] / 0.2)) for a in range(6) if a != i)
        for j in same:
            share = float(torch.exp(vectors[i] @ vectors[j] / 0.2)) / below
            expected -= float(np.log(share)) / len(same)
        count += 1
    chosen = torch.nn.functional.one_hot(torch.tensor(labels)).float()
    total, counted = contrastive_loss(vectors, likeness(chosen), 0.2)
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert counted == count == 5


def test_few_examples_train_the_biases_alone_where_there_are_any() -> None:
    bert = Model(toys.config(), {})
    assert weights_for(bert, 20) == "biases"
    assert weights_for(bert, 20, pairs=True) == "all"
    assert weights_for(bert, 1_000) == "all"
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    without = Model(
        ModernBertConfig(vocab_size=100, pad_token_id=0, num_hidden_layers=1, **sizes), {}
    )
    assert weights_for(without, 20) == "all"


def test_biases_and_layer_norms_alone_change(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toys.write_labelled(tmp_path / "few.csv", rows=16)
    learn(data, model, tmp_path / "run", trained_weights=None, learning_rate=None, steps=6)
    assert "training of biases and layer norms: 6 steps" in capsys.readouterr().err
    before, after = toys.weights(model), toys.weights(tmp_path / "run/model")
    shared = [name for name in after if name in before and ".layer.0." in name]
    changed = {name for name in shared if not torch.equal(before[name], after[name])}
    assert changed == {name for name in shared if before[name].dim() == 1}
    assert any("LayerNorm" in name for name in changed)


@pytest.mark.takes(4)
def test_texts_are_learned_kept_and_answered(
    model: Path, held: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toys.write_labelled(tmp_path / "few.csv", rows=16)
    learner = learn(data, model, tmp_path / "run")
    said = capsys.readouterr().err
    assert "120 possible pairs: 56 with a label in common, 64 without" in said
    assert "16 training and 0 validation examples" in said
    report = bertine.evaluate(tmp_path / "run", held)
    assert report.metrics["accuracy"] >= 0.9
    predictor = bertine.Predictor.load(tmp_path / "run")
    texts = ["the old dog sleeps", "the warm soup is good"]
    assert [a.label for a in predictor(texts)] == [a.label for a in learner.predict(texts)]
    assert (tmp_path / "run/report.html").stat().st_size > 1_000
    # None of them has the command that was run.
    assert not any(" few-shot " in finding.command for finding in learner._findings())
    losses = [line["loss"] for line in toys.log(tmp_path / "run") if "loss" in line]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_a_validation_file_is_judged_on_and_not_learned_from(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    toys.write_labelled(folder / "train.csv", rows=16)
    toys.write_labelled(folder / "dev.csv", rows=24, seed=2)
    learner = learn(folder, model, tmp_path / "run")
    assert learner.report is not None
    assert learner.metrics["accuracy"] >= 0.9


def test_a_run_that_was_stopped_while_saving_has_one_line_of_its_head(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = toys.write_labelled(tmp_path / "few.csv", rows=12)

    def stops(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_Finetuning, "save", stops)
        with pytest.raises(KeyboardInterrupt):
            learn(data, model, tmp_path / "run", steps=4)
    stopped = read_log(tmp_path / "run/log.jsonl")
    learner = learn(data, model, tmp_path / "run", steps=4, resume=True)
    log = read_log(tmp_path / "run/log.jsonl")
    assert sum("loss" not in line for line in stopped) == 1
    assert [line["step"] for line in log] == [line["step"] for line in stopped]
    assert log[:-1] == stopped[:-1]
    assert learner.elapsed == log[-1]["elapsed"]


def test_a_batch_must_hold_texts_to_be_far_from(model: Path, tmp_path: Path) -> None:
    data = toys.write_labelled(tmp_path / "few.csv", rows=12)
    with pytest.raises(BertineError, match="batch_size is 4, but must be at least 5"):
        learn(data, model, tmp_path / "run", batch_size=4)
    for kinds in (2, 3, 5):
        labels = np.repeat(np.arange(kinds), 6)
        batches = batches_of(np.eye(kinds, dtype=bool)[labels], 5)
        assert all(len({*labels[batches.rows(step)].tolist()}) > 1 for step in range(100))


def test_pairs_are_learned_kept_and_answered(model: Path, tmp_path: Path) -> None:
    data = toys.write_pairs(tmp_path / "pairs.csv", rows=32)
    held = toys.write_pairs(tmp_path / "held.csv", rows=40, seed=3)
    learn(data, model, tmp_path / "run")
    assert bertine.evaluate(tmp_path / "run", held).metrics["accuracy"] >= 0.8


def test_any_number_of_labels_is_learned_kept_and_answered(model: Path, tmp_path: Path) -> None:
    def write(path: Path, rows: int, seed: int) -> Path:
        with open(toys.write_labelled(tmp_path / "a.csv", rows=rows, seed=seed)) as file:
            read = list(csv.DictReader(file))
        old = {"old", "warm"}
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "labels"])
            for row in read:
                more = ["short"] if old & set(row["text"].split()) else []
                writer.writerow([row["text"], "|".join([row["label"], *more])])
        return path

    data, held = write(tmp_path / "few.csv", 40, 0), write(tmp_path / "held.csv", 40, 5)
    learn(data, model, tmp_path / "run", task="multi-label", label_column="labels")
    report = bertine.evaluate(tmp_path / "run", held, label_column="labels")
    assert report.metrics["micro_f1"] >= 0.8


def test_one_label_alone_teaches_nothing(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "few.csv"
    data.write_text("text,label\na dog,animal\na cat,animal\na cow,animal\n")
    with pytest.raises(BertineError, match=r"only the label 'animal'.*at least two"):
        learn(data, model, tmp_path / "run")


def test_a_label_with_one_example_is_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "few.csv"
    data.write_text("text,label\na dog,animal\na cat,animal\nsoup,dish\n")
    with pytest.raises(BertineError, match="the label 'dish' has 1 example, but few-shot"):
        learn(data, model, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    arguments = ["few-shot", "--model", str(model), "--data", str(data)]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("bertine: error: ")
    assert "label more of them" in last


@pytest.mark.slow
def test_scikit_learns_classifier_learns_from_few_labels(model: Path, tmp_path: Path) -> None:
    with open(toys.write_labelled(tmp_path / "few.csv", rows=16)) as file:
        rows = list(csv.DictReader(file))
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    settings: dict[str, Any] = {"learning_rate": 1e-3, "precision": "fp32"}
    with toys.one_thread():
        classifier = bertine.BertClassifier(model, few_shot=True, **settings).fit(texts, labels)
    assert classifier.score(texts, labels) >= 0.9
    other = bertine.BertClassifier(model, few_shot=True, epochs=3)
    with pytest.raises(ValueError, match="epochs is of fine-tuning"):
        other.fit(texts, labels)
