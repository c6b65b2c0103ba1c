"""Do the runs of a search: in this process, in several processes, or over a Ray cluster.

A run is an ordinary one of fine-tuning in its own folder. ``python -m
bertine.training.search.runs`` starts a worker.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bertine.core import workers
from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.datasets.readers import DataConfig, has_validation
from bertine.reports.run_files import read_begun
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.learner import final_of, seen_of

#: A function of the number of a job and its last message: ``done``, ``error`` or ``lost``.
OnEnd = Callable[[int, dict[str, Any]], None]
Jobs = Sequence[dict[str, Any]]


def run_one(job: dict[str, Any]) -> dict[str, Any]:
    """Do a run, or resume it.

    Args:
        job: ``arguments`` of :func:`~bertine.finetune`, as JSON; ``split_seed``, the seed of the
            held-out split if the data has no validation examples and the arguments give no seed;
            ``log``, the file for the traceback of an error that is not the user's.

    Returns:
        ``done``: the results that the search keeps. Or ``error``: the failure, in one line; with
        ``mistake`` true if the run could not even begin, so that no other can.
    """
    arguments = job["arguments"]
    folder = Path(arguments["out"])
    begun = folder / "run.json"
    try:
        if "split_seed" not in arguments and not _has_validation(arguments):
            arguments = {**arguments, "split_seed": job["split_seed"]}
        # The table compares the runs; baselines would be the same for all.
        result = finetune(**arguments, baselines=False, resume=begun.exists())
        settings, _ = read_begun(begun)
        judged_on = "" if result.origin is None else result.origin.fingerprint
        return {
            "done": {
                "score": result.score,
                "metrics": result.metrics,
                "metric_names": list(result.metric_names),
                "collapsed": bool(final_of(folder).get("collapsed", False)),
                "elapsed": result.elapsed,
                "examples": f"{settings['examples_fingerprint']} {judged_on}",
                "weights": settings["weights_fingerprint"],
                "seen": seen_of(folder),
            }
        }
    except BertineError as error:
        return {"error": " ".join(str(error).split()), "mistake": not begun.exists()}
    except Exception as error:
        with os_errors(job["log"], "writing it"):
            Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
            with open(job["log"], "a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return {"error": f"{reason} (more in {job['log']})", "mistake": False}


def _has_validation(arguments: dict[str, Any]) -> bool:
    reading = DataConfig(glue_task=arguments.get("glue_task"))
    return has_validation(arguments["task"], arguments["data"], reading)


def run_quietly(line: str) -> dict[str, Any]:
    """Do the run of a line of JSON as :func:`run_one`. Its output goes to the ``log`` of the job,
    and it uses at most the given number of ``threads``."""
    job = json.loads(line)
    if job.get("threads"):
        torch.set_num_threads(job["threads"])
    with workers.stderr_to(Path(job["log"])):
        return run_one(job)


def run_here(jobs: Jobs, on_end: OnEnd) -> None:
    """Do the runs one after the other in this process."""
    for number, job in enumerate(jobs):
        logger.info(f"{Path(job['arguments']['out']).name} ({number + 1} of {len(jobs)})")
        on_end(number, run_one(job))


def run_processes(jobs: Jobs, on_end: OnEnd, processes: int, device: str | None) -> None:
    """Do the runs in several processes, which share the cores; with GPUs, each process takes its
    own.

    Args:
        jobs: of :func:`run_one`.
        on_end: called from several threads, never two at a time.
        processes: how many runs at a time.
        device: the runs' argument for the device.
    """
    gpus = _gpus() if device in (None, "cuda") else []

    def more(slot: int) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}

    workers.run_processes(
        [json.dumps(job) for job in jobs],
        ["bertine.training.search.runs"],
        on_end,
        min(processes, len(jobs)),
        more=more,
    )


def _gpus() -> list[str]:
    """List the GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return names[:count] if names else [str(number) for number in range(count)]


def run_ray(jobs: Jobs, on_end: OnEnd, address: str, processes: int | None) -> None:
    """Do the runs as tasks of a Ray cluster.

    All machines must see model, data and the folder of the search under the same paths.

    Args:
        jobs: of :func:`run_one`; paths are absolute.
        on_end: called with the last message of each.
        address: of the cluster, or ``local``.
        processes: how many runs at a time; None: one for each GPU, or without GPUs one for each
            machine.
    """
    workers.run_ray(
        [json.dumps(job) for job in jobs],
        run_on_ray,
        on_end,
        address,
        resources=lambda ray: share_of(ray.nodes(), processes),
    )


def share_of(nodes: Sequence[dict[str, Any]], runs: int | None) -> dict[str, float]:
    """Compute the share of a Ray cluster for each of `runs` simultaneous runs, as options of its
    task. It has no more cores than the smallest machine, because a task cannot span two machines.

    Args:
        nodes: the machines, from ``ray.nodes()``.
        runs: how many; None: one for each GPU, or without GPUs one for each machine.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = int(sum(node.get("GPU", 0) for node in resources))
    cores = [int(node["CPU"]) for node in resources if node.get("CPU", 0) >= 1] or [1]
    share = max(1, min(sum(cores) // (runs or gpus or len(cores)), *cores))
    return {"num_cpus": share, **({"num_gpus": 1} if gpus else {})}


def run_on_ray(line: str) -> dict[str, Any]:
    """Do a run on some machine of a Ray cluster, with as many threads as its task has cores."""
    import ray

    share = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    return run_quietly(json.dumps({**json.loads(line), "threads": max(1, int(share))}))


def _worker() -> workers.Work:
    def work(line: str, reply: workers.Say) -> None:
        reply(**run_quietly(line))

    return work


if __name__ == "__main__":
    workers.serve(_worker)
