"""``kill -9`` at random moments in the folders of contrib's jobs."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import glue_files
import tagged
import toys
from bertine.training import job_folder
from training.test_kill_folders import KILLS, kill, life, quietly, refused_while_locked, results


def result_of_demo(out: Path) -> dict[str, Any]:
    """Pre-training in a demo is as long as the time allows, so its numbers differ."""
    told = json.loads((out / "demo.json").read_text())
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*.json"))
    return {"finished": told["finished"], "bundled": told["bundled"], "files": names}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The arguments of a job of each kind that takes seconds."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "tagged").mkdir()
    for seed, (name, count) in enumerate([("train", 64), ("dev", 16)]):
        tagged.write_columns(folder / "tagged" / f"{name}.conll", count, seed=seed)
    glue_files.write_glue(folder / "data/glue", "SST-2")
    config = toys.config(intermediate_size=128, max_position_embeddings=128)
    return {
        "paper": {
            **{"name": "bert-5", "columns": ["SST-2"], "rows": ["mlm"], "seeds": 2, "steps": 6},
            **{"corpus": toys.write_corpus(folder / "corpus.txt", documents=60), "epochs": 1},
            **{"data": folder / "data", "vocab_size": 120},
            "model": str(toys.write_config(folder / "config.json", config)),
        },
        "feature_based": {
            **{"data": folder / "tagged", "rows": ["fine-tuning", "last", "sum-all"]},
            **{"max_length": 24, "epochs": 8, "lstm_size": 16, "finetune_epochs": 3},
            **{"model": toys.write_model(folder / "model"), "precision": "fp32"},
        },
    }


def life_of_demo(verb: str, given: dict[str, Any], out: Path) -> None:
    """A process that runs a short demo, or goes on with it. Its precision is not measured, as the
    faster one depends on what else the machine does."""
    from bertine.contrib.demo import run

    run.FAST = dataclasses.replace(run.FAST, budget_seconds=0.0, least_seconds=1.0)
    run.finetune = partial(run.finetune, precision="fp32")
    run.Predictor = SimpleNamespace(load=partial(run.Predictor.load, precision="fp32"))
    quietly(run.run_demo, out=out, fast=True)


@pytest.mark.slow
def test_none_works_in_a_folder_of_another_process(
    kinds: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_folder, "_PATIENCE", 0.0)
    for verb, given in kinds.items():
        refused_while_locked(verb, tmp_path, resume=True, **given)
    refused_while_locked("run_demo", tmp_path, fast=True)


@KILLS
@pytest.mark.parametrize("verb", ["paper", "feature_based"])
def test_kills_at_random_moments(
    verb: str, kills: int, kinds: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    kill(life, verb, kinds[verb], kills, tmp_path, results)


@KILLS
@pytest.mark.deep
def test_kills_of_a_demo(kills: int, tmp_path: Path) -> None:
    kill(life_of_demo, "run_demo", {}, kills, tmp_path, result_of_demo)
