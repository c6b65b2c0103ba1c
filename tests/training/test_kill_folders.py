"""``kill -9`` at random moments in every kind of folder; what is resumed comes to the same.

KILLS=3 pytest -m deep tests/training/test_kill_folders.py -k search
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import processes
import toys
from bertine.core.errors import BertineError
from bertine.core.files import lock_folder
from bertine.training import job_folder

#: What a process does: (verb, its arguments, the folder).
Life = Callable[[str, dict[str, Any], Path], None]
#: Keys of JSON files whose values are times, or follow from times.
_NOT_COMPARED = {
    *("elapsed", "seconds", "train_seconds", "answer_seconds", "answers_per_second", "sentences"),
    *("used", "crc32_of_this", *toys.CLOCK),
}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in _NOT_COMPARED}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def results(out: Path) -> dict[str, Any]:
    """What a job leaves: the names of its files, its JSON without times, its weights."""
    return {
        str(path.relative_to(out)): _plain(json.loads(path.read_text().replace(str(out), "OUT")))
        if path.suffix == ".json"
        else path.read_bytes()
        if path.suffix in (".safetensors", ".npy", ".csv")
        else None
        for path in sorted(out.rglob("*"))
        if path.is_file() and "logs" not in path.relative_to(out).parts
    }


@pytest.fixture(scope="module")
def kinds(
    model: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The arguments of a job of each kind that takes seconds."""
    folder = tmp_path_factory.mktemp("kinds")
    rows = toys.write_labelled(folder / "few.csv", rows=60)
    common = {"model": model, "precision": "fp32"}
    run = {"max_length": 24, "checkpoint_every": 5, "log_every": 4}
    return {
        "finetune": {
            **{"task": "text", "data": labelled, "epochs": 12, "baselines": False},
            **{**run, **common},
        },
        "search": {
            **{"task": "text", "data": labelled, "batch_sizes": [8], "learning_rates": [3e-3]},
            **{"epochs": [4], "seeds": [0, 1, 2], **run, **common},
        },
        "learning_curve": {
            **{"data": rows, "methods": ["tf-idf", "frozen", "finetune"], "repeats": 2, **common},
        },
        "check_labels": {"data": rows, "epochs": 6, "frozen": False, "folds": 3, **common},
    }


def quietly(job: Callable[..., object], **given: Any) -> None:
    """Do a job in one thread, without a word: all that its process does."""
    from bertine.core.console import console

    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.stdout = console.file = open(os.devnull, "w")  # noqa: SIM115
    job(**given)


def life(verb: str, given: dict[str, Any], out: Path) -> None:
    """A process that does a job, or resumes it."""
    quietly(getattr(bertine, verb), out=out, resume=True, **given)


def finish(life: Life, *job: Any) -> float:
    """Do a job to its end; return its seconds."""
    began = time.monotonic()
    process = processes.forked(life, *job)
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - began


@pytest.mark.slow
def test_none_works_in_a_folder_of_another_process(
    kinds: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_folder, "_PATIENCE", 0.0)
    for verb, given in kinds.items():
        refused_while_locked(verb, tmp_path, resume=True, **given)


def refused_while_locked(verb: str, folder: Path, **given: Any) -> None:
    """Check that a job does nothing in a folder that another process has locked."""
    with (
        lock_folder(folder, ""),
        pytest.raises(BertineError, match="another process is working on this"),
    ):
        getattr(bertine, verb)(out=folder, **given)
    assert list(folder.iterdir()) == [], verb


#: How often a job is killed.
KILLS = pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(int(os.environ.get("KILLS", "20")), marks=pytest.mark.deep),
    ],
)


@KILLS
@pytest.mark.parametrize("verb", ["finetune", "search", "learning_curve", "check_labels"])
def test_kills_at_random_moments(
    verb: str, kills: int, kinds: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    kill(life, verb, kinds[verb], kills, tmp_path, results)


def kill(
    life: Life,
    verb: str,
    given: dict[str, Any],
    kills: int,
    tmp_path: Path,
    read: Callable[[Path], Any],
) -> None:
    """Kill a job so many times; check that what is resumed comes to the same."""
    draw = random.Random(f"{verb} {kills}")
    seconds = finish(life, verb, given, tmp_path / "whole")
    whole, turn, done = read(tmp_path / "whole"), 0, 0
    while done < kills:
        out = tmp_path / f"turn-{turn}"
        process = processes.forked(life, verb, given, out)
        process.join(draw.uniform(0, seconds))
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode == 0:  # it was at its end, so another one is begun
            assert read(out) == whole
            turn += 1
            seconds *= 0.9  # the first one was slower, beside other work
        else:
            assert process.exitcode == -signal.SIGKILL
            done += 1
    finish(life, verb, given, tmp_path / f"turn-{turn}")
    assert read(tmp_path / f"turn-{turn}") == whole
    assert not [path for path in tmp_path.rglob("*") if ".tmp-" in path.name]
