"""What is done with a fine-tuned model: validate, look at the worst, predict, keep."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.errors import BertineError
from bertine.tasks.examples import Examples, read_examples
from bertine.tasks.labelled import Labelled, read_labelled
from bertine.tasks.reading import Reading
from bertine.training.learner import Learner

TEXTS = ["the old cat sleeps in the sofa .", "a soup boils in the pot ."]
RECIPE: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 16,
    "max_length": 16,
    "learning_rate": 3e-3,
    "dropout": 0.0,
    "precision": "fp32",
    "device": "cpu",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learner") / "run"


@pytest.fixture(scope="module")
def learner(model: Path, labelled: Path, run: Path) -> Learner:
    return bertine.finetune("text", model=model, data=labelled, out=run, **RECIPE)


def again(model: Path, labelled: Path, run: Path) -> Learner:
    """Of the run that is finished already."""
    return bertine.finetune("text", model=model, data=labelled, out=run, resume=True, **RECIPE)


def test_it_validates_on_its_own_examples_and_on_others(
    learner: Learner, labelled: Path, tmp_path: Path
) -> None:
    assert learner.validate() is learner.report
    other = toys.write_labelled(tmp_path / "other.csv", rows=24, seed=5)
    text = other.read_text().replace("text,label", "passage,kind").replace(",dish", ",animal")
    other.write_text(text)
    report = learner.validate(other, text_columns="passage", label_column="kind")
    answers = learner.predict([item.texts[0] for item in _examples(other).items])
    right = sum(answer.label == "animal" for answer in answers)
    assert report.metrics["accuracy"] == pytest.approx(right / 24)
    assert report.source == str(other)


def _examples(path: Path) -> Examples[Any]:
    return read_examples(path, text_columns="passage", label_column="kind")


def test_a_finished_run_gives_the_same_learner(
    learner: Learner, model: Path, labelled: Path, run: Path
) -> None:
    found = again(model, labelled, run)
    assert found.report is None
    assert found.validate().to_dict() == learner.validate().to_dict()
    assert [a.probabilities for a in found.predict(TEXTS)] == [
        a.probabilities for a in learner.predict(TEXTS)
    ]


def test_the_predictor_is_kept_elsewhere_with_all_that_it_knows(
    learner: Learner, run: Path, tmp_path: Path
) -> None:
    learner.predictor.save(tmp_path / "kept")
    assert toys.tree(tmp_path / "kept") == toys.tree(run / "model")
    kept = bertine.Predictor.load(tmp_path / "kept", device="cpu", precision="fp32")
    assert kept.predict(TEXTS) == learner.predict(TEXTS)
    assert kept.training["epochs"] == 2
    learner.predictor.save(tmp_path / "kept")  # a model directory is replaced
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").write_text("mine")
    with pytest.raises(BertineError, match="notes"):
        learner.predictor.save(tmp_path / "notes")
    assert (tmp_path / "notes/mine.txt").read_text() == "mine"


def test_a_regressions_scores_are_those_of_the_data(model: Path, tmp_path: Path) -> None:
    """In training they are standardized; whoever has the learner sees prices."""
    rows = [f"{toys.sentence(topic, 'old')},{1000 + 10 * i}" for i, topic in enumerate(toys.TOPICS)]
    data = tmp_path / "prices.csv"
    data.write_text("text,label\n" + "\n".join(rows * 4) + "\n")
    learner = bertine.finetune("regression", model=model, data=data, out=tmp_path / "run", **RECIPE)
    scores = [answer.score for answer in learner.predict(TEXTS)]
    assert all(900 < score < 1170 for score in scores)
    report = learner.validate(data)
    assert report.metrics["mean_squared_error"] < 10_000


def _ranking(calls: list[dict[str, Any]]) -> ModuleType:
    module = ModuleType("bertine.inference.losses")

    def worst_examples(
        model: Any, task: Any, examples: Any, tokenizer: Any, n: int, **more: Any
    ) -> list[Any]:
        calls.append({"task": task, "examples": examples, "n": n, **more})
        assert not model.training
        return examples.items[:n]

    module.worst_examples = worst_examples  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("finished", [False, True])
def test_the_worst_are_sought_among_the_validation_examples(
    finished: bool,
    learner: Learner,
    model: Path,
    labelled: Path,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "bertine.inference.losses", _ranking(calls))
    found = again(model, labelled, run) if finished else learner
    worst = found.top_losses(3)
    assert worst == read_examples(labelled / "dev.csv").items[:3]
    assert len(found.top_losses()) == 10
    assert calls[0]["n"] == 3
    assert calls[0]["dtype"] == torch.float32
    with pytest.raises(BertineError, match="at least 1"):
        found.top_losses(0)


def test_examples_that_were_held_out_are_found_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none that have changed are taken for them."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "bertine.inference.losses", _ranking(calls))
    data = toys.write_labelled(tmp_path / "all.csv", rows=60)
    learner = bertine.finetune(
        "text", model=model, data=data, out=tmp_path / "run", seed=4, **{**RECIPE, "epochs": 1}
    )
    learner.top_losses(2)
    held = read_labelled("text", data, seed=4).validation
    assert calls[0]["examples"].items == held.items
    assert len(held) == learner.validate().to_dict()["num_examples"] == 6
    later = bertine.finetune(
        "text",
        model=model,
        data=data,
        out=tmp_path / "run",
        seed=4,
        resume=True,
        **{**RECIPE, "epochs": 1},
    )
    toys.write_labelled(data, rows=60, seed=9)
    with pytest.raises(BertineError, match="have changed since the run"):
        later.validate()


# Examples that are read already


def test_examples_in_memory_train_the_same_model(
    learner: Learner, model: Path, labelled: Path, run: Path, tmp_path: Path
) -> None:
    read = read_labelled("text", labelled, seed=0)
    of_memory = bertine.finetune("text", model=model, data=read, out=tmp_path / "run", **RECIPE)
    mine, theirs = toys.weights(tmp_path / "run/model"), toys.weights(run / "model")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert of_memory.predictor.training["data_path"] == str(labelled / "train.csv")
    assert of_memory.validate().metrics == learner.validate().metrics


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"text_columns": "text"}, "text_columns"),
        ({"format": "csv"}, "format"),
        ({"strict": True}, "strict"),
        ({"class_weights": "balanced"}, "class_weights"),
        ({"doc_stride": 8}, "doc_stride"),
        ({"glue_task": "CoLA"}, "glue_task"),
    ],
)
def test_examples_in_memory_are_not_read_in_some_way(
    given: dict[str, Any], name: str, model: Path, labelled: Path, tmp_path: Path
) -> None:
    read = read_labelled("text", labelled, seed=0)
    with pytest.raises(BertineError, match=f"{name} is given, but the data are examples"):
        bertine.finetune("text", model=model, data=read, out=tmp_path / "run", **RECIPE, **given)
    assert not (tmp_path / "run").exists()


def test_examples_in_memory_are_for_their_own_task(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    read: Labelled = read_labelled("text", labelled, seed=0, reading=Reading())
    with pytest.raises(BertineError, match="for the task 'text', not for 'regression'"):
        bertine.finetune("regression", model=model, data=read, out=tmp_path / "run", **RECIPE)


def test_all_of_glue_has_a_learner_for_each_task(tmp_path: Path) -> None:
    whole = Learner(tmp_path, [], None, 0.0, runs={"CoLA": Learner(tmp_path, [], None, 0.0)})
    with pytest.raises(BertineError, match=r"take the learner of one, runs\[NAME\] \(CoLA\)"):
        whole.predict(TEXTS)
