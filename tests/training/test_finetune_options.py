"""Schedules by name, rates by layer, frozen parts, early stopping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import toys
from bertine.corpora.batch import Batch
from bertine.objectives.losses import MlmNsp
from bertine.training.adamw import AdamW
from bertine.training.checkpoint import Best, Choice, recorded_best
from bertine.training.display import Display
from bertine.training.fit import FitConfig, fit
from bertine.training.run_folder import Run
from bertine.training.schedules import SCHEDULES

QUICK: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 16,
    "max_length": 16,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "log_every": 1,
}


def run(model: Path, labelled: Path, out: Path, **changes: Any) -> dict[str, torch.Tensor]:
    settings = {**QUICK, **changes}
    bertine.finetune("text", model=model, data=labelled, out=out, **settings)
    return toys.weights(out / "model")


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_a_schedule_by_name_goes_to_the_log(
    name: str, model: Path, labelled: Path, tmp_path: Path
) -> None:
    run(model, labelled, tmp_path / "run", schedule=name)
    lines = [line for line in toys.log(tmp_path / "run") if "learning_rate" in line]
    rates = [line["learning_rate"] for line in lines]
    rise = round({"one-cycle": 0.5}.get(name, 0.1) * 16)
    expected = [1e-3 * SCHEDULES[name](step, 16, rise) for step in range(16)]
    assert rates == pytest.approx(expected)
    assert name != "one-cycle" or {7, 8} & {rates.index(max(rates))}  # in the middle of the run


@pytest.mark.slow
def test_a_cycle_goes_on_after_a_kill_bit_for_bit(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    options = {"schedule": "one-cycle", "layer_decay": 0.8, "freeze_layers": 1}
    whole = run(model, labelled, tmp_path / "whole", **options)
    with toys.interrupted_at(12, AdamW, "clipped_step"):
        run(model, labelled, tmp_path / "run", **options)
    resumed = run(model, labelled, tmp_path / "run", resume=True, **options)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_the_share_of_the_rate_is_the_share_of_the_step() -> None:
    """Adam's first step is the rate itself, whatever the gradient."""
    model = toys.pretraining_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = AdamW(model, weight_decay=0.0, eps=1e-12, layer_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.clipped_step(1e-2, 0.0)
    moved = {
        name: float((before[name] - p.detach()).mean()) for name, p in model.named_parameters()
    }
    assert moved["heads.nsp.dense.weight"] == pytest.approx(1e-2, rel=1e-3)
    assert moved["backbone.layers.1.up.weight"] == pytest.approx(5e-3, rel=1e-3)
    assert moved["backbone.layers.0.up.weight"] == pytest.approx(2.5e-3, rel=1e-3)
    words = "backbone.embeddings.word_embeddings.weight"
    assert moved[words] == pytest.approx(1.25e-3, rel=1e-3)


def test_what_is_frozen_stays_bit_for_bit(
    model: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = toys.weights(model)
    after = run(model, labelled, tmp_path / "run", freeze_layers=1, freeze_embeddings=True)
    for name, value in after.items():
        kept = "embeddings" in name or "layer.0." in name
        if kept:
            assert torch.equal(value, before[name]), name
        elif name in before and name.endswith("dense.weight"):
            assert not torch.equal(value, before[name]), name
    said = capsys.readouterr().err
    assert "frozen: embeddings and the lowest 1 of 2 layers" in said


#: The third of six evaluations is the best.
SCORES = (0.3, 0.5, 0.9, 0.1, 0.9, 0.2)


class Killed(BaseException):
    """Nobody catches it."""


def patient(store: Path, folder: Path, patience: int | None, stop_before: int | None = None) -> int:
    """The number of steps of a run that is evaluated every two of twelve."""
    data = toys.pretraining_data(store)
    steps = 0

    def batch(step: int) -> Batch:
        nonlocal steps
        if step == stop_before:
            raise Killed
        steps = max(steps, step + 1)
        return data.batch(step)

    def evaluate(display: Display, step: int) -> dict[str, float]:
        return {"score": SCORES[step // 2 - 1]}

    config = FitConfig(steps=12, learning_rate=1e-3, checkpoint_every=2, patience=patience)
    with Run.open(folder, {}, resume=True) as opened:
        fit(
            toys.pretraining_model(),
            MlmNsp(),
            batch,
            config,
            opened,
            evaluate=evaluate,
            evaluate_every=2,
            choose=Choice("score", highest=True),
        )
    return steps


@pytest.mark.parametrize(("patience", "steps"), [(1, 8), (2, 10), (3, 12), (None, 12)])
def test_a_run_ends_when_it_gets_no_better(
    patience: int | None, steps: int, store: Path, tmp_path: Path
) -> None:
    assert patient(store, tmp_path / "run", patience) == steps
    assert recorded_best(tmp_path / "run" / "checkpoints") == Best(6, "score", 0.9)
    # The log goes as far as the run.
    assert [line["step"] for line in toys.log(tmp_path / "run") if "loss" in line][-1] == steps


@pytest.mark.slow
def test_a_run_that_had_ended_early_does_not_go_on(store: Path, tmp_path: Path) -> None:
    patient(store, tmp_path / "run", 2)
    assert patient(store, tmp_path / "run", 2) == 0
    # Killed before it had lost its patience, it ends where it would have.
    with pytest.raises(Killed):
        patient(store, tmp_path / "killed", 2, stop_before=9)
    assert patient(store, tmp_path / "killed", 2) == 10


def test_early_stopping_saves_the_best_epoch(model: Path, labelled: Path, tmp_path: Path) -> None:
    done = bertine.finetune(
        "text",
        model=model,
        data=labelled,
        out=tmp_path / "run",
        patience=1,
        **{**QUICK, "epochs": 40},
    )
    accuracies = [entry["accuracy"] for entry in done.scores]
    assert len(accuracies) < 40
    assert accuracies[-1] <= max(accuracies[:-1])
    assert done.metrics["accuracy"] == max(accuracies)
