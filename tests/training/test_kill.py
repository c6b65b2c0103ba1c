"""``kill -9`` at any moment, ``--resume``, and the result is that of the undisturbed run: as a user
meets it, through the command line, in processes of their own (forked, which takes no time; for
Ctrl-C one that the shell starts)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import processes
import toys
from bertine.cli import main
from bertine.training import checkpoint


@pytest.fixture(autouse=True)
def _as_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads for matrices this small only wait for each other, for minutes on a busy
    machine."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def life(arguments: list[str], torn: int | None) -> None:
    """A process of ``bertine``; it is killed when half of the `torn`-th file of its checkpoints is
    written."""
    save, written = checkpoint.save_file, 0

    def cut(tensors: dict[str, torch.Tensor], path: Path) -> None:
        nonlocal written
        written += 1
        save(tensors, path)
        if written == torn:
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.save_file = cut
    processes.bertine(arguments)


def kill_when(arguments: list[str], ready: Callable[[], bool]) -> None:
    """Start ``bertine`` and kill it the moment that `ready` says so."""
    process = processes.forked(life, arguments, None)
    try:
        deadline = time.monotonic() + 60
        while not ready():
            assert process.is_alive(), "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL


def kill_while_writing_file(number: int, arguments: list[str]) -> None:
    """Kill ``bertine`` when half of the `number`-th file of its checkpoints is written."""
    process = processes.forked(life, arguments, number)
    process.join()
    assert process.exitcode == -signal.SIGKILL


def finish(arguments: list[str]) -> None:
    assert main(arguments) == 0


def logged(run: Path, lines: int) -> Callable[[], bool]:
    file = run / "log.jsonl"
    return lambda: file.exists() and file.read_bytes().count(b"\n") >= lines


def whole_checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").glob("step-*"))


def leftovers(run: Path) -> list[str]:
    return [str(path) for path in run.rglob("*") if ".tmp-" in path.name]


def assert_same_run(run: Path, whole: Path) -> None:
    assert (run / "model" / "model.safetensors").read_bytes() == (
        whole / "model" / "model.safetensors"
    ).read_bytes()
    assert toys.log(run) == toys.log(whole)
    assert leftovers(run) == []


@pytest.mark.slow
def test_pretrain_survives_kill_9(store: Path, model: Path, tmp_path: Path) -> None:
    def arguments(out: Path) -> list[str]:
        settings = "--steps 150 --max-seq-length 32 --batch-size 4 --checkpoint-every 20"
        rest = f"--log-every 7 --learning-rate 1e-3 --seed 5 --resume --out {out}"
        return ["pretrain", str(store), "--model", str(model), *settings.split(), *rest.split()]

    whole, run = tmp_path / "whole", tmp_path / "run"
    finish(arguments(whole))
    # Somewhere between two checkpoints, after the first lines of the log; with loader workers,
    # which the lives after this one do without.
    kill_when([*arguments(run), "--workers", "2"], logged(run, 4))
    reached = whole_checkpoints(run)
    # At once after a resume, at whatever step that is.
    kill_when(arguments(run), lambda: whole_checkpoints(run) != reached)
    # In the middle of the weights, then in the middle of the optimizer's moments.
    for number in (1, 4):
        before = whole_checkpoints(run)
        kill_while_writing_file(number, arguments(run))
        assert len(leftovers(run)) == 1
        assert (whole_checkpoints(run) == before) == (number == 1)
    assert not (run / "model").exists()
    finish(arguments(run))
    assert_same_run(run, whole)
    assert len(toys.log(run)) == 150 // 7 + 1


@pytest.mark.slow
def test_finetune_survives_kill_9(model: Path, labelled: Path, tmp_path: Path) -> None:
    def arguments(out: Path) -> list[str]:
        settings = "--epochs 10 --batch-size 8 --max-length 16 --checkpoint-every 20"
        rest = f"--log-every 9 --learning-rate 1e-3 --seed 2 --resume --no-baselines --out {out}"
        given = ["text", "--model", str(model), "--data", str(labelled)]
        return ["finetune", *given, *settings.split(), *rest.split()]

    whole, run = tmp_path / "whole", tmp_path / "run"
    finish(arguments(whole))
    kill_when(arguments(run), logged(run, 6))
    kill_while_writing_file(3, arguments(run))
    reached = whole_checkpoints(run)
    kill_when(arguments(run), lambda: whole_checkpoints(run) != reached)
    finish(arguments(run))
    assert_same_run(run, whole)
    scores = [(folder / "scores.json").read_text() for folder in (run, whole)]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_ctrl_c_from_the_shell(store: Path, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = f"--steps 100000 --max-seq-length 32 --batch-size 2 --log-every 1 --out {run}"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bertine",
            "pretrain",
            str(store),
            "--model",
            str(model),
            *given.split(),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not logged(run, 3)():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.endswith("bertine: interrupted\n")
    assert "go on with --resume" in said
    assert whole_checkpoints(run) == [f"step-{toys.log(run)[-1]['step']:08d}"]
    assert leftovers(run) == []
