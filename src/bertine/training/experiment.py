"""Do the jobs of an experiment: in this process, in several processes, or over a Ray cluster.

``python -m bertine.training.experiment`` starts a worker.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertine.core import workers
from bertine.core.console import logger, progress
from bertine.core.errors import BertineError
from bertine.core.files import os_errors
from bertine.core.names import implementation

#: Called with the name of a job and its last message: ``done`` with the result; ``error`` with the
#: reason in one line, and ``mistake``, whether it is the user's; or ``lost``. Never two at a time.
OnEnd = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """A job of an experiment.

    Attributes:
        work: the function that does it, as ``module:name``; it returns JSON values.
        arguments: of the function, as JSON values.
        log: the file for the output of another process, and for the traceback of an error that is
            not the user's.
        needs: the names of jobs that must be done before.
        alone: whether no other job may run at the same time, because it measures time.
    """

    work: str
    arguments: Mapping[str, Any]
    log: Path | str
    needs: Sequence[str] = ()
    alone: bool = False

    def line(self) -> str:
        """Write the job as a line of JSON, for :func:`do_job`."""
        return json.dumps({"work": self.work, "arguments": self.arguments, "log": str(self.log)})


@dataclass(frozen=True)
class Experiment:
    """Where the jobs of an experiment are done.

    Attributes:
        processes: how many jobs at a time; None: one, or over Ray one for each GPU, or without GPUs
            one for each machine. Processes share the cores; with GPUs, each takes its own.
        ray: the address of a Ray cluster, or ``local``; None: this machine. All machines must see
            the paths of the jobs.
        device: that the jobs compute on; None: a GPU if there is one.
        cores: of a job over Ray; None: a share of the cluster.
    """

    processes: int | None = None
    ray: str | None = None
    device: str | None = None
    cores: int | None = None

    @property
    def here(self) -> bool:
        """Whether all jobs are done in this process."""
        return self.ray is None and (self.processes or 1) == 1

    def run(self, jobs: Mapping[str, Job], on_end: OnEnd) -> None:
        """Do `jobs`, those that others need first. A job whose need failed is an ``error``."""
        waiting, failed = dict(jobs), set[str]()

        def end(name: str, message: dict[str, Any]) -> None:
            if "done" not in message:
                failed.add(name)
            on_end(name, message)

        while waiting:
            ready = {
                name: job for name, job in waiting.items() if waiting.keys().isdisjoint(job.needs)
            }
            if not ready:
                raise ValueError(f"jobs that need each other: {', '.join(waiting)}")
            for name in ready:
                missing = failed.intersection(waiting.pop(name).needs)
                if missing:
                    end(name, {"error": f"needs {min(missing)}, which failed", "mistake": False})
            able = {name: job for name, job in ready.items() if name not in failed}
            self._run({name: job for name, job in able.items() if not job.alone}, end)
            _run_here({name: job for name, job in able.items() if job.alone}, end)

    def _run(self, jobs: Mapping[str, Job], on_end: OnEnd) -> None:
        """Do jobs that do not need each other."""
        if not jobs:
            return
        if self.here or (self.ray is None and len(jobs) < 2):
            _run_here(jobs, on_end)
            return
        names, lines = list(jobs), [job.line() for job in jobs.values()]
        with progress() as bar:
            task = bar.add_task("jobs", total=len(jobs))

            def receive(number: int, message: dict[str, Any]) -> None:
                bar.advance(task)
                on_end(names[number], message)

            if self.ray is not None:

                def resources(ray: Any) -> dict[str, float]:
                    return self.share(ray.nodes())

                workers.run_ray(lines, _do_on_ray, receive, self.ray, resources=resources)
                return
            gpus = _gpus() if self.device in (None, "cuda") else []
            workers.run_processes(
                lines,
                ["bertine.training.experiment"],
                receive,
                min(self.processes or 1, len(jobs)),
                more=lambda slot: {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {},
            )

    def share(self, nodes: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Return the needs of a job on the machines of ``ray.nodes()``, as options of a Ray task:
        no more cores than the smallest machine has, because a task cannot span two."""
        if self.cores is not None:
            return {"num_cpus": self.cores}
        resources = [node["Resources"] for node in nodes if node["Alive"]]
        gpus = int(sum(node.get("GPU", 0) for node in resources))
        cores = [int(node["CPU"]) for node in resources if node.get("CPU", 0) >= 1] or [1]
        share = max(1, min(sum(cores) // (self.processes or gpus or len(cores)), *cores))
        return {"num_cpus": share, **({"num_gpus": 1} if gpus else {})}


def _run_here(jobs: Mapping[str, Job], on_end: OnEnd) -> None:
    for number, (name, job) in enumerate(jobs.items(), 1):
        logger.info(f"{name} ({number} of {len(jobs)})")
        on_end(name, do_job(job.line()))


def _gpus() -> list[str]:
    """List the GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return names[:count] if names else [str(number) for number in range(count)]


def do_job(line: str) -> dict[str, Any]:
    """Do the job of a line of JSON, and return its last message."""
    job = json.loads(line)
    try:
        return {"done": implementation(job["work"])(**job["arguments"])}
    except BertineError as error:
        return {"error": " ".join(str(error).split()), "mistake": True}
    except Exception as error:
        with os_errors(job["log"], "writing it"):
            Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
            with open(job["log"], "a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return {"error": f"{reason} (more in {job['log']})", "mistake": False}


def _do_quietly(line: str) -> dict[str, Any]:
    """Do a job; its output goes to its log."""
    with workers.stderr_to(Path(json.loads(line)["log"])):
        return do_job(line)


def _do_on_ray(line: str) -> dict[str, Any]:
    """Do a job on some machine of a Ray cluster, with as many threads as its task has cores."""
    import ray

    share = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    torch.set_num_threads(max(1, int(share)))
    return _do_quietly(line)


def _worker() -> workers.Work:
    return lambda line, reply: reply(**_do_quietly(line))


if __name__ == "__main__":
    workers.serve(_worker)
