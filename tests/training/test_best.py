"""The checkpoint of the best evaluation is kept, whenever the run is killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import toys
from bertine import finetune
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.objectives.losses import MlmNsp
from bertine.training.checkpoint import Best, Choice, load_best, recorded_best
from bertine.training.display import Display
from bertine.training.fit import FitConfig, fit
from bertine.training.run_folder import Run

#: Scores after steps 2, 4, 6, …: the third evaluation is the best.
SCORES = (0.3, 0.5, 0.9, 0.1, 0.9, 0.2)
STEPS = 12


class Killed(BaseException):
    """Nobody catches it."""


def train(
    store: Path,
    folder: Path,
    *,
    stop_before: int | None = None,
    scores: Sequence[float] = SCORES,
    highest: bool = True,
    checkpoint_every: int | None = 3,
) -> dict[str, torch.Tensor]:
    """One life of a run that is evaluated every two steps; the weights at its end."""
    data = toys.pretraining_data(store)
    model = toys.pretraining_model()

    def batch(step: int) -> Batch:
        if step == stop_before:
            raise Killed
        return data.batch(step)

    def evaluate(display: Display, step: int) -> dict[str, float]:
        return {"score": scores[step // 2 - 1]}

    config = FitConfig(
        steps=STEPS, learning_rate=1e-3, log_every=5, checkpoint_every=checkpoint_every
    )
    choose = Choice("score", highest=highest)
    options: dict[str, Any] = {"evaluate": evaluate, "evaluate_every": 2, "choose": choose}
    with Run.open(folder, {}, resume=True) as run:
        fit(model, MlmNsp(), batch, config, run, **options)
    return model.state_dict()


@pytest.mark.slow
def test_the_best_is_kept_besides_the_newest(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(os.listdir(folder)) == ["step-00000006", "step-00000009", "step-00000012"]
    assert recorded_best(folder) == Best(6, "score", 0.9)
    # The lowest, which comes last but one; no other checkpoints.
    train(store, tmp_path / "low", highest=False, checkpoint_every=None)
    folder = tmp_path / "low" / "checkpoints"
    assert recorded_best(folder) == Best(8, "score", 0.1)
    assert sorted(os.listdir(folder)) == ["step-00000002", "step-00000008"]


def test_the_weights_are_those_of_the_evaluation(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run")
    model = toys.pretraining_model()
    assert load_best(tmp_path / "run" / "checkpoints", model) == Best(6, "score", 0.9)
    # What a run that ends after six steps, by the same schedule, has.
    with pytest.raises(Killed):
        train(store, tmp_path / "short", stop_before=6)
    expected = load_file(tmp_path / "short/checkpoints/step-00000006/model.safetensors")
    found = {name: parameter.data for name, parameter in model.named_parameters()}
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.slow
@pytest.mark.fast_cases(stops=([6, 7, 8, 9, 10, 11],))
@pytest.mark.parametrize("stops", [[1], [5], [7], [6, 7, 8, 9, 10, 11], [11, 11]])
def test_killed_at_any_step_the_choice_is_the_same(
    store: Path, tmp_path: Path, stops: Sequence[int]
) -> None:
    expected = train(store, tmp_path / "whole")
    for stop in stops:
        with pytest.raises(Killed):
            train(store, tmp_path / "run", stop_before=stop)
    found = train(store, tmp_path / "run")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert toys.log(tmp_path / "run") == toys.log(tmp_path / "whole")
    folders = [tmp_path / name / "checkpoints" for name in ("run", "whole")]
    assert recorded_best(folders[0]) == recorded_best(folders[1]) == Best(6, "score", 0.9)
    assert sorted(os.listdir(folders[0])) == sorted(os.listdir(folders[1]))


def test_of_equals_the_first_and_never_what_is_no_number() -> None:
    choice = Choice("f1", highest=True)
    first = choice.better(None, 10, {"f1": float("nan"), "loss": 1.0})
    assert first is None
    second = choice.better(None, 20, {"f1": 0.5})
    assert choice.better(second, 30, {"f1": 0.5}) == second
    assert choice.better(second, 40, {"f1": float("nan")}) == second
    assert choice.better(second, 50, {"f1": 0.6}) == Best(50, "f1", 0.6)


def test_a_missing_checkpoint_is_named(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    shutil.rmtree(folder / "step-00000006")
    with pytest.raises(BertineError, match=r"step-00000006.*best evaluation is missing"):
        load_best(folder, toys.pretraining_model())


def test_a_damaged_checkpoint_of_the_best_has_its_own_advice(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    (folder / "step-00000006" / "model.safetensors").write_bytes(b"")
    with pytest.raises(BertineError, match=r"step-00000006.*checksum.*without save_best=True"):
        load_best(folder, toys.pretraining_model())


def test_finetune_writes_the_best_epoch(model: Path, labelled: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": model, "data": labelled, "epochs": 4, "max_length": 16}
    given |= {"learning_rate": 0.02, "batch_size": 30}
    result = finetune("text", out=tmp_path / "run", save_best=True, **given)
    values = [entry["accuracy"] for entry in result.scores]
    assert len(values) == 4
    assert result.report is not None
    assert result.report.metrics["accuracy"] == max(values)
    assert not (tmp_path / "run" / "checkpoints").exists()
    # Asked again, the finished run tells of the model that it saved.
    again = finetune("text", out=tmp_path / "run", save_best=True, resume=True, **given)
    assert again.metrics == result.metrics


@pytest.mark.slow
def test_the_best_epoch_asked_for_when_resumed(
    model: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one from before."""
    from bertine.training.finetuning import run as module

    original = module.evaluate_examples

    def life(name: str, accuracies: Sequence[float], **changes: Any) -> None:
        left = list(accuracies)

        def scripted(*given: Any, **more: Any) -> Any:
            if not left:
                raise Killed
            report = original(*given, **more)
            report.metrics["accuracy"] = left.pop(0)
            return report

        monkeypatch.setattr(module, "evaluate_examples", scripted)
        given: dict[str, Any] = {"model": model, "data": labelled, "epochs": 4, "max_length": 16}
        given |= {"learning_rate": 0.02, "batch_size": 30, "resume": True}
        finetune("text", out=tmp_path / name, **given, **changes)

    # At the end the best one is evaluated again.
    life("whole", [0.9, 0.5, 0.4, 0.3, 0.9], save_best=True)
    life("last", [0.9, 0.5, 0.4, 0.3], save_best=False)
    # Of 40 examples 36 right in place of 12 is no chance; 13 would be.
    life("clear", [0.9, 0.5, 0.4, 0.3, 0.9])
    life("chance", [0.325, 0.2, 0.2, 0.3])
    with pytest.raises(Killed):
        life("resumed", [0.9, 0.5, 0.4])
    life("resumed", [0.3, 0.9], save_best=True)
    whole, last, resumed, clear, chance = (
        toys.weights(tmp_path / name / "model")
        for name in ("whole", "last", "resumed", "clear", "chance")
    )
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    assert all(torch.equal(clear[name], whole[name]) for name in whole)
    assert all(torch.equal(chance[name], last[name]) for name in whole)
    assert not all(torch.equal(resumed[name], last[name]) for name in whole)
