"""Training works: it learns what can be learnt, says what goes wrong, and measures what it does."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import toys
from bertine import pretrain
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.objectives.losses import MlmNsp
from bertine.training.display import Display, facts_of
from bertine.training.distributed import DistContext
from bertine.training.fit import FitConfig, fit
from bertine.training.run_folder import Run
from bertine.training.step import CPU_MICRO_BATCH, GPU_MICRO_BATCH, TrainStep


@pytest.mark.slow
def test_pretraining_beats_the_frequencies(store: Path, model: Path, tmp_path: Path) -> None:
    """Most masked words follow from their neighbours."""
    result = pretrain(
        store,
        model=model,
        out=tmp_path / "run",
        steps=500,
        max_seq_length=32,
        batch_size=16,
        learning_rate=3e-3,
        warmup_ratio=0.1,
        dropout=0.0,
        log_every=50,
    )
    first = toys.log(tmp_path / "run")[0]
    assert first["mlm_loss"] > 0.8 * result.unigram_entropy
    assert result.final["mlm_loss"] < 0.5 * result.unigram_entropy
    assert result.final["mlm_accuracy"] > 0.45  # "the", the most frequent, is 2 words of 7
    assert "below the unigram entropy" in "\n".join(result.lines())


def test_a_model_that_has_not_learnt_is_told_apart(
    store: Path, model: Path, tmp_path: Path
) -> None:
    result = pretrain(
        store, model=model, out=tmp_path / "run", steps=1, batch_size=2, max_seq_length=32
    )
    entropy = result.unigram_entropy

    def said(loss: float, kept: float = 0.1) -> str:
        final = {**result.final, "mlm_loss": loss}
        return dataclasses.replace(result, final=final, kept=kept).lines()[1]

    assert "does not even know how frequent" in said(entropy + 1)
    assert "it knows frequencies only" in said(entropy)
    assert "it knows frequencies only" in said(0.95 * entropy)
    assert "below the unigram entropy" in said(0.5 * entropy)
    assert "to be copied" in said(0.01, kept=1.0)


def run_fit(folder: Path, batch: Any, **changes: Any) -> list[dict[str, Any]]:
    settings = {"steps": 4, "learning_rate": 1e-3, "log_every": 1, **changes}
    with Run.open(folder, settings, resume=False) as run:
        fit(toys.pretraining_model(), MlmNsp(), batch, FitConfig(**settings), run)
    return toys.log(folder)


def test_the_log_says_what_happened(store: Path, tmp_path: Path) -> None:
    data = toys.pretraining_data(store)
    fine = run_fit(tmp_path / "a", data.batch, warmup_steps=2)
    assert [entry["step"] for entry in fine] == [1, 2, 3, 4]
    assert [entry["learning_rate"] for entry in fine] == pytest.approx(
        [0.25e-3, 0.75e-3, 0.75e-3, 0.25e-3]
    )
    seen = 0
    for step, entry in enumerate(fine):
        seen += data.batch(step).num_tokens
        assert entry["tokens"] == seen
        assert entry["loss"] == pytest.approx(entry["mlm_loss"] + entry["nsp_loss"])
        assert 0 <= entry["nsp_accuracy"] <= 1
    # Lines over several steps are means over their targets, not of their means.
    coarse = run_fit(tmp_path / "b", data.batch, warmup_steps=2, log_every=4)
    targets = [data.batch(step).targets["mlm_labels"].numel() for step in range(4)]
    assert len(set(targets)) > 1
    expected = sum(e["mlm_loss"] * n for e, n in zip(fine, targets, strict=True)) / sum(targets)
    assert coarse[0]["mlm_loss"] == pytest.approx(expected, rel=1e-5)
    raw = (tmp_path / "a" / "log.jsonl").read_text()
    # A run of seconds is not worth measuring the machine for.
    assert [key for key in toys.CLOCK if key not in raw] == ["share_of_ceiling"]


def test_the_gradients_norm_is_that_of_all_of_them(store: Path, tmp_path: Path) -> None:
    batch = toys.pretraining_data(store).batch(0)
    model = toys.pretraining_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    twin = copy.deepcopy(model)
    terms = MlmNsp().terms(twin, batch)
    sum(term.total / term.count for term in terms.values()).backward()
    norms = torch.stack([p.grad.norm() for p in twin.parameters() if p.grad is not None])
    config = FitConfig(steps=1, learning_rate=1e-3, log_every=1, precision="fp32")
    with Run.open(tmp_path / "run", {}, resume=False) as run:
        fit(model, MlmNsp(), lambda step: batch, config, run)
    assert toys.log(tmp_path / "run")[0]["grad_norm"] == pytest.approx(norms.norm().item(), 1e-4)


def test_a_cpu_computes_few_tokens_at_once(store: Path) -> None:
    """Its memory is the user's."""
    batch = toys.pretraining_data(store).batch
    given: dict[str, Any] = {"world": DistContext(), "dtype": torch.float32}
    steppers = [
        TrainStep(toys.pretraining_model(), MlmNsp(), batch, **given, **more)
        for more in ({}, {"max_tokens": 7})
    ]
    assert [stepper.max_tokens for stepper in steppers] == [CPU_MICRO_BATCH, 7]
    assert CPU_MICRO_BATCH < GPU_MICRO_BATCH


