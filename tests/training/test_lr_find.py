"""Finding a learning rate: a toy that can be learned, its curve, its files, what to run next."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.cli import COMMANDS, main, parse_arguments
from bertine.core.errors import BertineError
from bertine.datasets.readers import read_labelled
from bertine.training.adamw import AdamW
from bertine.training.lr_find import LrFindReport, RateCurve, write_files

SETTINGS: dict[str, Any] = {
    "batch_size": 16,
    "max_length": 16,
    "min_rate": 1e-5,
    "max_rate": 1.0,
    "steps": 80,
    "precision": "fp32",
    "device": "cpu",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lr-find")


@pytest.fixture(scope="module")
def report(model: Path, labelled: Path, folder: Path) -> LrFindReport:
    return bertine.lr_find("text", model=model, data=labelled, out=folder, **SETTINGS)


def test_the_rates_rise_by_one_factor_after_the_warm_up(report: LrFindReport) -> None:
    rates = report.curve.rates
    assert rates[:11] == [1e-5] * 11
    factors = [after / before for before, after in itertools.pairwise(rates[10:])]
    assert factors == pytest.approx([(1.0 / 1e-5) ** (1 / 79)] * len(factors))
    # The toy does not learn at the lowest rate: the warm-up changes nothing.
    assert report.curve.losses[0] == pytest.approx(report.curve.losses[10], abs=0.15)


def test_few_examples_are_passed_over_again_and_that_is_said(report: LrFindReport) -> None:
    """120 examples in batches of 16 are 8 steps."""
    assert report.passes > 5
    assert any("times over the 120 training examples" in note for note in report.notes)
    assert any("times over the 120" in line for line in report.lines())


@pytest.mark.takes(4)
def test_the_advised_rate_trains_and_what_is_far_above_does_not(
    report: LrFindReport, model: Path, labelled: Path, tmp_path: Path
) -> None:
    assert report.landmarks is not None
    recipe = {
        **{name: SETTINGS[name] for name in ("batch_size", "max_length", "precision", "device")},
        "epochs": 4,
    }
    accuracy = {}
    for name, rate in (
        ("advised", report.advice["learning_rate"]),
        ("above", report.landmarks.rises * 1000),
    ):
        out = tmp_path / name
        learner = bertine.finetune(
            "text", model=model, data=labelled, out=out, learning_rate=rate, **recipe
        )
        accuracy[name] = learner.metrics["accuracy"]
    assert accuracy["advised"] > 0.9
    assert accuracy["above"] < 0.7


def test_its_first_losses_are_those_of_finetune(
    report: LrFindReport, model: Path, labelled: Path, tmp_path: Path
) -> None:
    """The same batches in the same order, with the same dropout, from the same new head."""
    bertine.finetune(
        "text",
        model=model,
        data=labelled,
        out=tmp_path / "run",
        epochs=1,
        log_every=1,
        learning_rate=SETTINGS["min_rate"],
        schedule="constant",
        warmup_steps=0,
        **{name: SETTINGS[name] for name in ("batch_size", "max_length", "precision", "device")},
    )
    losses = [line["loss"] for line in toys.log(tmp_path / "run") if "loss" in line]
    assert report.curve.losses[: len(losses)] == losses


def test_the_files_hold_what_was_found(report: LrFindReport, folder: Path) -> None:
    assert report.landmarks is not None
    assert report.lead().startswith("Train with the learning rate ")
    found = json.loads((folder / "lr-find.json").read_text())
    assert found["landmarks"]["lowest"] == report.landmarks.lowest
    assert found["reason"] == report.reason
    assert found["curve"]["losses"] == report.curve.losses
    assert found["settings"]["steps"] == 80
    assert found["next"] == report.command
    plot = (folder / "lr-find.svg").read_text()
    page = (folder / "lr-find.html").read_text()
    assert plot.startswith("<svg")
    for text in ("to train with", "smoothed", "lowest", "learning rate"):
        assert text in plot
    assert report.lead() in page
    assert found["advice"] == report.advice
    assert f"<span>--epochs</span> <span>{report.advice['epochs']}</span>" in page


def test_the_command_to_run_next_is_one_that_runs(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toys.write_labelled(tmp_path / "my posts.csv", rows=48)
    data.write_text(data.read_text().replace("text,label", "post,kind"))
    typed = [
        *("lr-find", "text", "--model", str(model), "--data", str(data)),
        *("--out", str(tmp_path / "rate"), "--text-column", "post", "--label-column", "kind"),
        *("--steps", "20", "--batch-size", "8", "--max-length", "16", "--no-bias-correction"),
        *("--freeze-embeddings", "--precision", "fp32", "--device", "cpu"),
    ]
    assert main(typed) == 0
    lines = capsys.readouterr().out.splitlines()
    words = shlex.split(lines[-1].removeprefix("next: "))
    assert words[:2] == ["bertine", "finetune"]
    values = parse_arguments(COMMANDS["finetune"], words[2:])
    assert values["data"] == data
    assert values["text_columns"] == ["post"]
    assert values["label_column"] == "kind"
    assert values["batch_size"] == 8
    assert values["bias_correction"] is False
    assert values["freeze_embeddings"] is True
    # As `finetune` by itself, but for the rate.
    assert values["schedule"] == "linear"
    assert 5e-4 <= values["learning_rate"] <= 2e-3
    assert values["epochs"] == 25
    assert values["out"] == Path("my posts-model")


def test_frozen_parts_and_examples_in_memory(model: Path, labelled: Path, tmp_path: Path) -> None:
    read = read_labelled("text", labelled)
    settings = {**SETTINGS, "steps": 20, "freeze_layers": 2, "freeze_embeddings": True}
    found = bertine.lr_find("text", model=model, data=read, out=tmp_path / "o", **settings)
    assert "bertine.finetune('text', …" in found.command
    assert json.loads((tmp_path / "o/lr-find.json").read_text())["settings"]["data"].endswith(
        "train.csv"
    )


def test_a_gradient_that_is_not_finite_ends_the_test(
    model: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the weights then stay as they are, and the losses finite."""
    calls = itertools.count(1)
    step = AdamW.clipped_step

    def broken_at_the_25th(optimizer: AdamW, rate: float, most: float) -> float | torch.Tensor:
        norm = step(optimizer, rate, most)
        return math.inf if next(calls) == 25 else norm

    monkeypatch.setattr(AdamW, "clipped_step", broken_at_the_25th)
    settings = {**SETTINGS, "steps": 40, "max_rate": 1e-4}
    found = bertine.lr_find("text", model=model, data=labelled, out=tmp_path / "o", **settings)
    assert found.curve.diverged
    assert len(found.curve.losses) == 25


