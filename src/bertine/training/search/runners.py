"""Who does the runs of a search: this process, several processes, or a Ray cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bertine.system import workers
from bertine.training.search.run import run_one, run_quietly

#: Called with the number of a job and its last message: ``done``, ``error`` or ``lost``.
Told = Callable[[int, dict[str, Any]], None]
Jobs = Sequence[dict[str, Any]]


def run_here(jobs: Jobs, told: Told, begin: Callable[[int], None]) -> None:
    """Do the runs one after the other in this process; `begin` is called before each."""
    for number, job in enumerate(jobs):
        begin(number)
        told(number, run_one(job))


def run_processes(jobs: Jobs, told: Told, processes: int, device: str | None) -> None:
    """Do the runs in so many processes, which share the cores; where there are GPUs, each takes
    one, the next its neighbour.

    Args:
        jobs: of :func:`~bertine.training.search.run.run_one`.
        told: called from several threads, never two at a time.
        processes: how many runs at a time.
        device: that the runs are to compute on, as they are given it.
    """
    gpus = _gpus() if device in (None, "cuda") else []

    def more(slot: int) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}

    workers.run_processes(
        [json.dumps(job) for job in jobs],
        ["bertine.training.search.run"],
        told,
        min(processes, len(jobs)),
        more=more,
    )


def _gpus() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if named else [str(number) for number in range(count)]


def run_ray(jobs: Jobs, told: Told, address: str, processes: int | None) -> None:
    """Do the runs as tasks of a Ray cluster.

    All machines must see model, data and the folder of the search under the same paths.

    Args:
        jobs: of :func:`~bertine.training.search.run.run_one`; paths are absolute.
        told: called with the last message of each.
        address: of the cluster, or ``local``.
        processes: how many runs at a time; None: a run for each GPU, or without any for each
            machine.
    """
    workers.run_ray(
        [json.dumps(job) for job in jobs],
        run_on_ray,
        told,
        address,
        resources=lambda ray: share_of(ray.nodes(), processes),
    )


def share_of(nodes: Sequence[dict[str, Any]], runs: int | None) -> dict[str, float]:
    """What a run gets of a Ray cluster where so many are done at a time, as options of its task. No
    more cores than the smallest machine has, for a task does not stretch over two.

    Args:
        nodes: what ``ray.nodes()`` says of the machines.
        runs: how many; None: one for each GPU, or without any for each machine.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = int(sum(node.get("GPU", 0) for node in resources))
    cores = [int(node["CPU"]) for node in resources if node.get("CPU", 0) >= 1] or [1]
    share = max(1, min(sum(cores) // (runs or gpus or len(cores)), *cores))
    return {"num_cpus": share, **({"num_gpus": 1} if gpus else {})}


def run_on_ray(line: str) -> dict[str, Any]:
    """A run on some machine of a Ray cluster, with as many threads as its task has cores."""
    import ray

    share = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    return run_quietly(json.dumps({**json.loads(line), "threads": max(1, int(share))}))
