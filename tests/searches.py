"""Searches over the toy language: what they are given, and what they leave."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import bertine
from bertine.training.search.table import SearchResult

QUICK: dict[str, Any] = {"max_length": 24, "precision": "fp32"}
#: Four runs: two settings, two seeds.
GRID: dict[str, Any] = {
    "batch_sizes": [8],
    "learning_rates": [5e-4, 3e-3],
    "epochs": [6],
    "seeds": [0, 1],
}
NAMES = [f"batch8-lr{rate}-epochs6-seed{seed}" for rate in ("5e-4", "3e-3") for seed in (0, 1)]
WEIGHTS = Path("model") / "model.safetensors"


def searched(model: Path, data: Path, out: Path, **changes: Any) -> SearchResult:
    given: dict[str, Any] = {"task": "text", **GRID, **QUICK, **changes}
    return bertine.search(given.pop("task"), model=model, data=data, out=out, **given)


def copied(serial: tuple[Path, SearchResult], to: Path) -> Path:
    shutil.copytree(serial[0], to)
    return to


def logs(out: Path) -> dict[str, bytes]:
    """What each run logged, times and all: of a run that is not done again, the same bytes."""
    return {path.parent.name: path.read_bytes() for path in sorted(out.glob("batch*/log.jsonl"))}


def scores(result: SearchResult) -> dict[str, tuple[float | None, dict[str, float]]]:
    return {run.name: (run.score, run.metrics) for run in result.runs}
