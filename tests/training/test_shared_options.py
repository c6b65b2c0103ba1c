"""Options that fine-tuning and pre-training have in common do in each what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import toys
from bertine import finetune, pretrain
from bertine.core.errors import BertineError
from bertine.training.schedules import SCHEDULES

TUNE: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 16,
    "max_length": 16,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "baselines": False,
    "frozen": False,
}

TRAIN: dict[str, Any] = {
    "steps": 8,
    "batch_size": 4,
    "max_seq_length": 24,
    "log_every": 1,
    "checkpoint_every": None,
    "precision": "fp32",
}


def settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())["settings"]
    return found


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_the_schedule_of_pre_training_goes_to_the_log(
    name: str, store: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    pretrain(
        store,
        model=model,
        out=out,
        schedule=name,
        learning_rate=1e-3,
        warmup_ratio=0.25,
        **TRAIN,
    )
    rates = [line["learning_rate"] for line in toys.log(out)]
    assert rates == pytest.approx([1e-3 * SCHEDULES[name](step, 8, 2) for step in range(8)])
    assert settings(out)["schedule"] == name


def test_layers_of_pre_training_have_their_shares_of_the_rate(
    store: Path, model: Path, tmp_path: Path
) -> None:
    """With almost no share for lower layers, what moves is the head."""
    out = tmp_path / "run"
    still = {"layer_decay": 1e-6, "weight_decay": 0.0}
    pretrain(store, model=model, out=out, learning_rate=1e-3, **still, **TRAIN)
    before, after = toys.weights(model), toys.weights(out / "model")
    words = "bert.encoder.layer.0.output.dense.weight"
    head = "cls.predictions.transform.dense.weight"
    moved = {name: (after[name] - before[name]).abs().max() for name in (words, head)}
    assert moved[words] < 1e-6 < 1e-4 < moved[head]


def test_pre_training_stops_when_held_out_text_gets_no_better(
    store: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = toys.write_store(tmp_path / "held", documents=12)
    given = {**TRAIN, "steps": 60, "held_out": held, "evaluate_every": 2, "learning_rate": 0.5}
    result = pretrain(store, model=model, out=tmp_path / "run", patience=2, **given)
    scored = [
        line["eval_mlm_loss"] for line in toys.log(tmp_path / "run") if "eval_mlm_loss" in line
    ]
    best = scored.index(min(scored))
    assert len(scored) == best + 1 + 2
    assert result.final["step"] == 2 * len(scored) < 60
    assert "stopped early after step" in capsys.readouterr().err
    # It has ended, and does not go on.
    lines = toys.log(tmp_path / "run")
    pretrain(store, model=model, out=tmp_path / "run", patience=2, resume=True, **given)
    assert toys.log(tmp_path / "run") == lines


def test_patience_without_text_to_judge_by_is_refused(
    store: Path, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertineError, match=r"patience needs text .* held_out"):
        pretrain(store, model=model, out=tmp_path / "run", patience=2, **TRAIN)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_workers_of_fine_tuning_change_no_bit_and_may_change_on_resume(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"model": model, "data": labelled, **TUNE}
    for workers in (0, 2):
        out = tmp_path / str(workers)
        finetune("text", out=out, workers=workers, **given)
        assert settings(out)["workers"] == workers
    assert toys.same_weights(tmp_path / "0" / "model", tmp_path / "2" / "model")
    again = finetune("text", out=tmp_path / "0", workers=2, resume=True, **given)
    assert again.model == tmp_path / "0" / "model"
