"""Searches in which runs fail, collapse or cannot be compared; mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bertine.cli import main
from bertine.core import workers
from bertine.core.errors import BertineError
from bertine.datasets.readers import read_labelled
from bertine.training.finetuning.finetune import finetune
from bertine.training.search import search as runs
from bertine.training.search.table import SearchResult
from searches import NAMES, WEIGHTS, searched


def broken(monkeypatch: pytest.MonkeyPatch, seed: int, error: Exception) -> None:
    """Let the runs with `seed` fail after their first steps were logged."""

    def failing(*args: Any, **given: Any) -> Any:
        if given["seed"] == seed:
            folder = Path(given["out"])
            folder.mkdir(parents=True)
            (folder / "run.json").write_text("{}")
            raise error
        return finetune(*args, **given)

    monkeypatch.setattr(runs, "finetune", failing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BertineError("step 3: the gradient is not finite"), "step 3: the gradient is not finite"),
        (RuntimeError("no\nmemory"), "RuntimeError: no memory (more in"),
    ],
)
def test_a_run_that_fails_does_not_stop_the_others(
    error: Exception,
    said: str,
    model: Path,
    labelled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    words = ["search", "text", "--model", str(model), "--data", str(labelled), "--out", str(out)]
    words += ["--batch-sizes", "8", "--learning-rates", "3e-3", "--epochs", "4", "--restarts", "2"]
    words += ["--max-length", "24", "--precision", "fp32"]
    with monkeypatch.context() as patched:
        broken(patched, 0, error)
        assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("failed: ")]
    assert len(failed) == 1
    assert failed[0].startswith(f"failed: batch8-lr3e-3-epochs4-seed0: {said}")
    assert (out / "model" / "model.safetensors").exists()
    log = out / "logs" / "batch8-lr3e-3-epochs4-seed0.log"
    assert log.exists() == isinstance(error, RuntimeError)
    if log.exists():
        assert "Traceback" in log.read_text()
    # What failed is tried again.
    shutil.rmtree(out / "batch8-lr3e-3-epochs4-seed0")
    assert main([*words, "--resume"]) == 0
    assert "failed" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("processes", [None, 2])
def test_a_mistake_in_the_data_is_one_line_and_leaves_nothing(
    processes: int | None,
    model: Path,
    labelled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    out = tmp_path / "out"
    given = {"text_columns": "txt", "processes": processes}
    with pytest.raises(BertineError, match="'txt'") as error:
        searched(model, labelled, out, **given)
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_mistakes(
    serial: tuple[Path, SearchResult],
    model: Path,
    labelled: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    for changes, said in (
        ({"learning_rates": []}, "learning_rates is an empty list"),
        ({"batch_sizes": [0]}, "batch_sizes is 0, but must be at least 1"),
        ({"processes": 0}, "processes is 0"),
        ({"task": "glue", "glue_task": "ALL"}, "one task of GLUE"),
        ({"task": "glue"}, "one task of GLUE"),
    ):
        with pytest.raises(BertineError, match=said):
            searched(model, labelled, out, **changes)
    in_memory: Any = read_labelled("text", labelled)
    with pytest.raises(BertineError, match="give it a path or a table"):
        searched(model, in_memory, out)
    with pytest.raises(TypeError, match="learning_rate'"):
        searched(model, labelled, out, learning_rate=1e-3)
    assert not out.exists()
    with pytest.raises(BertineError, match="is not empty and holds no search"):
        searched(model, labelled, serial[0] / NAMES[0], resume=True)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    table = json.loads((serial[0] / "search.json").read_text())
    run = {**table["runs"][0], "seed": float("inf")}
    for listed in ([1], [run], [{**run, "seed": 1.5}]):
        (damaged / "search.json").write_text(json.dumps({**table, "runs": listed}))
        with pytest.raises(BertineError, match=r"search\.json: damaged"):
            searched(model, labelled, damaged, resume=True)
    words = ["search", "text", "--model", str(model), "--data", str(labelled), "--out", str(out)]
    for wrong, message in (
        (["--batch-sizes", "16", "abc"], "'abc' is not a whole number"),
        (["--seeds"], "expected at least one argument"),
        (["--learning-rate", "3e-5"], "did you mean '--learning-rates'"),
        (["--epochs", "3", "--epochs", "0"], "0 is below 1"),
    ):
        assert main([*words, *wrong]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()


@pytest.mark.slow
def test_a_collapsed_run_is_left_out(model: Path, labelled: Path, tmp_path: Path) -> None:
    """So small a rate learns nothing in 60 steps."""
    grid = {"learning_rates": [1e-6, 3e-3], "epochs": [4], "seeds": [0]}
    found = searched(model, labelled, tmp_path / "out", **grid)
    assert [run.collapsed for run in found.runs] == [True, False]
    assert found.best == found.runs[1]
    assert not (tmp_path / "out" / found.runs[0].name / WEIGHTS).exists()
