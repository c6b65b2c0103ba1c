"""The jobs of the story, done in processes of one thread: training a system in its time, and
scoring it. ``python -m story_jobs`` is a worker."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from story_data import ENTITIES, PAIRS
from story_looks import look_at
from systems import BY_NAME, Material, System

from bertine.core import workers
from bertine.core.errors import BertineError
from bertine.core.files import read_json_object, write_json
from bertine.reports.run_files import read_log
from bertine.training.checkpoint import checkpoints, stop_when

#: Amounts of training that are tried to know what one takes. The first is not counted: a process's
#: first run pays for what is loaded and made once, which would pass for a run's own beginning and
#: leave too little for its updates.
_TRIED = {"update": (1, 2, 12), "epoch": (1, 1, 2)}
#: More passes teach no more.
_MOST = {"update": 1_000_000, "epoch": 50}
#: A run that takes so many times its time is ended.
_MOST_TIME = 1.1
#: More updates than any run has: it leaves no checkpoint.
_NEVER = 10**9
#: Bytes of text that a pass is tried on.
_TRIED_TEXT = 1 << 20
#: Options of fine-tuning.
_FINETUNE: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 32,
    "learning_rate": 1.5e-4,
    "max_length": 64,
    "dropout": 0.1,
    "baselines": False,
    "frozen": False,
    "save_best": False,  # the dev set judges the runs, so it may not choose their weights
    "workers": 0,
}
#: Options of a BiLSTM over frozen features.
_FROZEN: dict[str, Any] = {"epochs": 3, "lstm_size": 128, "lstm_layers": 1, "max_length": 64}
#: Passes over the sentences with entities: nine words of ten have none, so that after three a
#: tagger still says that no word has.
_ENTITY_PASSES = {"frozen": 12, "fine-tuned": 8}


def train(material: Material, system: System, seconds: float) -> dict[str, Any]:
    """Train a system for about so many seconds of CPU time: short runs are timed, their time is
    taken off, and the rest is given to the run itself, which is ended as it is where it takes a
    tenth more.

    Returns:
        ``amount`` of training, ``planned``, ``cpu`` seconds of the run and of what was tried.
    """
    run = material.out / "runs" / system.name
    plan = run.with_name(f"{run.name}-plan.json")
    if not plan.exists():
        began = time.process_time()
        fixed, each = _timed(material, system)
        tried = time.process_time() - began
        most = _MOST[system.unit]
        amount = min(max(1, int((seconds - tried - fixed) / max(each, 1e-6))), most)
        write_json(plan, {"amount": amount, "tried": tried})
    known = read_json_object(plan)
    planned = known["amount"]
    # Ten times in a run, and more often in a long one.
    every = min(max(4, planned // 10), 200)
    clock = Clock(run, known["tried"], _MOST_TIME * seconds, every)
    if not system.model(run).exists():
        with stop_when(clock.is_over):
            system.train(material, system, run, planned, every)
    log = [row for row in read_log(run / "log.jsonl") if "loss" in row] if system.loss else []
    return {
        "amount": log[-1]["step"] if log else planned,
        "planned": planned,
        "cpu": clock.spent(),
    }


class Clock:
    """The CPU time of a system's training. That of processes before counts as far as the checkpoint
    reaches which they left, so that being killed takes no time from a system.

    Args:
        run: the folder of its run; the times are kept beside it.
        tried: seconds that finding out its speed took.
        limit: seconds after which it is over.
        every: updates from one checkpoint to the next.
    """

    def __init__(self, run: Path, tried: float, limit: float, every: int) -> None:
        self._file, self._limit, self._every = run.with_name(f"{run.name}-cpu.json"), limit, every
        self._at: dict[str, float] = {}
        if self._file.exists():
            self._at = read_json_object(self._file)
        left = [int(path.name.rpartition("-")[2]) for path in checkpoints(run / "checkpoints")]
        self._before = self._at.get(str(max(left)), tried) if left else tried
        self._began = time.process_time()

    def spent(self) -> float:
        """Return the seconds until now."""
        return self._before + time.process_time() - self._began

    def is_over(self, done: int) -> bool:
        """Tell whether the time is over after so many updates."""
        spent = self.spent()
        if done % self._every == 0:
            self._at[str(done)] = spent
            write_json(self._file, self._at)
        return spent > self._limit


def _timed(material: Material, system: System) -> tuple[float, float]:
    """Return the seconds that a run takes whatever its length, and those of one more of what its
    amount counts."""
    amounts = _TRIED[system.unit]
    scale = 1.0
    with tempfile.TemporaryDirectory(dir=material.out, prefix=".trying-") as place:
        if system.unit == "epoch":
            part = Path(place) / "part.jsonl"
            size = material.text.stat().st_size
            scale = max(1.0, size / _TRIED_TEXT)
            with open(material.text, "rb") as whole:
                lines = whole.readlines(_TRIED_TEXT)
            part.write_bytes(b"".join(lines))
            material = replace(material, text=part)
        taken = []
        for number, amount in enumerate(amounts):
            began = time.process_time()
            system.train(material, system, Path(place) / str(number), amount, _NEVER)
            taken.append(time.process_time() - began)
    _, few, more = amounts
    each = max(0.0, (taken[2] - taken[1]) / (more - few))
    return max(0.0, taken[1] - few * each) * scale, each * scale


def score(material: Material, system: System, job: dict[str, Any]) -> dict[str, Any]:
    """Score a system on a task, "fine-tuned" or "frozen", with a seed: its main metric, of 1."""
    import bertine

    model = system.model(material.out / "runs" / system.name)
    task, metric, seed = job["task"], job["metric"], job["seed"]
    data = material.out / "examples" / ("entities" if task == ENTITIES else "glue")
    out = material.out / "scoring" / job["name"]
    shutil.rmtree(out, ignore_errors=True)  # of a start that was killed
    kind = "tagging" if task == ENTITIES else "glue"
    named: dict[str, Any] = {"glue_task": task}
    if task == ENTITIES:
        named = {"epochs": _ENTITY_PASSES[job["way"]]}
    if job["way"] == "frozen":
        row = system.word_row if task == ENTITIES else system.text_row
        report = bertine.feature_based(
            model, data=data, out=out, task=kind, rows=[row], seed=seed, **{**_FROZEN, **named}
        )
        value = report.rows[row]["validation"][metric]
    else:
        result = bertine.finetune(
            kind, model=model, data=data, out=out, seed=seed, **{**_FINETUNE, **named}
        )
        value = result.metrics[metric]
    shutil.rmtree(out, ignore_errors=True)  # a score is all that is kept
    return {"score": float(value)}


def score_pairs(material: Material, system: System, job: dict[str, Any]) -> dict[str, Any]:
    """Score a system on the first pairs of each paradigm of BLiMP."""
    from bertine.inference.minimal_pairs.evaluate_pairs import (
        judge_pairs,
        open_log_probability,
        read_pairs,
    )

    pairs = read_pairs(job["pairs"]).sample(job["each"])
    model = system.model(material.out / "runs" / system.name)
    report = judge_pairs(open_log_probability(model), pairs, show_progress=False)
    return {
        "score": report.metrics["accuracy"],
        "pairs": report.pairs,
        "method": report.method,
        "notes": report.notes,
    }


def do(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job, and return what is kept of it: what it found, and its CPU time in seconds."""
    system = BY_NAME[job["system"]]
    material = Material(
        **{name: Path(v) if name != "vocab_size" else v for name, v in job["material"].items()}
    )
    began = time.process_time()
    if job["kind"] == "train":
        found = train(material, system, job["seconds"])
    elif job["kind"] == "look":
        found = look_at(system, system.model(material.out / "runs" / system.name))
    elif job["task"] == PAIRS:
        found = score_pairs(material, system, job)
    else:
        found = score(material, system, job)
    return {"cpu": time.process_time() - began, **found}


def _worker() -> workers.Work:
    import torch

    torch.set_num_threads(1)

    def work(line: str, reply: workers.Say) -> None:
        job = json.loads(line)
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 2)
        os.dup2(log, 1)
        os.close(log)
        try:
            reply(done=do(job))
        except BertineError as error:
            reply(error=" ".join(str(error).split()))
        except Exception as error:
            traceback.print_exc()
            reply(
                error=f"{type(error).__name__}: {' '.join(str(error).split())[:300]} "
                f"(more in {job['log']})"
            )

    return work


if __name__ == "__main__":
    workers.serve(_worker)
