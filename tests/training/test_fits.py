"""A learner that trains on, and one that another process opens."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.cli import main
from bertine.core.errors import BertineError
from bertine.training.adamw import AdamW
from bertine.training.finetuning.learner import Learner

RECIPE: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 16,
    "max_length": 16,
    "learning_rate": 3e-3,
    "precision": "fp32",
    "device": "cpu",
    "baselines": False,
    "frozen": False,
}


def begin(model: Path, out: Path, **others: Any) -> Learner:
    data = toys.write_labelled(out.with_name(f"{out.name}.csv"), rows=60)
    return bertine.finetune("text", model=model, data=data, out=out, **RECIPE, **others)


def test_a_fit_goes_on_where_the_weights_stand(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    learner = begin(model, run, split_seed=7)
    held = learner.top_losses(100)
    assert learner.fit(2, 1e-3, schedule="one-cycle", weight_decay=0.0) is learner
    assert learner.model == run / "fit-2/model"
    assert len(learner.scores) == 2
    settings = json.loads((run / "fit-2/run.json").read_text())["settings"]
    assert (settings["batch_size"], settings["seed"], settings["weight_decay"]) == (16, 1, 0.0)
    begun = bertine.load_model(run / "model").model.fingerprint()
    assert settings["weights_fingerprint"] == begun  # of the head too
    assert settings["warmup_steps"] == settings["steps"] / 2
    # The same rows are held out, although the seed is another, and the model has seen the others.
    assert {each.texts for each in learner.top_losses(100)} == {each.texts for each in held}
    first, second = (toys.weights(folder / "model") for folder in (run, run / "fit-2"))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    # A third one begins at the second, and its folder is the newest.
    learner.fit(1, 1e-4)
    settings = json.loads((run / "fit-3/run.json").read_text())["settings"]
    assert settings["model_path"] == str(run / "fit-2/model")
    newest, last = (bertine.load_model(folder).model for folder in (run, run / "fit-3"))
    assert newest.fingerprint() == last.fingerprint()
    with pytest.raises(BertineError, match=r"fit-2: holds this fit already; resume=True goes on"):
        bertine.finetune(
            "text", model=model, data=f"{run}.csv", out=run, resume=True, split_seed=7, **RECIPE
        ).fit(1, 1e-4)


def test_a_fit_after_a_kill_is_the_same_bit_for_bit(model: Path, tmp_path: Path) -> None:
    whole = begin(model, tmp_path / "whole").fit(2, 1e-3, schedule="one-cycle")
    killed = begin(model, tmp_path / "killed")
    with toys.interrupted_at(6, AdamW, "clipped_step"):  # after the first epoch
        killed.fit(2, 1e-3, schedule="one-cycle")
    again = bertine.open_learner(tmp_path / "killed", device="cpu")
    assert again.model == tmp_path / "killed/model"
    again.fit(2, 1e-3, schedule="one-cycle", resume=True)
    assert toys.same_weights(again.model, whole.model)
    assert again.scores == whole.scores


def test_a_head_fitted_alone_is_not_trained_on(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toys.write_labelled(tmp_path / "a.csv", rows=60)
    run = tmp_path / "run"
    learner = bertine.finetune("text", model=model, data=data, out=run, frozen=True)
    learner.fit(1, 1e-3)
    settings = json.loads((run / "fit-2/run.json").read_text())["settings"]
    assert settings["model_path"] == str(model)
    assert "the encoder is trained now, with a new head" in capsys.readouterr().err
    assert learner.metrics["loss"] < 2


@pytest.mark.slow
def test_another_process_opens_the_learner(model: Path, tmp_path: Path) -> None:
    learner = begin(model, tmp_path / "run").fit(1, 1e-3)
    program = (
        "import sys, json, bertine\n"
        "learner = bertine.open_learner(sys.argv[1], device='cpu')\n"
        "learner.plot()\n"
        "worst = [each.index for each in learner.top_losses(3)]\n"
        "report = learner.validate()\n"
        "print(json.dumps([report.metrics, worst, learner.predict(['the cat sleeps'])[0].label]))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    metrics, worst, label = json.loads(done.stdout)
    assert metrics == pytest.approx(learner.metrics, rel=1e-5)
    assert worst == [each.index for each in learner.top_losses(3)]
    assert label == learner.predict(["the cat sleeps"])[0].label


def test_an_opened_learner_is_the_one_that_was_trained(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    learner = begin(model, run)
    opened = bertine.open_learner(run, device="cpu")
    assert (opened.metrics, opened.scores) == (learner.metrics, learner.scores)
    assert opened.shown_lines()[-6:] == learner.shown_lines()[-6:]
    assert opened.plot()._repr_html_().count("<svg") == len(opened.plot().lines()) - 1
    toys.write_labelled(Path(f"{run}.csv"), rows=60, seed=3)
    with pytest.raises(BertineError, match="have changed since the run"):
        opened.validate()
    (tmp_path / "none").mkdir()
    with pytest.raises(BertineError, match=r"none: is not the folder of a run"):
        bertine.open_learner(tmp_path / "none")


def test_examples_in_memory_are_given_again(model: Path, tmp_path: Path) -> None:
    with open(toys.write_labelled(tmp_path / "rows.csv", rows=40), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    bertine.finetune("text", model=model, data=rows, out=tmp_path / "run", **RECIPE)
    opened = bertine.open_learner(tmp_path / "run", device="cpu")
    with pytest.raises(BertineError, match=r"in memory; give them: bertine.open_learner\("):
        opened.fit(1, 1e-3)
    opened = bertine.open_learner(tmp_path / "run", data=rows, device="cpu").fit(1, 1e-3)
    assert opened.validate().metrics == opened.metrics


def test_what_python_started_is_advised_in_python(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = begin(model, tmp_path / "run")
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    said = str(learner)
    for text in (page, said):
        assert "bertine finetune" not in text
        assert "bertine evaluate" not in text
    calls = said.partition("next:\n")[2].splitlines()
    assert [call.strip().partition("(")[0] for call in calls] == [
        "learner.predict",
        "learner.validate",
        "learner.top_losses",
        "learner = bertine.open_learner",
    ]
    for call in (calls[0], calls[2], calls[3]):
        exec(call.strip(), {"learner": learner, "bertine": bertine})
    capsys.readouterr()
    options = [f"--{name.replace('_', '-')}={value}" for name, value in RECIPE.items()][:-2]
    given = ["--model", str(model), "--data", f"{tmp_path / 'run'}.csv"]
    assert main(["finetune", "text", *given, "--out", str(tmp_path / "other"), *options]) == 0
    assert "learner." not in (tmp_path / "other/report.html").read_text(encoding="utf-8")
    assert "  bertine serve" in capsys.readouterr().out


# Places in memory count from 0, in files from 1


def test_places_of_data_in_memory_are_indices(model: Path, tmp_path: Path) -> None:
    parts = {}
    for name, rows in (("train", 40), ("validation", 8)):
        file = toys.write_labelled(tmp_path / f"{name}.csv", rows=rows, seed=rows)
        with open(file, encoding="utf-8") as lines:
            parts[name] = list(csv.DictReader(lines))
    whole = parts["train"]
    learner = bertine.finetune("text", model=model, data=parts, out=tmp_path / "run", **RECIPE)
    for each in learner.top_losses(8):
        assert each.place == f"data['validation'][{each.index}]"
        assert each.texts == (parts["validation"][each.index]["text"],)
        assert each.to_dict()["data_index"] == each.index
        assert "line" not in each.to_dict()
    assert "data[&#39;validation&#39;][" in (tmp_path / "run/report.html").read_text()
    # What is held out has its place in the whole.
    held = bertine.finetune("text", model=model, data=whole, out=tmp_path / "held", **RECIPE)
    for each in held.top_losses(4):
        assert each.place == f"data[{each.line}]"
        assert each.texts == (whole[each.line]["text"],)
    file = bertine.evaluate(held.model, tmp_path / "train.csv", worst=1, show_progress=False)
    worst = file.worst[0]
    assert worst.place == f"{tmp_path}/train.csv:{worst.to_dict()['line']}"
    assert whole[worst.line - 2]["text"] == worst.texts[0]
