"""A search from end to end, one run after the other; killed and resumed."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import bertine
import processes
import tagged
import toys
from bertine.core.errors import BertineError
from bertine.training.finetuning.finetune import finetune
from bertine.training.search.table import SearchResult
from glue_files import write_glue
from searches import GRID, NAMES, QUICK, WEIGHTS, copied, logs, scores, searched
from squad_files import write_squad


@pytest.mark.takes(8)
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


def test_a_finished_search_is_not_done_again(
    serial: tuple[Path, SearchResult], model: Path, labelled: Path, tmp_path: Path
) -> None:
    out = copied(serial, tmp_path / "out")
    before = logs(out)
    with pytest.raises(BertineError, match="holds a search already; add resume=True"):
        searched(model, labelled, out)
    again = searched(model, labelled, out, resume=True)
    assert logs(out) == before
    assert scores(again) == scores(serial[1])
    assert again.lines()[:-2] == serial[1].lines()[:-2]  # but for where they are
    with pytest.raises(BertineError, match="started with max_length = 24, not 32"):
        searched(model, labelled, out, resume=True, max_length=32)
    with pytest.raises(BertineError, match="started with task = 'text', not 'regression'"):
        searched(model, labelled, out, resume=True, task="regression")
    searched(model, labelled, out, resume=True, log_every=3)


@pytest.mark.slow
def test_a_larger_grid_keeps_what_is_done(
    serial: tuple[Path, SearchResult], model: Path, labelled: Path, tmp_path: Path
) -> None:
    out = copied(serial, tmp_path / "out")
    before = logs(out)
    more = searched(model, labelled, out, resume=True, seeds=[2], learning_rates=[3e-3])
    assert [run.name for run in more.runs] == ["batch8-lr3e-3-epochs6-seed2", *NAMES]
    assert {name: log for name, log in logs(out).items() if name in before} == before
    assert (out / "model" / "model.safetensors").exists()
    kept = searched(model, labelled, out, resume=True, keep_models=True)
    assert any(note.startswith("4 runs of 5 had no weights to keep") for note in kept.notes)


@pytest.mark.slow
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
    command = ["search", "text", "--precision", "fp32"]
    for option, values in {
        **{"--model": [model], "--data": [labelled], "--out": [out], "--max-length": [24]},
        **{f"--{key.replace('_', '-')}": value for key, value in GRID.items()},
        **{"--checkpoint-every": [2], "--log-every": [1]},
    }.items():
        command += [option, *map(str, values)]
    process = processes.forked(processes.bertine, command)
    try:
        deadline = time.monotonic() + 120
        while not list((out / NAMES[1] / "checkpoints").glob("step-*")):
            assert process.is_alive(), "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
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


def test_a_split_seed_for_data_with_validation_examples(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for part in ("train", "dev"):
        toys.write_labelled(data / f"{part}.csv", rows=16)
    with pytest.raises(BertineError, match="has validation examples of its own, so that split_see"):
        searched(model, data, tmp_path / "out", split_seed=0)
    assert not (tmp_path / "out").exists()
    grid = {"learning_rates": [1e-3], "epochs": [1], "seeds": [1]}
    (done,) = searched(model, data, tmp_path / "out", **grid).runs
    assert done.failed is None
    (run,) = (tmp_path / "out").glob("batch*")
    assert "split_seed" not in json.loads((run / "run.json").read_text())["settings"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_held_out_examples_are_the_same_for_every_seed(model: Path, tmp_path: Path) -> None:
    data = toys.write_labelled(tmp_path / "all.csv", rows=48)

    def examples(run: Path) -> str:
        return str(json.loads((run / "run.json").read_text())["settings"]["examples_fingerprint"])

    searched(model, data, tmp_path / "out", learning_rates=[1e-3], epochs=[1])
    (same,) = {examples(run) for run in (tmp_path / "out").glob("batch*")}
    # A run by itself has a split of its own seed.
    alone: dict[str, Any] = {"epochs": 1, "batch_size": 8, "model": model, "data": data, **QUICK}
    finetune("text", out=tmp_path / "own", seed=1, **alone)
    finetune("text", out=tmp_path / "asked", seed=1, split_seed=0, **alone)
    assert examples(tmp_path / "own") != same == examples(tmp_path / "asked")
