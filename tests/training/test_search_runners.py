"""Runs of a search in processes and over Ray: the same scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bertine.core import workers
from bertine.core.errors import BertineError
from bertine.training.search.table import SearchResult
from searches import GRID, NAMES, QUICK, WEIGHTS, scores, searched


@pytest.mark.slow  # each process imports PyTorch
def test_processes_find_the_same(
    serial: tuple[Path, SearchResult],
    model: Path,
    labelled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)  # a thread for each
    result = searched(model, labelled, tmp_path / "out", processes=2)
    assert scores(result) == scores(serial[1])
    assert result.best is not None
    assert result.best.name == serial[1].best.name  # type: ignore[union-attr]
    kept = {name for name in NAMES if (tmp_path / "out" / name / WEIGHTS).exists()}
    assert kept == {result.best.name}
    said = " ".join(capsys.readouterr().err.split())
    for name in NAMES:
        assert f"{name}: " in said
        # What the runs print is kept apart.
        assert "training and" in (tmp_path / "out" / "logs" / f"{name}.log").read_text()
    assert "training and" not in said


@pytest.mark.slow  # Ray starts half a dozen processes
def test_ray_finds_the_same(
    serial: tuple[Path, SearchResult], model: Path, labelled: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    program = (
        "import json, sys, bertine\n"
        "given = json.loads(sys.argv[1])\n"
        "bertine.search('text', ray='local', **given)"
    )
    grid = {**GRID, "learning_rates": [3e-3]}
    given = {"model": model, "data": labelled, "out": tmp_path / "out", **grid, **QUICK}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(given, default=str)],
        capture_output=True,
        text=True,
        env=workers.environment(1),
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "out" / "search.json").read_text())
    expected = {run.name: run.score for run in serial[1].runs if run.name in NAMES[2:]}
    found = {f"batch8-lr3e-3-epochs6-seed{run['seed']}": run["score"] for run in table["runs"]}
    assert found == pytest.approx(expected)
    assert table["best_run"] in expected
    assert (tmp_path / "out" / "model" / "model.safetensors").exists()


def test_no_ray_is_one_line(
    model: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BertineError, match="pip install ray"):
        searched(model, labelled, tmp_path / "out", ray="local")
    assert not (tmp_path / "out").exists()
