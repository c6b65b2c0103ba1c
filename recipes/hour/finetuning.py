"""The fine-tuning runs of a model, as many at a time as there are cores, with a thread each.

Their batches are so small that two threads wait for each other longer than they compute: a run of
CoLA takes less time with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe import FINETUNE, TRAINED, TaskRun

import bertine
from bertine.core.console import logger
from bertine.core.cpu import cores
from bertine.core.files import read_json, write_json
from bertine.datasets.readers import read_labelled
from bertine.inference.baselines.measure import measure_baselines
from bertine.options.data import DataConfig
from bertine.training.experiment import Experiment, Job
from bertine.training.search.search import DO_RUN

#: What is fine-tuned → whether from weights that are random.
WAYS = {"pre-trained": False, "random weights": True}
#: Arguments of ``bertine.finetune`` that say how data are read.
_READ = ("glue_task", "text_columns", "label_column")


def alone(task: TaskRun, way: str) -> bool:
    """Whether the head alone is fitted: random weights have nothing to fit it on."""
    return task.frozen and not WAYS[way]


@dataclass(frozen=True)
class Finetuning:
    """One run.

    Attributes:
        task: what for.
        way: one of `WAYS`.
        seed: of the run.
        out: the recipe's folder; the run, its log and its score are in ``finetuning`` there.
    """

    task: TaskRun
    way: str
    seed: int
    out: Path

    @property
    def name(self) -> str:
        return f"{self.task.name}, {self.way}, seed {self.seed}"

    def file(self, ending: str) -> Path:
        """The run's folder, or with an ending what is beside it."""
        name = f"{self.task.name}-{self.way.replace(' ', '-')}-{self.seed}{ending}"
        return self.out / "finetuning" / name

    @property
    def done(self) -> bool:
        return self.file(".json").exists()

    @property
    def score(self) -> float:
        """Of a run that is done: on the dev set, times 100."""
        return 100 * float(read_json(self.file(".json"))[self.task.metric])

    def job(self, model: Path, acceptability: Path, data: Path) -> Job:
        """The run as a job of an experiment."""
        arguments = {
            "model": str(acceptability if self.task.after_acceptability else model),
            "data": str(data),
            "out": str(self.file("")),
            "seed": self.seed,
            **FINETUNE,
            **self.task.arguments,
        }
        if alone(self.task, self.way):
            arguments["frozen"] = True
        else:
            arguments |= {
                "epochs": self.task.epochs,
                "learning_rate": self.task.learning_rate,
                "pairs": self.task.pairs,
                "fresh_weights": WAYS[self.way],
                **TRAINED,
            }
        return Job(DO_RUN, {"arguments": arguments, "split_seed": 0}, self.file(".log"))


def finetune_all(
    runs: Sequence[Finetuning], model: Path, acceptability: Path, data_of: Callable[[str], Path]
) -> None:
    """Do those that are not done, from the pre-trained `model` or the one that has learned
    acceptability after it.

    Args:
        runs: those that there are.
        model: its directory.
        acceptability: that of its copy.
        data_of: the data of a task, by its name.

    Raises:
        BertineError: one failed; no other is begun then.
    """
    left = {run.name: run for run in runs if not run.done}
    if not left:
        return

    def on_end(name: str, message: dict[str, Any]) -> None:
        run = left[name]
        if "done" not in message:
            raise bertine.BertineError(f"{run.name}: {message.get('error') or message['lost']}")
        write_json(run.file(".json"), message["done"]["metrics"])
        logger.info(f"{run.name}: {run.task.metric} {run.score:.1f}")

    logs = next(iter(left.values())).file("").parent
    logger.info(f"--- fine-tuning: {len(left)} runs; several at a time print to {logs}")
    jobs = {
        name: run.job(model, acceptability, data_of(run.task.name)) for name, run in left.items()
    }
    Experiment(processes=cores()).run(jobs, on_end)


def best_baseline(task: TaskRun, data: Path) -> dict[str, Any]:
    """Fit what needs no model (tf-idf, for questions the words around them) to a task.

    Returns:
        ``name`` and ``score``, times 100, of the one that is best on the dev set.
    """
    arguments = dict(task.arguments)
    kind = arguments.pop("task")
    columns = {name: arguments[name] for name in _READ if name in arguments}
    labelled = read_labelled(kind, data, DataConfig(**columns))
    measured = measure_baselines(
        labelled.make_task(arguments.get("max_length", FINETUNE["max_length"])),
        labelled.train,
        {"": labelled.validation},
    )
    best = max(measured, key=lambda baseline: baseline.metrics[task.metric])
    return {"name": best.name, "score": 100 * best.metrics[task.metric]}
