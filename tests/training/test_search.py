"""A search from end to end: one run after the other, in processes, over Ray, with the same scores;
killed and gone on with; failures, collapses and mistakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import tagged
import toys
from bertine import workers
from bertine.cli import main
from bertine.errors import BertineError
from bertine.tasks.labelled import read_labelled
from bertine.training import search_run, search_runners
from bertine.training.finetune import finetune
from bertine.training.search_table import SearchResult
from glue_files import write_glue
from squad_files import write_squad

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


@pytest.fixture(scope="module")
def serial(
    model: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, SearchResult]:
    """The folder of a search, one run after the other, and what it found."""
    out = tmp_path_factory.mktemp("search") / "out"
    return out, searched(model, labelled, out)


def copied(serial: tuple[Path, SearchResult], to: Path) -> Path:
    shutil.copytree(serial[0], to)
    return to


def logs(out: Path) -> dict[str, bytes]:
    """What each run logged, times and all: of a run that is not done again, the same bytes."""
    return {path.parent.name: path.read_bytes() for path in sorted(out.glob("batch*/log.jsonl"))}


def scores(result: SearchResult) -> dict[str, tuple[float | None, dict[str, float]]]:
    return {run.name: (run.score, run.metrics) for run in result.runs}


def test_every_run_is_an_ordinary_one_and_in_the_table(
    serial: tuple[Path, SearchResult], model: Path, labelled: Path, tmp_path: Path
) -> None:
    out, result = serial
    assert [run.name for run in result.runs] == NAMES
    alone = finetune(
        "text",
        model=model,
        data=labelled,
        out=tmp_path / "alone",
        **{"batch_size": 8, "learning_rate": 3e-3, "epochs": 6, "seed": 1, **QUICK},
    )
    assert scores(result)[NAMES[3]] == (alone.score, alone.metrics)
    for name, (score, metrics) in scores(result).items():
        final = json.loads((out / name / "scores.json").read_text())["final"]
        assert final["metrics"] == metrics
        assert score == metrics["accuracy"]
        bertine.report(out / name, out=tmp_path / "page.html")
    table = json.loads((out / "search.json").read_text())
    assert len(table["table"]) == 2
    assert [row["mean"] for row in table["table"]] == sorted(
        (row["mean"] for row in table["table"]), reverse=True
    )
    assert "<svg" in (out / "search.html").read_text(encoding="utf-8")
    assert result.lines()[1].split()[:3] == ["batch", "rate", "epochs"]


def test_the_model_is_that_of_the_best_run(
    serial: tuple[Path, SearchResult], labelled: Path
) -> None:
    out, result = serial
    best = result.best
    assert best is not None
    assert result.chosen is not None
    assert result.chosen.mean == max(row.mean or 0.0 for row in result.rows)
    assert best.score == max(run.score or 0.0 for run in result.chosen.runs)
    report = bertine.evaluate(out, labelled / "dev.csv", precision="fp32")
    assert report.metrics["accuracy"] == pytest.approx(best.score)
    info = json.loads((out / "model" / "bertine.json").read_text())
    assert info["training"]["search"]["run"] == best.name
    assert "judge the model on others" in info["training"]["search"]["chosen_on"]
    assert "judge it on others" in "\n".join(result.lines())
    # Of the others scores and logs are kept, but not the weights.
    kept = {name for name in NAMES if (out / name / WEIGHTS).exists()}
    assert kept == {best.name}
    weights = toys.weights(out / best.name / "model")
    assert all(
        torch.equal(weights[key], value) for key, value in toys.weights(result.model).items()
    )
    assert not list(out.rglob("checkpoints"))


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


def test_a_finished_search_is_not_done_again(
    serial: tuple[Path, SearchResult], model: Path, labelled: Path, tmp_path: Path
) -> None:
    out = copied(serial, tmp_path / "out")
    before = logs(out)
    with pytest.raises(BertineError, match="holds a search already; add --resume"):
        searched(model, labelled, out)
    again = searched(model, labelled, out, resume=True)
    assert logs(out) == before
    assert scores(again) == scores(serial[1])
    assert again.lines()[:-2] == serial[1].lines()[:-2]  # but for where they are
    with pytest.raises(BertineError, match="begun with max_length = 24, not 32"):
        searched(model, labelled, out, resume=True, max_length=32)
    with pytest.raises(BertineError, match="begun with task = 'text', not 'regression'"):
        searched(model, labelled, out, resume=True, task="regression")
    searched(model, labelled, out, resume=True, log_every=3)


def test_a_larger_grid_keeps_what_is_done(
    serial: tuple[Path, SearchResult], model: Path, labelled: Path, tmp_path: Path
) -> None:
    out = copied(serial, tmp_path / "out")
    before = logs(out)
    more = searched(model, labelled, out, resume=True, seeds=[2], learning_rates=[3e-3])
    assert [run.name for run in more.runs] == ["batch8-lr3e-3-epochs6-seed2", *NAMES]
    assert {name: log for name, log in logs(out).items() if name in before} == before
    assert (out / "model" / "model.safetensors").exists()


def test_weights_that_are_wanted_again_are_made_again(
    serial: tuple[Path, SearchResult],
    model: Path,
    labelled: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = copied(serial, tmp_path / "out")
    best = serial[1].best
    assert best is not None
    (out / best.name / WEIGHTS).unlink()
    shutil.rmtree(out / "model")
    again = searched(model, labelled, out, resume=True)
    assert f"{best.name}: its weights are gone" in " ".join(capsys.readouterr().err.split())
    assert scores(again) == scores(serial[1])
    ours, theirs = toys.weights(out / "model"), toys.weights(serial[0] / "model")
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.slow
def test_a_killed_search_goes_on(
    serial: tuple[Path, SearchResult], model: Path, labelled: Path, tmp_path: Path
) -> None:
    """Killed while its second run is between two epochs: the first is not done again, the second
    goes on from its checkpoint, the others are done; the result is that of an undisturbed one."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bertine", "search", "text", "--precision", "fp32"]
    for option, values in {
        **{"--model": [model], "--data": [labelled], "--out": [out], "--max-length": [24]},
        **{f"--{key.replace('_', '-')}": value for key, value in GRID.items()},
        **{"--checkpoint-every": [2], "--log-every": [1]},
    }.items():
        command += [option, *map(str, values)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        deadline = time.monotonic() + 120
        while not list((out / NAMES[1] / "checkpoints").glob("step-*")):
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert [run["seed"] for run in json.loads((out / "search.json").read_text())["runs"]] == [0]
    first, begun = logs(out)[NAMES[0]], logs(out)[NAMES[1]].splitlines()
    again = searched(model, labelled, out, resume=True)
    assert logs(out)[NAMES[0]] == first
    # Its clock and all: what had been done was not done again.
    assert logs(out)[NAMES[1]].splitlines()[0] == begun[0]
    assert scores(again) == scores(serial[1])
    assert again.model is not None
    ours, theirs = toys.weights(again.model), toys.weights(serial[0] / "model")
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def broken(monkeypatch: pytest.MonkeyPatch, seed: int, error: Exception) -> None:
    """Let the runs with `seed` fail after their first steps were logged."""

    def failing(*args: Any, **given: Any) -> Any:
        if given["seed"] == seed:
            folder = Path(given["out"])
            folder.mkdir(parents=True)
            (folder / "run.json").write_text("{}")
            raise error
        return finetune(*args, **given)

    monkeypatch.setattr(search_run, "finetune", failing)


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


def test_a_search_in_which_all_collapse_has_no_choice(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_glue(tmp_path / "data", "CoLA")
    train = data / "CoLA" / "train.tsv"
    train.write_text(train.read_text().replace("\t0\t", "\t1\t"))  # nothing but 1 to learn
    out = tmp_path / "out"
    words = ["search", "glue", "--task", "CoLA", "--model", str(model), "--data", str(data)]
    words += ["--out", str(out), "--batch-sizes", "8", "--learning-rates", "5e-3", "--epochs", "3"]
    assert main([*words, "--restarts", "2", "--max-length", "32"]) == 1
    text = capsys.readouterr().out
    for seed in (0, 1):
        name = f"batch8-lr5e-3-epochs3-seed{seed}"
        assert f"collapsed to one answer, left out: {name}" in text
        assert not (out / name / WEIGHTS).exists()
    assert "nothing to choose from" in text
    assert not (out / "model").exists()
    assert json.loads((out / "search.json").read_text())["chosen"] is None


def test_a_collapsed_run_is_left_out(model: Path, labelled: Path, tmp_path: Path) -> None:
    """So small a rate learns nothing in 60 steps."""
    grid = {"learning_rates": [1e-6, 3e-3], "epochs": [4], "seeds": [0]}
    found = searched(model, labelled, tmp_path / "out", **grid)
    assert [run.collapsed for run in found.runs] == [True, False]
    assert found.best == found.runs[1]
    lines = found.lines()
    assert lines[3].split() == ["8", "1e-6", "4", "1", "-", "-", "-", "1"]
    assert "collapsed to one answer, left out: batch8-lr1e-6-epochs4-seed0" in lines
    assert not (tmp_path / "out" / found.runs[0].name / WEIGHTS).exists()


def test_held_out_examples_are_the_same_for_every_seed(model: Path, tmp_path: Path) -> None:
    data = toys.write_labelled(tmp_path / "all.csv", rows=48)

    def examples(run: Path) -> str:
        found = json.loads((run / "run.json").read_text())["settings"]["examples_fingerprint"]
        return str(found)

    grid = {"learning_rates": [1e-3], "epochs": [1]}
    searched(model, data, tmp_path / "out", **grid)
    searched_on = {examples(run) for run in (tmp_path / "out").glob("batch*")}
    assert len(searched_on) == 1
    # A run by itself has a split of its own seed.
    alone: dict[str, Any] = {"epochs": 1, "batch_size": 8, "model": model, "data": data, **QUICK}
    for seed in (0, 1):
        finetune("text", out=tmp_path / str(seed), seed=seed, **alone)
    assert examples(tmp_path / "0") != examples(tmp_path / "1")
    finetune("text", out=tmp_path / "same", seed=1, split_seed=0, **alone)
    assert {examples(tmp_path / "same")} == searched_on


def test_other_examples_are_not_compared(
    serial: tuple[Path, SearchResult], model: Path, tmp_path: Path
) -> None:
    out = copied(serial, tmp_path / "out")
    other = tmp_path / "other"
    other.mkdir()
    toys.write_labelled(other / "train.csv", rows=120)
    toys.write_labelled(other / "dev.csv", rows=40, seed=2)
    with pytest.raises(BertineError, match=r"the examples of .* are not the same"):
        searched(model, other, out, resume=True, seeds=[0, 1, 2])


def test_every_kind_of_task(model: Path, tmp_path: Path) -> None:
    glue = write_glue(tmp_path / "glue", "RTE", "STS-B")
    (tmp_path / "tagged").mkdir()
    tagged.write_columns(tmp_path / "tagged" / "train.conll", 32)
    tagged.write_columns(tmp_path / "tagged" / "dev.conll", 12, seed=1)
    squad = write_squad(tmp_path / "squad", v2=True, articles=8, dev=4)
    spans = {"doc_stride": 8, "max_question_length": 8}
    cases: list[tuple[str, Path, dict[str, Any], set[str]]] = [
        ("glue", glue, {"glue_task": "RTE"}, {"accuracy"}),
        ("glue", glue, {"glue_task": "STS-B"}, {"pearson", "spearman"}),
        ("tagging", tmp_path / "tagged", {}, {"f1"}),
        ("squad", squad, spans, {"f1"}),
    ]
    for number, (task, data, options, judged) in enumerate(cases):
        found = searched(
            *(model, data, tmp_path / f"out{number}"),
            **{"task": task, "learning_rates": 3e-3, "epochs": 1, "seeds": [0, 1], **options},
            keep_models=True,
        )
        assert set(found.metric_names) == judged
        assert [run.failed for run in found.runs] == [None, None]
        for run in found.runs:
            assert (found.out / run.name / WEIGHTS).exists()
            mean = sum(run.metrics[name] for name in judged) / len(judged)
            assert run.score == pytest.approx(mean)


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
        ({"batch_sizes": [0]}, "batch_sizes: 0 cannot be"),
        ({"processes": 0}, "processes is 0"),
        ({"task": "glue", "glue_task": "ALL"}, "one task of GLUE"),
    ):
        with pytest.raises(BertineError, match=said):
            searched(model, labelled, out, **changes)
    in_memory: Any = read_labelled("text", labelled, seed=0)
    with pytest.raises(BertineError, match="give it a file or a folder"):
        searched(model, in_memory, out)
    with pytest.raises(TypeError, match="learning_rate'"):
        searched(model, labelled, out, learning_rate=1e-3)
    assert not out.exists()
    for folder, said in (
        (serial[0] / NAMES[0], "holds a run; choose another folder"),
        (model, "is not empty and holds no search"),
        (labelled / "dev.csv", "is a file"),
    ):
        before = toys.tree(folder) if folder.is_dir() else {}
        with pytest.raises(BertineError, match=said):
            searched(model, labelled, folder, resume=True)
        assert (toys.tree(folder) if folder.is_dir() else {}) == before
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "search.json").write_text('{"settings": []}')
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