def test_a_curve_that_diverges_at_once_is_told_as_such() -> None:
    curve = RateCurve(warmup=2)
    for loss in (1.0, 1.1, 1.0, 0.9, 1.0):
        assert curve.add(1e-5, loss)
    assert not curve.add(1e-5, math.nan)
    facts: dict[str, Any] = {
        "advice": {"learning_rate": 2e-4},
        "reason": "it is the usual rate",
        "command": "",
        "passes": 2,
        "num_examples": 99,
        "seconds": 1.0,
    }
    found = LrFindReport(curve, out=Path("o"), **facts)
    assert found.landmarks is None
    assert found.notes[0].startswith("the loss diverged after 3 steps with a rising rate")
    # There is none that could be too high.
    assert found.notes[1].endswith("late losses are of examples seen before")


def test_a_curve_that_falls_to_its_end_is_not_said_to_rise(tmp_path: Path) -> None:
    curve = RateCurve()
    for step in range(60):
        assert curve.add(1e-7 * 1.2**step, 2.0 - 0.02 * step)
    facts: dict[str, Any] = {
        "advice": {"learning_rate": 2e-4},
        "reason": "it is the usual rate",
        "command": "",
        "passes": 0.1,
        "num_examples": 99,
        "seconds": 1.0,
    }
    found = LrFindReport(curve, out=tmp_path, **facts)
    assert found.notes[0].startswith("the loss did not rise up to the highest rate")
    write_files(found, {"task": "text"})
    page = (tmp_path / "lr-find.html").read_text()
    assert "does not rise before the test ends" in page
    assert "on the loss rises" not in page


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_rate": 1e-2, "max_rate": 1e-3}, "min_rate is 0.01 and max_rate is 0.001"),
        ({"min_rate": 0.0}, "must be above 0"),
        ({"max_rate": float("inf")}, "max_rate is inf, but must be finite"),
        ({"steps": 19}, "steps is 19, but must be at least 20"),
        ({"layer_decay": 0.0}, "layer_decay is 0"),
        ({"freeze_layers": 3}, "the model has 2 layers"),
        ({"doc_stride": 8}, "doc_stride is for spans and squad"),
        ({"glue_task": "ALL"}, "one task of GLUE"),
        ({"max_tokens_per_micro_batch": 0}, "max_tokens_per_micro_batch is 0"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(
    wrong: dict[str, Any], message: str, model: Path, labelled: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertineError, match=message):
        bertine.lr_find(
            **{"task": "text", **SETTINGS, **wrong}, model=model, data=labelled, out=tmp_path / "o"
        )
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["epochs", "threshold", "max_answer_length"])
def test_only_what_matters_here_is_taken(name: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"'{name}'"):
        bertine.lr_find("text", model=model, data="d", out=tmp_path / "o", **{name: 3})
    option = f"--{name.replace('_', '-')}"
    typed = ["text", "--model", "m", "--data", "d", "--out", "o", option, "3"]
    # Not with the nearest option that there is: of --epochs that is --steps.
    with pytest.raises(BertineError, match=f"^{option} has no effect here; remove it; see"):
        parse_arguments(COMMANDS["lr-find"], typed)


def test_the_configuration_of_finetune_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What means something else there, or nothing here, does not count, and is told."""
    tune, own = tmp_path / "tune.yaml", tmp_path / "own.yaml"
    tune.write_text(
        "task: text\nmodel: m\ndata: d\nout: run\nepochs: 4\nbatch-size: 16\n"
        "warmup_steps: 500\nsave_best: true\nthreshold: 0.3\n"
    )
    assert parse_arguments(COMMANDS["finetune"], ["--config", str(tune)])["epochs"] == 4
    assert capsys.readouterr().err == ""
    command = COMMANDS["lr-find"]
    values = parse_arguments(command, ["--config", str(tune), "--out", "rates"])
    assert (values["task"], values["batch_size"]) == ("text", 16)
    assert (values["out"], values["warmup_steps"]) == (Path("rates"), 10)
    assert "epochs" not in values
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"lr-find: {tune} ")
    assert told.endswith("not taken from it: out, epochs, warmup_steps, save_best, threshold")
    # Its folder is that of the run, which would then be refused.
    with pytest.raises(BertineError, match="missing: --out"):
        parse_arguments(command, ["--config", str(tune)])
    capsys.readouterr()
    own.write_text("task: text\nmodel: m\ndata: d\nout: rates\nwarmup_steps: 5\n")
    values = parse_arguments(command, ["--config", str(own)])
    assert (values["out"], values["warmup_steps"]) == (Path("rates"), 5)
    assert capsys.readouterr().err == ""
    own.write_text("epoch: 5\n")
    with pytest.raises(BertineError, match="unknown key 'epoch'"):
        parse_arguments(command, ["--config", str(own)])
