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
import glue_files
import processes
import tagged
import toys
from bertine.core.errors import BertineError
from bertine.core.files import lock_folder
from bertine.training import job_folder

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


def result_of_demo(out: Path) -> dict[str, Any]:
    """Pre-training in a demo is as long as the time allows, so its numbers differ."""
    told = json.loads((out / "demo.json").read_text())
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*.json"))
    return {"finished": told["finished"], "bundled": told["bundled"], "files": names}


@pytest.fixture(scope="module")
def kinds(
    model: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The arguments of a job of each kind that takes seconds."""
    folder = tmp_path_factory.mktemp("kinds")
    rows = toys.write_labelled(folder / "few.csv", rows=60)
    (folder / "tagged").mkdir()
    for seed, (name, count) in enumerate([("train", 64), ("dev", 16)]):
        tagged.write_columns(folder / "tagged" / f"{name}.conll", count, seed=seed)
    glue_files.write_glue(folder / "data/glue", "SST-2")
    config = toys.config(intermediate_size=128, max_position_embeddings=128)
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
        "paper": {
            **{"name": "bert-5", "columns": ["SST-2"], "rows": ["mlm"], "seeds": 2, "steps": 6},
            **{"corpus": toys.write_corpus(folder / "corpus.txt", documents=60), "epochs": 1},
            **{"data": folder / "data", "vocab_size": 120},
            "model": str(toys.write_config(folder / "config.json", config)),
        },
        "feature_based": {
            **{"data": folder / "tagged", "rows": ["fine-tuning", "last", "sum-all"]},
            **{"max_length": 24, "epochs": 8, "lstm_size": 16, "finetune_epochs": 3, **common},
        },
        "run_demo": {"fast": True},
    }


def life(verb: str, given: dict[str, Any], out: Path) -> None:
    """A process that does a job, or resumes it."""
    from bertine.core.console import console

    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.stdout = console.file = open(os.devnull, "w")  # noqa: SIM115
    if verb == "run_demo":
        import dataclasses

        from bertine.demo import run

        run.FAST = dataclasses.replace(run.FAST, budget_seconds=0.0, least_seconds=1.0)
        run.run_demo(out, **given)
    else:
        getattr(bertine, verb)(out=out, resume=True, **given)


def finish(*job: Any) -> float:
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
        more = {} if verb == "run_demo" else {"resume": True}
        with (
            lock_folder(tmp_path, ""),
            pytest.raises(BertineError, match="another process is working on this"),
        ):
            getattr(bertine, verb)(out=tmp_path, **more, **given)
        assert list(tmp_path.iterdir()) == [], verb


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(int(os.environ.get("KILLS", "20")), marks=pytest.mark.deep),
    ],
)
@pytest.mark.parametrize(
    "verb",
    [
        *("finetune", "search", "learning_curve", "check_labels", "paper", "feature_based"),
        pytest.param("run_demo", marks=pytest.mark.deep),
    ],
)
def test_kills_at_random_moments(
    verb: str, kills: int, kinds: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    given, draw = kinds[verb], random.Random(f"{verb} {kills}")
    read: Callable[[Path], Any] = result_of_demo if verb == "run_demo" else results
    seconds = finish(verb, given, tmp_path / "whole")
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
        else:
            assert process.exitcode == -signal.SIGKILL
            done += 1
    finish(verb, given, tmp_path / f"turn-{turn}")
    assert read(tmp_path / f"turn-{turn}") == whole
    assert not [path for path in tmp_path.rglob("*") if ".tmp-" in path.name]
