"""What is done with a fine-tuned model: validate, look at the worst, predict, keep."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.data.examples import Examples, read_examples
from bertine.datasets.own_data import DatasetSplits
from bertine.datasets.readers import read_labelled
from bertine.options.data import DataConfig
from bertine.training.finetuning.learner import Learner

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
    return read_examples(path, DataConfig(text_columns="passage", label_column="kind"))


def test_the_best_epoch_of_a_finished_run_is_asked_for_too_late(
    learner: Learner,
    model: Path,
    labelled: Path,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for_best = {**RECIPE, "epochs": 1, "save_best": True}
    bertine.finetune("text", model=model, data=labelled, out=tmp_path / "best", **for_best)
    capsys.readouterr()
    for folder, recipe, late in (
        (run, {**RECIPE, "save_best": True}, True),
        (tmp_path / "best", for_best, False),
    ):
        bertine.finetune("text", model=model, data=labelled, out=folder, resume=True, **recipe)
        said = capsys.readouterr().err
        assert "the run was finished already" in said
        assert ("save_best=True has no effect on a finished run: the model is that" in said) == late


def test_how_to_read_is_said_of_data_alone(learner: Learner) -> None:
    with pytest.raises(BertineError, match="label_column is given, but no data"):
        learner.validate(label_column="kind")
    with pytest.raises(BertineError, match="quotes is given, but no data"):
        learner.validate(quotes=False)
    with pytest.raises(TypeError, match="'precision'"):
        learner.validate("dev.csv", precision="int8")


def test_a_finished_run_gives_the_same_learner(
    learner: Learner, model: Path, labelled: Path, run: Path
) -> None:
    found = again(model, labelled, run)
    assert found.report is None
    # Answering computes with packed weights: the same up to rounding.
    ours, theirs = found.validate().to_dict(), learner.validate().to_dict()
    assert ours.pop("metrics") == pytest.approx(theirs.pop("metrics"), rel=1e-5)
    assert ours == theirs
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


@pytest.mark.takes(4)
@pytest.mark.parametrize("finished", [False, True])
def test_the_worst_predicted_are_those_with_wrong_labels(
    finished: bool, model: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    toys.write_labelled(data / "train.csv", rows=120)
    rows = toys.write_labelled(data / "dev.csv", rows=40, seed=1).read_text().splitlines()
    for number in (7, 23):  # counted without the header
        text, label = rows[1 + number].split(",")
        rows[1 + number] = f"{text},{'dish' if label == 'animal' else 'animal'}"
    (data / "dev.csv").write_text("\n".join(rows) + "\n")
    recipe = {**RECIPE, "epochs": 6}
    out = tmp_path / "run"
    found = bertine.finetune("text", model=model, data=data, out=out, **recipe)
    if finished:
        found = bertine.finetune("text", model=model, data=data, out=out, resume=True, **recipe)
    worst = found.top_losses(3)
    assert {example.index for example in worst[:2]} == {7, 23}
    for example in worst[:2]:
        text, label = rows[1 + example.index].split(",")
        assert (example.texts, example.label) == ((text,), label)
        assert example.answer != label
    losses = [example.loss for example in found.top_losses()]
    # Those that differ by rounding only stand in the order of their rows.
    assert losses == pytest.approx(sorted(losses, reverse=True), abs=2e-5)
    assert len(losses) == 10
    assert losses[1] > 2 * losses[2]
    assert [example.place for example in worst[:2]] == [
        f"{data / 'dev.csv'}:{2 + example.index}" for example in worst[:2]
    ]
    with pytest.raises(BertineError, match="at least 1"):
        found.top_losses(0)


@pytest.mark.takes(4)
def test_wrong_labels_of_the_training_file_are_listed_with_their_lines(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toys.write_labelled(tmp_path / "train.csv", rows=120)
    lines = data.read_text().splitlines()
    text, label = lines[40].split(",")
    lines[40] = f"{text},{'dish' if label == 'animal' else 'animal'}"
    data.write_text("\n".join(lines) + "\n")
    recipe = {**RECIPE, "epochs": 4}
    learner = bertine.finetune("text", model=model, data=data, out=tmp_path / "run", **recipe)
    asked = {"validation": learner.top_losses(1), "train": learner.top_losses(1, data="train")}
    report = bertine.evaluate(learner.model, data, worst=1, show_progress=False)
    assert report.worst[0].place == f"{data}:41"
    assert f"{data}:41" in {worst[0].place for worst in asked.values()}
    assert main(["evaluate", str(learner.model), "--data", str(data), "--worst", "2"]) == 0
    assert f"{data}:41" in capsys.readouterr().out
    with pytest.raises(BertineError, match="'validation' or 'train'"):
        learner.top_losses(1, data="test")
    data.write_text("\n".join(lines[:100]) + "\n")
    with pytest.raises(BertineError, match="have changed"):
        dataclasses.replace(learner).top_losses(1, data="train")


def test_examples_that_were_held_out_are_found_again(model: Path, tmp_path: Path) -> None:
    """And none that have changed are taken for them."""
    data = toys.write_labelled(tmp_path / "all.csv", rows=60)
    settings = {"model": model, "data": data, "out": tmp_path / "run", "seed": 4}
    recipe = {**RECIPE, "epochs": 1}
    learner = bertine.finetune("text", **settings, **recipe)
    held = read_labelled("text", data, DataConfig(seed=4)).validation
    worst = learner.top_losses(100)
    assert sorted(example.texts for example in worst) == sorted(item.texts for item in held.items)
    assert len(held) == learner.validate().to_dict()["num_examples"] == 6
    later = bertine.finetune("text", resume=True, **settings, **recipe)
    toys.write_labelled(data, rows=60, seed=9)
    with pytest.raises(BertineError, match="have changed since the run"):
        later.validate()


# Examples that are read already


def test_examples_in_memory_train_the_same_model(
    learner: Learner, model: Path, labelled: Path, run: Path, tmp_path: Path
) -> None:
    read = read_labelled("text", labelled)
    of_memory = bertine.finetune("text", model=model, data=read, out=tmp_path / "run", **RECIPE)
    assert toys.same_weights(tmp_path / "run/model", run / "model")
    assert of_memory.predictor.training["data_path"] == str(labelled / "train.csv")
    assert of_memory.validate().metrics == learner.validate().metrics


def test_without_validation_examples_it_asks_for_data(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    read = read_labelled("text", labelled)
    none: Examples[Any] = Examples("memory", ("text",), "label")
    recipe = {**RECIPE, "epochs": 1}
    learner = bertine.finetune(
        "text",
        model=model,
        data=DatasetSplits(read.task_class, read.train, none),
        out=tmp_path / "run",
        **recipe,
    )
    with pytest.raises(BertineError, match="no validation examples; give the data"):
        learner.validate()
    assert learner.validate(labelled / "dev.csv").metrics["accuracy"] >= 0.0
    assert learner.top_losses() == []
    # Of two metrics their mean is told, where there are any.
    judged_by_two = dataclasses.replace(learner, metric_names=("pearson", "spearman"))
    assert judged_by_two.lines()[0].startswith("trained in")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"text_columns": "text"}, "text_columns"),
        ({"strict": True}, "strict"),
        ({"split_seed": 1}, "split_seed"),
    ],
)
def test_examples_in_memory_are_not_read_in_some_way(
    given: dict[str, Any], name: str, model: Path, labelled: Path, tmp_path: Path
) -> None:
    read = read_labelled("text", labelled)
    with pytest.raises(BertineError, match=f"{name} is given, but the data are examples"):
        bertine.finetune("text", model=model, data=read, out=tmp_path / "run", **RECIPE, **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", ["train", "validation"])
def test_examples_in_memory_all_have_a_label(
    part: str, model: Path, labelled: Path, tmp_path: Path
) -> None:
    read = read_labelled("text", labelled)
    items = getattr(read, part).items
    items[3] = dataclasses.replace(items[3], label=None)
    said = rf"1 of {len(items)} examples have no label \(the first is items\[3\]\)"
    with pytest.raises(BertineError, match=said):
        bertine.finetune("text", model=model, data=read, out=tmp_path / "run", **RECIPE)
    assert not (tmp_path / "run").exists()


def test_examples_in_memory_are_for_their_own_task(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    read: DatasetSplits = read_labelled("text", labelled)
    with pytest.raises(BertineError, match="for the task 'text', not for 'regression'"):
        bertine.finetune("regression", model=model, data=read, out=tmp_path / "run", **RECIPE)


def test_all_of_glue_has_a_learner_for_each_task(tmp_path: Path) -> None:
    whole = Learner(tmp_path, [], None, 0.0, runs={"CoLA": Learner(tmp_path, [], None, 0.0)})
    with pytest.raises(BertineError, match=r"take the learner of one, runs\[NAME\] \(CoLA\)"):
        whole.predict(TEXTS)