def test_the_first_loss_is_that_of_a_guess(store: Path, tmp_path: Path) -> None:
    first = run_fit(tmp_path / "run", toys.pretraining_data(store).batch)[0]
    assert first["mlm_loss"] == pytest.approx(math.log(toys.config().vocab_size), rel=0.05)
    assert first["nsp_loss"] == pytest.approx(math.log(2), rel=0.05)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run(store: Path, tmp_path: Path, value: float) -> None:
    data = toys.pretraining_data(store)
    model = toys.pretraining_model()

    def batch(step: int) -> Batch:
        if step == 2:
            with torch.no_grad():
                model.backbone.embeddings.layer_norm.weight[0] = value
        return data.batch(step)

    config = FitConfig(steps=5, learning_rate=1e-3, log_every=1, checkpoint_every=1)
    with (
        pytest.raises(BertineError, match=r"step 3: the gradient is not finite; lower the learn"),
        Run.open(tmp_path / "run", {}, resume=False) as run,
    ):
        fit(model, MlmNsp(), batch, config, run)
    # The last checkpoint is of before.
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["step-00000001", "step-00000002"]
    assert [entry["step"] for entry in toys.log(tmp_path / "run")] == [1, 2]


def test_tokens_are_turned_into_steps(store: Path, model: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": model, "max_seq_length": 32, "batch_size": 4}
    result = pretrain(store, out=tmp_path / "run", tokens=1000, **given)
    assert 800 < result.final["tokens"] < 1200
    for wrong in ({}, {"steps": 1, "tokens": 1}):
        with pytest.raises(BertineError, match="give one of steps, tokens and hours"):
            pretrain(store, out=tmp_path / "other", **wrong, **given)
    assert not (tmp_path / "other").exists()


def test_dropout_can_be_set_for_a_model_that_has_another(
    store: Path, model: Path, tmp_path: Path
) -> None:
    from bertine.hub.model_directory import load_config

    given: dict[str, Any] = {"max_seq_length": 32, "batch_size": 2, "steps": 1}
    for start in (model, "bert-tiny"):
        out = tmp_path / Path(start).name
        result = pretrain(store, model=start, out=out, dropout=0.25, **given)
        saved = load_config(result.model)
        assert saved.hidden_dropout_prob == saved.attention_probs_dropout_prob == 0.25


def test_progress_without_a_terminal_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Display("pretrain", 3) as display:
        facts = facts_of({"mlm_loss": 2.5, "unigram_entropy": 3.25, "nsp_accuracy": 0.5})
        display.update(1)
        display.update(2, facts)
        display.update(3, facts)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("pretrain 3/3  mlm loss 2.500  (unigram entropy 3.250)")
    assert "nsp acc 50.0%" in lines[-1]
    assert "left" in lines[-1]


def test_the_time_left_counts_the_work_and_the_time_that_is_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("bertine.training.display.time.monotonic", lambda: now)

    def lines(latest: float) -> list[str]:
        """Of nine steps of ten. The last has five times the work of another; the first takes
        longer, since memory is taken and products are compiled."""
        nonlocal now
        now = 1000.0
        with Display("train", 10, 0, lambda done: done + 4 * (done == 10), latest) as display:
            for step in range(1, 10):
                now += 60.0 if step == 1 else 11.0
                display.update(step, {"loss": "1.0"})
        return [line for line in capsys.readouterr().err.splitlines() if "loss" in line]

    told = lines(math.inf)
    assert told[0] == "train 1/10  loss 1.0"
    assert told[1] == "train 2/10  loss 1.0  left 2 min 12 s"
    assert told[-1] == "train 9/10  loss 1.0  left 55.0 s"
    told = lines(latest=1188.0)
    assert told[0] == "train 1/10  loss 1.0  left 2 min 08 s"
    assert told[-1] == "train 9/10  loss 1.0  left 40.0 s"


def test_the_loss_of_masked_words_alone_is_shown_beside_the_unigram_entropy() -> None:
    assert facts_of({"loss": 2.5, "unigram_entropy": 3.25}) == {
        "loss": "2.500",
        "(unigram entropy": "3.250)",
    }


@pytest.mark.slow
def test_tensorboard_by_option(store: Path, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    given: dict[str, Any] = {"max_seq_length": 32, "batch_size": 2, "steps": 1, "model": model}
    pretrain(store, out=tmp_path / "run", tensorboard=True, **given)
    (file,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert file.name.startswith("events.out.tfevents")
