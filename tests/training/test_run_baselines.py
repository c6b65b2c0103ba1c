"""A fine-tuning run puts the baselines beside its score, once, and where they are wanted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.training.finetuning import run as run_baselines
from bertine.training.finetuning.learner import Learner

#: For the fixture that leaves them out elsewhere.
WITH_BASELINES = True


class Stopped(Exception):
    """The process has ended."""


def _scores(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    return found


def _finetune(model: Path, labelled: Path, out: Path, **options: Any) -> Learner:
    return bertine.finetune("text", model=model, data=labelled, out=out, epochs=1, **options)


def test_a_model_that_has_learned_nothing_loses_to_a_baseline(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    learner = _finetune(model, labelled, tmp_path / "run", learning_rate=1e-9, frozen=False)
    names = [each.name for each in learner.baselines]
    assert names == ["majority", "tf-idf", "frozen vectors"]
    assert learner.baselines[1].metrics["accuracy"] == 1.0  # the words say the label
    lines = "\n".join(learner.lines())
    assert "a baseline wins: tf-idf" in lines
    kept = _scores(tmp_path / "run")
    assert [each["name"] for each in kept["baselines"]] == names
    assert set(kept["baselines"][0]["metrics"]) == set(kept["final"]["metrics"])
    # The run is found finished.
    again = _finetune(
        model, labelled, tmp_path / "run", learning_rate=1e-9, frozen=False, resume=True
    )
    assert again.baselines == learner.baselines
    assert "a baseline wins" in "\n".join(again.lines())
    page = bertine.report(tmp_path / "run").path.read_text(encoding="utf-8")
    assert "Compared with baselines" in page
    assert "A baseline wins" in page


@pytest.mark.parametrize("kind", ["text", "choice"])
def test_the_majority_class_is_that_of_training_beside_the_scores_too(
    model: Path, tmp_path: Path, kind: str
) -> None:
    """The most frequent label of few validation examples is often another, and of it the baseline
    knows nothing."""
    data = tmp_path / "data"
    data.mkdir()
    columns = {"text": "text,label", "choice": "text,choice0,choice1,label"}[kind]
    for name, counts in {"train": (7, 5), "dev": (1, 4)}.items():
        rows = [
            f"{at}.,{label}" if kind == "text" else f"{at}.,a cat,a dog,{label}"
            for label, count in enumerate(counts)
            for at in range(count)
        ]
        (data / f"{name}.csv").write_text("\n".join([columns, *rows]) + "\n")
    named: dict[str, Any] = {}
    if kind == "choice":
        named = {"text_columns": "text", "choice_columns": ["choice0", "choice1"]}
    learner = bertine.finetune(
        kind, model=model, data=data, out=tmp_path / "run", epochs=1, frozen=False, **named
    )
    (majority, *_) = learner.baselines
    assert majority.name == "majority"
    assert majority.metrics["accuracy"] == 0.2
    assert "majority class in training '0': 20.00%" in learner.lines()
    assert _scores(tmp_path / "run")["final"]["majority_share"] == 0.2
    # The model directory knows it when it is judged on a file.
    report = bertine.evaluate(tmp_path / "run" / "model", data / "dev.csv")
    assert "majority class in training '0': 20.00%" in report.lines()


@pytest.mark.slow
def test_they_change_nothing_of_the_training(model: Path, labelled: Path, tmp_path: Path) -> None:
    _finetune(model, labelled, tmp_path / "with", frozen=False)
    without = _finetune(model, labelled, tmp_path / "without", baselines=False)
    assert without.baselines == ()
    assert "baselines" not in _scores(tmp_path / "without")
    assert not any("majority  " in line for line in without.lines())
    weights = [(tmp_path / name / "model" / "model.safetensors") for name in ("with", "without")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_a_resumed_run_does_not_measure_them_again(
    model: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr("bertine.training.finetuning.run.fit", stop)
        with pytest.raises(Stopped):
            _finetune(model, labelled, tmp_path / "run")
    first = _scores(tmp_path / "run")["baselines"]
    monkeypatch.setattr(run_baselines, "measure_baselines", stop)
    _finetune(model, labelled, tmp_path / "run", resume=True)
    assert _scores(tmp_path / "run")["baselines"] == first


def test_scores_that_are_no_numbers_are_read_and_damaged_ones_named(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    file.write_text('{"baselines": [{"name": "a", "metrics": {"f1": NaN}, "seconds": 1}]}')
    (kept,) = run_baselines.kept_baselines(tmp_path)
    assert math.isnan(kept.metrics["f1"])
    for damaged in ("[]", '{"baselines": 3}', '{"baselines": [{}]}', '{"baselines": ["a"]}'):
        file.write_text(damaged)
        with pytest.raises(BertineError, match=r"scores\.json"):
            run_baselines.kept_baselines(tmp_path)


def test_random_weights_have_no_vectors_to_learn_from(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    learner = _finetune(model, labelled, tmp_path / "run", fresh_weights=True)
    assert [each.name for each in learner.baselines] == ["majority", "tf-idf"]


def test_taggers_have_the_states_of_words(model: Path, tmp_path: Path) -> None:
    lines = []
    for number, topic in enumerate([*toys.TOPICS] * 6):
        for word in toys.sentence(topic, toys.ADJECTIVES[number % 4]).split():
            lines.append(f"{word} {'B-topic' if word == topic else 'O'}")
        lines.append("")
    data = tmp_path / "train.conll"
    data.write_text("\n".join(lines) + "\n")
    learner = bertine.finetune("tagging", model=model, data=data, out=tmp_path / "run", epochs=1)
    scores = {each.name: each.metrics["f1"] for each in learner.baselines}
    assert list(scores) == ["frequent tags", "word features", "frozen vectors"]
    assert min(scores.values()) > 0.95


def test_another_file_is_scored_beside_the_baselines(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    data = tmp_path / "train.csv"
    data.write_text((labelled / "train.csv").read_text().replace("text,label", "words,kind"))
    options = {"text_columns": "words", "label_column": "kind"}
    _finetune(model, data, tmp_path / "run", learning_rate=1e-9, baselines=False, **options)
    others = tmp_path / "others.csv"
    # Other texts than those of training, on which no baseline is said to win.
    new = (labelled / "dev.csv").read_text().replace(" .,", " . .,")
    others.write_text(new.replace("text,label", "words,kind"))
    folder = tmp_path / "run" / "model"

    def notes() -> str:
        report = bertine.evaluate(folder, others, baselines=True, show_progress=False)
        return "\n".join(report.notes)

    found = notes()
    assert "a baseline wins" in found
    assert "frozen vectors" in found
    data.write_text(data.read_text().replace("sofa", "pot"))
    assert "no baselines" in notes()
    assert "have changed since" in notes()
    data.unlink()
    assert "no longer there" in notes()