def test_two_searches_do_not_mix(
    model: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def second(job: dict[str, Any]) -> dict[str, Any]:
        with pytest.raises(BertineError, match="being searched by another process"):
            searched(model, labelled, tmp_path / "out", resume=True)
        seen.append(job["arguments"]["out"])
        return {"error": "enough", "mistake": True}

    monkeypatch.setattr(search_runners, "run_one", second)
    with pytest.raises(BertineError, match="enough"):
        searched(model, labelled, tmp_path / "out")
    assert len(seen) == 1


def test_each_process_takes_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []

    def run(jobs: Any, program: Any, told: Any, processes: int, *, more: Any) -> None:
        given.extend(more(slot) for slot in range(processes))

    monkeypatch.setattr(workers, "run_processes", run)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs: list[dict[str, Any]] = [{}] * 4
    search_runners.run_processes(jobs, lambda *_: None, 3, None)
    assert [entry["CUDA_VISIBLE_DEVICES"] for entry in given] == ["0", "1", "0"]
    given.clear()
    search_runners.run_processes(jobs, lambda *_: None, 3, "cpu")
    assert given == [{}, {}, {}]


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
    with pytest.raises(BertineError, match=r"pip install 'bertine\[ray\]'"):
        searched(model, labelled, tmp_path / "out", ray="local")
    assert not (tmp_path / "out").exists()
