"""Jobs of an experiment: their order, what fails, and what each gets of a machine or a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bertine.core import workers
from bertine.core.errors import BertineError
from bertine.training.experiment import Experiment, Job


def work(number: int, done: str) -> dict[str, Any]:
    """A job that notes its process, or fails."""
    if number == 2:
        raise BertineError("number 2\ncannot be")
    if number == 3:
        raise RuntimeError("broken")
    with open(done, "a") as file:
        file.write(f"{number}\n")
    return {"number": number, "process": os.getpid()}


def plan(folder: Path) -> dict[str, Job]:
    def job(number: int, *needs: str, alone: bool = False) -> Job:
        arguments = {"number": number, "done": str(folder / "done")}
        log = folder / "logs" / f"{number}.log"
        return Job("training.test_experiment:work", arguments, log, needs, alone)

    return {
        "last": job(6, "second", "first"),
        "second": job(5, "first"),
        "never": job(4, "wrong", "first"),
        "nor this": job(8, "never"),
        "wrong": job(2),
        "broken": job(3),
        "timed": job(7, alone=True),
        "first": job(1),
    }


@pytest.mark.parametrize("processes", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_jobs_are_done_in_the_order_of_their_needs(
    processes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    ended: dict[str, dict[str, Any]] = {}
    Experiment(processes).run(plan(tmp_path), ended.__setitem__)
    done = {name: message["done"]["number"] for name, message in ended.items() if "done" in message}
    assert done == {"first": 1, "second": 5, "last": 6, "timed": 7}
    lines = (tmp_path / "done").read_text().split()
    assert [number for number in lines if number in "156"] == ["1", "5", "6"]
    assert ended["wrong"] == {"error": "number 2 cannot be", "mistake": True}
    log = tmp_path / "logs/3.log"
    assert ended["broken"] == {"error": f"RuntimeError: broken (more in {log})", "mistake": False}
    assert "Traceback" in log.read_text()
    assert ended["never"]["error"] == "needs wrong, which failed"
    assert ended["nor this"]["error"] == "needs never, which failed"
    # What measures time is done here, after the others of its turn.
    assert ended["timed"]["done"]["process"] == os.getpid()
    assert (ended["first"]["done"]["process"] == os.getpid()) == (processes is None)


def test_each_process_takes_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[dict[str, str]] = []

    def run(jobs: Any, program: Any, told: Any, processes: int, *, more: Any) -> None:
        given.extend(more(slot) for slot in range(processes))

    monkeypatch.setattr(workers, "run_processes", run)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = {str(number): Job("", {}, tmp_path) for number in range(4)}
    Experiment(3).run(jobs, lambda *_: None)
    assert [entry["CUDA_VISIBLE_DEVICES"] for entry in given] == ["0", "1", "0"]
    given.clear()
    Experiment(3, device="cpu").run(jobs, lambda *_: None)
    assert given == [{}, {}, {}]


@pytest.mark.parametrize(
    ("machines", "runs", "share"),
    [
        ([{"CPU": 8.0}], None, {"num_cpus": 8}),
        ([{"CPU": 8.0}], 3, {"num_cpus": 2}),
        ([{"CPU": 8.0}, {"CPU": 4.0}], None, {"num_cpus": 4}),  # fits on either
        ([{"CPU": 8.0}, {"CPU": 8.0}], 1, {"num_cpus": 8}),
        ([{"CPU": 2.0}], 5, {"num_cpus": 1}),
        ([{"CPU": 16.0, "GPU": 4.0}], None, {"num_cpus": 4, "num_gpus": 1}),
        ([{}, {"CPU": 6.0}], None, {"num_cpus": 6}),  # a head that works on nothing
    ],
)
def test_what_a_job_gets_of_a_cluster(
    machines: list[dict[str, float]], runs: int | None, share: dict[str, float]
) -> None:
    nodes = [{"Alive": True, "Resources": machine} for machine in machines]
    dead = {"Alive": False, "Resources": {"CPU": 1.0}}
    assert Experiment(runs, "local").share([*nodes, dead]) == share


def test_a_cluster_is_asked_for_jobs_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Jobs that wait for others, or for an empty machine, start no cluster for nothing."""
    asked: list[int] = []

    def run(lines: Sequence[str], do: Any, on_end: Any, *more: Any, **others: Any) -> None:
        asked.append(len(lines))
        for number in range(len(lines)):
            on_end(number, {"error": "it failed", "mistake": True})

    monkeypatch.setattr(workers, "run_ray", run)
    jobs = {
        "first": Job("json:dumps", {"obj": 1}, tmp_path / "log"),
        "alone": Job("json:dumps", {"obj": 1}, tmp_path / "log", alone=True),
        "last": Job("json:dumps", {"obj": 1}, tmp_path / "log", needs=("first", "alone")),
    }
    ends: dict[str, dict[str, Any]] = {}
    Experiment(ray="local").run(jobs, ends.__setitem__)
    assert asked == [1]
    assert ends["alone"] == {"done": "1"}
    assert ends["last"]["error"] == "needs first, which failed"


def test_jobs_that_need_each_other_are_refused(tmp_path: Path) -> None:
    job = Job("json:dumps", {"obj": 1}, tmp_path / "log", needs=("it",))
    with pytest.raises(ValueError, match="jobs that need each other: it"):
        Experiment().run({"it": job}, dict[str, Any]().__setitem__)
