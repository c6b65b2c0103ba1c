"""A resumed run is bit for bit the run that was never stopped; in this process."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import toys
from bertine import finetune
from bertine.core.errors import BertineError
from bertine.corpora.batch import Batch
from bertine.objectives.losses import MlmNsp
from bertine.training import checkpoint as checkpoint_module
from bertine.training.checkpoint import checkpoints
from bertine.training.fit import FitConfig, fit
from bertine.training.job_folder import refuse_changes
from bertine.training.run_folder import Run

STEPS = 11


class Killed(BaseException):
    """Nobody catches it."""


def train(
    store: Path,
    folder: Path,
    *,
    stop_before: int | None = None,
    during: Callable[[int], None] = lambda step: None,
    dropout: float = 0.1,
    **changes: Any,
) -> dict[str, torch.Tensor]:
    """One life of a run, from its newest checkpoint on; the weights at its end.

    Batches are computed in two micro-batches, and neither lines of the log nor checkpoints fall
    together.
    """
    data = toys.pretraining_data(store)
    settings = {
        "steps": STEPS,
        "learning_rate": 1e-3,
        "warmup_steps": 3,
        "max_tokens_per_micro_batch": 160,
        "log_every": 4,
        "checkpoint_every": 3,
    }
    config = FitConfig(**{**settings, **changes})
    model = toys.pretraining_model(
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )

    def batch(step: int) -> Batch:
        if step == stop_before:
            raise Killed
        during(step)
        return data.batch(step)

    with Run.open(folder, {"seed": config.seed}, resume=True) as run:
        fit(model, MlmNsp(), batch, config, run)
    return model.state_dict()


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [n for n in expected if not torch.equal(found[n], expected[n])] == []


@pytest.mark.takes(2)
@pytest.mark.fast_cases(stops=([4, 7, 8, 10],), precision=("fp32",))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stops", [[1], [5], [4, 7, 8, 10], [10, 10, 10]])
def test_stopped_before_any_step(
    store: Path, tmp_path: Path, precision: str, stops: Sequence[int]
) -> None:
    expected = train(store, tmp_path / "whole", precision=precision)
    for stop in stops:
        with pytest.raises(Killed):
            train(store, tmp_path / "stopped", stop_before=stop, precision=precision)
    assert_same(train(store, tmp_path / "stopped", precision=precision), expected)
    assert toys.log(tmp_path / "stopped") == toys.log(tmp_path / "whole")
    assert [entry["step"] for entry in toys.log(tmp_path / "whole")] == [4, 8, 11]


@pytest.mark.slow
def test_checkpoints_are_pruned_and_resumable_ones_kept(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    seen: dict[int, list[str]] = {}

    def look(step: int) -> None:
        seen[step] = sorted(os.listdir(run / "checkpoints")) if step >= 3 else []

    train(store, run, during=look)
    assert seen[3] == ["step-00000003"]
    assert seen[6] == ["step-00000003", "step-00000006"]
    assert seen[10] == ["step-00000006", "step-00000009"]
    train(store, tmp_path / "one", checkpoint_every=2, keep_checkpoints=1)
    assert os.listdir(tmp_path / "one" / "checkpoints") == ["step-00000010"]


@pytest.mark.fast_cases(moment=("rename",))
@pytest.mark.parametrize("moment", ["weights", "moments", "rename"])
def test_killed_while_writing_a_checkpoint(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The kill leaves half a checkpoint, which is not picked up and is cleared away."""
    expected = train(store, tmp_path / "whole")
    run = tmp_path / "run"
    save = checkpoint_module.save_file
    written = 0

    def cut(tensors: dict[str, torch.Tensor], path: Path) -> None:
        nonlocal written
        written += 1
        save(tensors, path)
        if written == {"weights": 3, "moments": 4, "rename": 4}[moment]:
            if moment == "rename":
                # As a file system may that was cut off power: the folder is there, not its end.
                shutil.copytree(path.parent, run / "checkpoints" / "step-00000007")
            os.truncate(path, path.stat().st_size // 2)
            # What a killed process leaves; this one will remove its own.
            shutil.copytree(path.parent, path.parent.with_name(".step-00000006.tmp-killed"))
            raise Killed

    monkeypatch.setattr(checkpoint_module, "save_file", cut)
    with pytest.raises(Killed):
        train(store, run)
    monkeypatch.undo()
    assert ".step-00000006.tmp-killed" in os.listdir(run / "checkpoints")
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-00000003"]
    began: list[int] = []
    assert_same(train(store, run, during=began.append), expected)
    assert began[0] == 3
    assert sorted(os.listdir(run / "checkpoints")) == ["step-00000006", "step-00000009"]
    assert toys.log(run) == toys.log(tmp_path / "whole")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(store, run)
    file = run / "checkpoints" / "step-00000009" / "optimizer.safetensors"
    os.truncate(file, file.stat().st_size - 7)
    with pytest.raises(BertineError, match=r"step-00000009.*damaged.*delete its folder"):
        train(store, run)
    shutil.rmtree(file.parent)
    assert_same(train(store, run), train(store, tmp_path / "whole"))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_flipped_bit_is_noticed(store: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    train(store, run)
    file = run / "checkpoints" / "step-00000009" / name
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(BertineError, match=rf"step-00000009/{name}: damaged.*checksum"):
        train(store, run)


def test_a_changed_digit_of_the_state_is_noticed(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(store, run)
    file = run / "checkpoints" / "step-00000009" / "state.json"
    text = file.read_text()
    assert '"step": 9,' in text
    file.write_text(text.replace('"step": 9,', '"step": 8,'))
    with pytest.raises(BertineError, match=r"step-00000009/state.json: damaged.*checksum"):
        train(store, run)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "[]", '{"format": 2, "step": 9}'])
def test_a_damaged_state_is_named(store: Path, tmp_path: Path, text: str) -> None:
    run = tmp_path / "run"
    train(store, run)
    newest, older = run / "checkpoints" / "step-00000009", run / "checkpoints" / "step-00000006"
    (newest / "state.json").write_text(text)
    with pytest.raises(BertineError, match=r"step-00000009/state.json: damaged.*delete its folder"):
        train(store, run)
    # One that is not gone on from is nobody's business.
    shutil.copytree(older, run / "checkpoints" / "step-00000003")
    shutil.copy(newest / "state.json", run / "checkpoints" / "step-00000003")
    shutil.rmtree(newest)
    assert_same(train(store, run, keep_checkpoints=3), train(store, tmp_path / "whole"))


def test_a_checkpoint_of_another_version_is_told(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(store, run)
    (run / "checkpoints" / "step-00000009" / "state.json").write_text('{"format": 1}')
    with pytest.raises(BertineError, match=r"another version \(format 1, here 2\)"):
        train(store, run)


@pytest.mark.slow
def test_a_copy_of_a_checkpoint_is_left_alone(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(Killed):
        train(store, run, stop_before=5)
    copy = run / "checkpoints" / "step-00000003-mine"
    shutil.copytree(run / "checkpoints" / "step-00000003", copy)
    (copy / "state.json").unlink()
    train(store, run, keep_checkpoints=1)
    assert sorted(os.listdir(copy.parent)) == ["step-00000003-mine", "step-00000009"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_step_and_writes_a_checkpoint(
    store: Path, tmp_path: Path, number: signal.Signals
) -> None:
    expected = train(store, tmp_path / "whole")
    run = tmp_path / "run"
    # Ray, where an earlier test of this process has used it, leaves its own handler behind.
    before = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    theirs = signal.signal(number, before)

    def interrupt(step: int) -> None:
        if step == 4:
            os.kill(os.getpid(), number)

    try:
        with pytest.raises(KeyboardInterrupt):
            train(store, run, during=interrupt)
    finally:
        after = signal.signal(number, theirs)
    assert sorted(os.listdir(run / "checkpoints")) == ["step-00000003", "step-00000005"]
    assert after is before
    assert_same(train(store, run), expected)
    assert toys.log(run) == toys.log(tmp_path / "whole")


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def interrupt(step: int) -> None:
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("went on after the second Ctrl-C")

    with pytest.raises(KeyboardInterrupt):
        train(store, run, during=interrupt)
    assert os.listdir(run / "checkpoints") == ["step-00000003"]
    assert_same(train(store, run), train(store, tmp_path / "whole"))


def test_a_run_resumed_when_its_time_is_up_has_an_end(store: Path, tmp_path: Path) -> None:
    """Before, nothing was logged of one that was stopped before the first line of its log."""
    run = tmp_path / "run"
    given: dict[str, Any] = {"budget_seconds": 1e6, "checkpoint_every": 1, "log_every": 100}
    with pytest.raises(Killed):
        train(store, run, stop_before=3, **given)
    assert toys.log(run) == []
    file = run / "checkpoints" / "step-00000003" / "state.json"
    state = json.loads(file.read_text())
    # An evaluation, say, took the rest of the time.
    state["used"] = 2e6
    state["crc32_of_this"] = checkpoint_module._checksum_of(state)
    file.write_text(json.dumps(state))
    ended = train(store, run, **given)
    (last,) = toys.log(run)
    assert (last["step"], last["learning_rate"]) == (4, 0.0)
    # What was over stays over.
    assert_same(train(store, run, **given), ended)
    assert toys.log(run) == [last]


@pytest.mark.slow
def test_what_fails_before_the_first_step_can_be_started_again(store: Path, tmp_path: Path) -> None:
    def bad(step: int) -> None:
        raise BertineError("cannot be")

    with pytest.raises(BertineError, match="cannot be"):
        train(store, tmp_path / "run", during=bad)
    assert not (tmp_path / "run").exists()

    def later(step: int) -> None:
        if step == 4:
            raise BertineError("cannot be")

    with pytest.raises(BertineError, match="cannot be"):
        train(store, tmp_path / "run", during=later)
    assert_same(train(store, tmp_path / "run"), train(store, tmp_path / "whole"))


@pytest.mark.parametrize("stop", ["evaluation", "saving", "scores"])
def test_finetune_killed_at_the_end_of_an_epoch(
    model: Path,
    labelled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: str,
) -> None:
    """Where training, evaluation and the last checkpoint meet."""
    from bertine.training.finetuning import run as module

    def life(folder: Path) -> Any:
        return finetune(
            "text",
            model=model,
            data=labelled,
            out=folder,
            epochs=2,
            batch_size=30,
            max_length=16,
            learning_rate=1e-3,
            checkpoint_every=4,  # an epoch
            log_every=3,
            baselines=False,  # their seconds differ from life to life
            resume=True,
        )

    expected = life(tmp_path / "whole")
    calls = 0
    name = {"evaluation": "evaluate_examples", "saving": "save_model", "scores": "write_json"}[stop]
    original = getattr(module, name)

    def killed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, killed)
    with pytest.raises(Killed):
        life(tmp_path / "stopped")
    result = life(tmp_path / "stopped")
    assert calls >= 1
    assert_same(toys.weights(tmp_path / "stopped/model"), toys.weights(tmp_path / "whole/model"))
    assert toys.log(tmp_path / "stopped") == toys.log(tmp_path / "whole")
    assert result.scores == expected.scores
    assert [score["step"] for score in result.scores] == [4, 8]
    assert result.report is not None
    assert result.report.metrics == expected.report.metrics
    scores = [(tmp_path / name / "scores.json").read_text() for name in ("stopped", "whole")]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_finetune_goes_on_only_with_the_same_examples_and_weights(
    model: Path, labelled: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(labelled, data)

    def life(start: Path, resume: bool) -> None:
        finetune("text", model=start, data=data, out=tmp_path / "run", epochs=1, resume=resume)

    life(model, False)
    rows = (data / "train.csv").read_text().splitlines()
    (data / "train.csv").write_text("\n".join([rows[0], *reversed(rows[1:])]) + "\n")
    with pytest.raises(BertineError, match="was started with other examples; resume"):
        life(model, True)
    (data / "train.csv").write_text("\n".join(rows) + "\n")
    other = toys.write_model(tmp_path / "other", seed=1)
    with pytest.raises(BertineError, match="was started with other weights; resume"):
        life(other, True)
    life(model, True)


@pytest.mark.slow
def test_the_seed_is_named_and_not_what_it_changes(model: Path, tmp_path: Path) -> None:
    """Other validation examples are held out, and the new head is another."""
    data = toys.write_labelled(tmp_path / "data.csv", rows=24)

    def life(resume: bool, **seeds: int) -> None:
        finetune("text", model=model, data=data, out=tmp_path / "run", resume=resume, **seeds)

    life(False, seed=1, split_seed=2)
    with pytest.raises(BertineError, match="was started with seed = 1, not 4"):
        life(True, seed=4, split_seed=2)
    with pytest.raises(BertineError, match="was started with split_seed = 2, not None"):
        life(True, seed=1)
    # Of many settings in one the part that differs, and not all of it.
    with pytest.raises(BertineError, match=r"with labels_and_columns\.max_length = 40, not 24; "):
        life(True, seed=1, split_seed=2, max_length=24)
    with pytest.raises(BertineError) as caught:
        refuse_changes(tmp_path, "run", {"labels": ["x" * 9] * 999}, {"labels": []})
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_finetune_writes_a_checkpoint_an_epoch_and_removes_them_at_the_end(
    model: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertine.training.finetuning import run as module

    def life() -> None:
        settings = {"epochs": 2, "batch_size": 30, "resume": True}
        finetune("text", model=model, data=labelled, out=tmp_path / "run", **settings)

    def killed(*args: Any, **kwargs: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_model", killed)
        with pytest.raises(Killed):
            life()
    found = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert found == ["step-00000004", "step-00000008"]
    life()
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert (tmp_path / "run" / "model").is_dir()


@pytest.mark.takes(3)
@pytest.mark.fast_cases(workers=([3, 0, 1],))
@pytest.mark.parametrize("workers", [[1, 1], [0, 3], [3, 0, 1]])
def test_any_number_of_workers_gives_the_same_bits(
    store: Path, tmp_path: Path, workers: Sequence[int]
) -> None:
    """Also when the number changes from life to life."""
    expected = train(store, tmp_path / "whole")
    *killed, last = workers
    for life, number in enumerate(killed):
        dies = 5 + life

        def lives(step: int, end: int = dies) -> None:
            if step == end:
                raise BertineError("power cut")

        with pytest.raises(BertineError, match=r"^power cut$"):
            train(store, tmp_path / "run", during=lives, workers=number)
    assert_same(train(store, tmp_path / "run", workers=last), expected)
    assert toys.log(tmp_path / "run") == toys.log(tmp_path / "whole")
