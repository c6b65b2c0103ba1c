"""``pretrain`` as a user calls it: objectives, formats, phases, held-out text, its report."""

from __future__ import annotations

import functools
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import toys
from bertine import evaluate, finetune, load_model, pretrain
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.corpora.store import TokenStore
from bertine.objectives.losses import MlmNsp
from bertine.training.pretraining.result import seconds_per_step
from bertine.training.step import TrainStep

FEW: dict[str, Any] = {
    "steps": 8,
    "batch_size": 4,
    "max_seq_length": 24,
    "log_every": 2,
    "checkpoint_every": None,
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_store(tmp_path_factory.mktemp("held") / "store", documents=12)


@pytest.mark.parametrize(
    ("input_format", "choice"),
    [
        ("segment-pair", {}),
        ("sentence-pair", {"masking": "static"}),
        ("full-sentences", {"whole_word_mask": True}),
        ("doc-sentences", {}),
    ],
)
def test_masked_tokens_alone_are_learnt_on_every_format(
    store: Path, held: Path, model: Path, tmp_path: Path, input_format: str, choice: dict[str, Any]
) -> None:
    choice = {**choice, "objective": "mlm", "input_format": input_format}
    result = pretrain(store, model=model, out=tmp_path / "run", **choice, **FEW)
    assert set(load_model(result.model).model.heads) == {"mlm"}
    # That of a guess: the right words are asked for, whatever the format.
    assert result.final["mlm_loss"] == pytest.approx(math.log(toys.config().vocab_size), rel=0.1)
    assert not any("NSP" in line for line in result.lines())
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert {name: settings[name] for name in choice} == choice
    report = evaluate(tmp_path / "run", held, show_progress=False)
    words = ", whole words" if "whole_word_mask" in choice else ""
    assert report.lines()[0].endswith(f"{input_format} of at most 24 tokens{words}")


@pytest.mark.slow
def test_a_model_without_next_sentences_can_be_fine_tuned_and_trained_on(
    store: Path, model: Path, labelled: Path, tmp_path: Path
) -> None:
    mlm = pretrain(store, model=model, out=tmp_path / "mlm", objective="mlm", **FEW)
    tuned = finetune("text", model=mlm.model, data=labelled, out=tmp_path / "tuned", epochs=1)
    assert set(load_model(tuned.model).model.heads) == {"classifier"}
    both = pretrain(store, model=mlm.model, out=tmp_path / "both", **FEW)
    assert set(load_model(both.model).model.heads) == {"mlm", "nsp"}


def test_the_objective_and_the_format_must_fit(store: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="use objective mlm"):
        pretrain(store, model=model, out=tmp_path / "run", input_format="full-sentences", **FEW)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_held_out_text_is_scored_along_the_way_and_by_evaluate(
    store: Path,
    held: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    result = pretrain(
        store, model=model, out=run, held_out=held, evaluate_every=4, precision="fp32", **FEW
    )
    assert "the text trained on" not in capsys.readouterr().err
    scored = [line for line in toys.log(run) if "eval_mlm_loss" in line]
    assert [line["step"] for line in scored] == [4, 8]
    assert result.held_out["mlm_loss"] == scored[-1]["eval_mlm_loss"]
    assert "learning_rate" in result.final
    assert any(line.startswith("held-out text: MLM loss") for line in result.lines())
    again = evaluate(run, held, precision="fp32", show_progress=False)
    assert again.metrics == pytest.approx(result.held_out)
    assert "segment-pair of at most 24 tokens" in again.lines()[0]
    tuned = toys.write_classifier(tmp_path / "classifier")
    with pytest.raises(BertineError, match="no MLM head"):
        evaluate(tuned, held, show_progress=False)


def test_one_document_is_scored_in_the_format_that_a_model_was_trained_on(
    store: Path, model: Path, tmp_path: Path
) -> None:
    lone = toys.write_store(tmp_path / "lone", documents=1)
    settings: dict[str, Any] = {**FEW, "held_out": lone, "precision": "fp32"}
    with pytest.raises(BertineError, match="at least two documents"):
        pretrain(store, model=model, out=tmp_path / "pairs", **settings)
    assert not (tmp_path / "pairs").exists(), "known before the first step"
    choice = {"objective": "mlm", "input_format": "full-sentences", "masked_lm_prob": 0.3}
    result = pretrain(store, model=model, out=tmp_path / "run", **choice, **settings)
    again = evaluate(tmp_path / "run", lone, precision="fp32", show_progress=False)
    assert again.metrics == pytest.approx(result.held_out)
    # All of a text that is shorter than a batch, and that once.
    text = TokenStore.open(lone).num_tokens
    assert text < again.metrics["tokens"] < 1.5 * text
    # A model from elsewhere that knows no next sentences: nothing says how it was trained.
    (result.model / "bertine.json").unlink()
    foreign = evaluate(result.model, lone, show_progress=False)
    positions = load_model(result.model).config.max_position_embeddings
    assert foreign.lines()[0].endswith(f"full-sentences of at most {positions} tokens")


def test_what_will_make_a_run_worthless_is_said_at_the_start(
    store: Path, held: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**FEW, "warmup_steps": 100, "held_out": store, "long_share": 0.3}
    pretrain(store, model=model, out=tmp_path / "run", **settings)
    said = capsys.readouterr().err
    assert "long_share 0.3 does nothing" in said
    assert "rises for 100 of 8 steps, so it never comes" in said
    assert f"{store}: the held-out text is the training text: scores are meaningless" in said
    pretrain(store, model=model, out=tmp_path / "fine", warmup_steps=1, held_out=held, **FEW)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask_split": (0.8, 0.1)}, "three shares"),
        ({"mask_split": (0.8, 0.1, 0.2)}, "add up to 1"),
        ({"long_seq_length": 32, "long_share": 1.0}, "long_share is 1"),
        ({"max_seq_length": 4096}, "max_seq_length is 4096, but the model has positions for"),
        ({"long_seq_length": 4096}, "long_seq_length is 4096, but the model has positions for"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq is 0"),
        ({"tokens": 1000}, "one of steps, tokens and hours"),
        ({"steps": None, "hours": 0.0}, "hours is 0"),
        ({"objective": "next"}, "must be one of mlm-nsp, mlm"),
        ({"initialization": "xavier"}, "must be one of normal, mimetic"),
        ({"initialization": "mimetic"}, "has weights already"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    store: Path, model: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertineError, match=message):
        pretrain(store, model=model, out=tmp_path / "run", **{**FEW, **change})
    assert not (tmp_path / "run").exists()


class Clock:
    """The time of a run, in which each step takes `step` seconds and all else none."""

    def __init__(self, patched: pytest.MonkeyPatch, step: float) -> None:
        self.now, self.step, accumulate = 1000.0, step, TrainStep.accumulate

        def takes_time(stepper: TrainStep, batch: Batch, seeds: list[int]) -> Any:
            self.now += self.step
            return accumulate(stepper, batch, seeds)

        patched.setattr(TrainStep, "accumulate", takes_time)
        time = SimpleNamespace(monotonic=self.read, perf_counter=self.read)
        for module in ("pretraining.pretrain", "pretraining.result", "fit", "display"):
            patched.setattr(f"bertine.training.{module}.time", time)
        timed = functools.partial(seconds_per_step, clock=self.read)
        patched.setattr("bertine.training.pretraining.result.seconds_per_step", timed)

    def read(self) -> float:
        return self.now


def comes_down(log: list[dict[str, Any]]) -> bool:
    return log[-1]["learning_rate"] < 0.2 * max(line["learning_rate"] for line in log)


@pytest.mark.slow
def test_hours_are_kept_and_the_rate_comes_down_in_them(
    store: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock(monkeypatch, step=0.1)
    settings: dict[str, Any] = {**FEW, "steps": None, "log_every": 1, "hours": 3 / 3600}
    result = pretrain(store, model=model, out=tmp_path / "run", **settings)
    assert clock.now == pytest.approx(1003.0, abs=0.2)  # what measuring took is a part of it
    log = toys.log(tmp_path / "run")
    assert comes_down(log)
    assert 22 < log[-1]["step"] < 28
    assert result.final["elapsed"] == pytest.approx(0.1 * log[-1]["step"])
    assert "a step takes 100 ms at present" in capsys.readouterr().err

    # A machine that turns out to be ten times slower than it was measured.
    monkeypatch.setattr(
        "bertine.training.pretraining.result.seconds_per_step", lambda *a, **k: 0.005
    )
    began = clock.now
    result = pretrain(store, model=model, out=tmp_path / "slower", long_seq_length=32, **settings)
    assert clock.now - began == pytest.approx(3.0, abs=0.2)
    slower = toys.log(tmp_path / "slower")
    assert comes_down(slower)
    assert set(load_model(result.model).model.heads) == {"mlm", "nsp"}
    said = capsys.readouterr().err
    assert re.search(rf"the time was over after {slower[-1]['step']} of (599|600) steps", said)
    assert "the time was enough for 0 of the " in said


@pytest.mark.slow
def test_a_machine_that_is_faster_than_it_was_measured_does_more(
    store: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And a run that goes on does not plan anew."""
    clock = Clock(monkeypatch, step=0.1)
    settings: dict[str, Any] = {**FEW, "steps": None, "log_every": 1, "hours": 2 / 3600}
    measured = iter([1.0])
    monkeypatch.setattr(
        "bertine.training.pretraining.result.seconds_per_step", lambda *a, **k: next(measured)
    )
    pretrain(store, model=model, out=tmp_path / "run", **settings)
    assert clock.now == pytest.approx(1002.0, abs=0.2)
    log = toys.log(tmp_path / "run")
    assert log[-1]["step"] == 20
    assert comes_down(log)
    assert "the time was enough for 20 steps" in capsys.readouterr().err
    again = pretrain(store, model=model, out=tmp_path / "run", resume=True, **settings)
    assert again.final["step"] == 20


@pytest.mark.slow
def test_steps_and_hours_are_the_most_steps_in_the_time(
    store: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, step=0.1)
    few = {**FEW, "steps": 3, "hours": 1.0, "log_every": 1}
    assert pretrain(store, model=model, out=tmp_path / "few", **few).final["step"] == 3
    many = {**FEW, "steps": 10**6, "hours": 1.5 / 3600, "log_every": 1}
    began = clock.now
    pretrain(store, model=model, out=tmp_path / "many", **many)
    assert clock.now - began == pytest.approx(1.5, abs=0.2)
    log = toys.log(tmp_path / "many")
    assert log[-1]["step"] == 15
    assert comes_down(log)


@pytest.mark.slow
def test_the_speed_is_that_of_a_run_with_its_workers(store: Path) -> None:
    """Slow batches are made in other processes while the model computes, and take no time of a
    step's."""
    now, data = 0.0, toys.pretraining_data(store)

    def slowly(step: int) -> Batch:
        nonlocal now
        now += 0.2
        return data.batch(step)

    def clock() -> float:
        nonlocal now
        now += 0.01
        return now

    given: dict[str, Any] = {"dtype": torch.float32, "seconds": 0.1, "clock": clock}
    alone, ahead = (
        seconds_per_step(toys.pretraining_model(), MlmNsp(), slowly, workers=workers, **given)
        for workers in (0, 2)
    )
    assert alone == pytest.approx(0.21)
    assert ahead == pytest.approx(0.01)
