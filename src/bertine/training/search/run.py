"""One run of a search, wherever it is done: an ordinary fine-tuning run in a folder of its own, and
what the search keeps of it. ``python -m bertine.training.search.run`` is a worker that does them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertine.datasets.labelled import Reading, has_validation
from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.runs.files import read_begun
from bertine.system.workers import Say, Work, serve
from bertine.training.finetuning.finetune import finetune
from bertine.training.finetuning.result import final_of


def run_one(job: dict[str, Any]) -> dict[str, Any]:
    """Do a run, or go on with it where it stopped.

    Args:
        job: ``arguments`` of :func:`~bertine.finetune`, as JSON; ``split_seed``,
            by which validation examples are held out where the data has none and the arguments say
            nothing; ``log``, the file for the traceback of an error that is not the user's.

    Returns:
        ``done``: what the search keeps. Or ``error``: what went wrong, in one line; with
        ``mistake`` true where the run could not even begin, so that no other can.
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
    reading = Reading(glue_task=arguments.get("glue_task"))
    return has_validation(arguments["task"], arguments["data"], reading)


def run_quietly(line: str) -> dict[str, Any]:
    """:func:`run_one` of a line of JSON; what the run prints goes to the ``log`` of the job, and
    it uses no more than its ``threads``, where they are given."""
    job = json.loads(line)
    if job.get("threads"):
        import torch

        torch.set_num_threads(job["threads"])
    with _stderr_to(Path(job["log"])):
        return run_one(job)


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Have all that this process writes to stderr at the end of the file `path`."""
    with os_errors(path, "writing it"):
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    before = os.dup(2)
    try:
        sys.stderr.flush()
        os.dup2(log, 2)
        yield
        sys.stderr.flush()
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(log)


def _worker() -> Work:
    def work(line: str, say: Say) -> None:
        say(**run_quietly(line))

    return work


if __name__ == "__main__":
    serve(_worker)
