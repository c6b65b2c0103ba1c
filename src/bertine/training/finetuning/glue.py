"""All of GLUE: one fine-tuning run a task, and the table with the average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.cores.launch import launched
from bertine.datasets.glue import AVERAGED
from bertine.datasets.glue_data import glue_tasks_in
from bertine.errors import BertineError
from bertine.files import write_json
from bertine.tasks.worst import WorstExample
from bertine.terminal.console import say
from bertine.terminal.shown import Shown
from bertine.training.finetuning.learner import Learner
from bertine.training.finetuning.result import final_of
from bertine.training.run import Run

#: The table, in the folder of the runs.
TABLE = "glue.json"


@dataclass(repr=False)
class GlueReport(Shown):
    """The scores of the tasks of GLUE on their dev sets.

    Attributes:
        tasks: for each task its official metrics by name.
        notes: which of the leaderboard's tasks are missing.
        source: the folder of the data.
        collapsed: whether the run of any task gave one answer to all.
        worst: empty; each task's run has its own.
    """

    tasks: dict[str, dict[str, float]]
    notes: list[str] = field(default_factory=list)
    source: str = ""
    collapsed: bool = False
    worst: list[WorstExample] = field(default_factory=list)

    @property
    def metrics(self) -> dict[str, float]:
        """The score of each task, the mean of its official metrics, and their average."""
        scores = {
            name: sum(metrics.values()) / len(metrics) for name, metrics in self.tasks.items()
        }
        return {**scores, "average": sum(scores.values()) / len(scores)}

    def lines(self) -> list[str]:
        """Return a row a task: its score and its metrics, times 100; the average, and over what it
        is."""
        scores = self.metrics
        width = max(map(len, [*self.tasks, "average"]))
        rows = [
            f"{name.ljust(width)}  {100 * scores[name]:6.2f}  "
            + ", ".join(f"{metric} {100 * value:.2f}" for metric, value in metrics.items())
            for name, metrics in self.tasks.items()
        ]
        count = len(self.tasks)
        over = f"of {count} tasks" if count > 1 else "of 1 task"
        rows.append(
            f"{'average'.ljust(width)}  {100 * scores['average']:6.2f}  {over}, on dev sets, "
            "times 100; where a task has two metrics, their mean"
        )
        return rows + self.notes

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "tasks": self.tasks,
            "scores": self.metrics,
            "notes": self.notes,
            "collapsed": self.collapsed,
        }


def finetune_all(finetune: Callable[..., Learner], arguments: dict[str, Any]) -> Learner:
    """Fine-tune each task that the data has, and write the table to ``out/glue.json``.

    Args:
        finetune: the verb, called once a task.
        arguments: of the verb, for all of GLUE.

    Raises:
        BertineError: what `finetune` raises; the data has no task; `out` is a run's folder, or
            holds a run of one of the tasks already and `resume` is not set.
    """
    if launched():
        raise BertineError("all of GLUE runs in one process; with torchrun name one task")
    if not isinstance(arguments["data"], str | Path):
        raise BertineError("all of GLUE is read from its folder; give that as data, not examples")
    data, out = Path(arguments["data"]), Path(arguments["out"])
    tasks = glue_tasks_in(data)
    if (out / "run.json").exists():
        raise BertineError(f"{out}: holds a run; choose another folder for the runs of GLUE")
    for task in tasks:
        Run.check(out / task.name, arguments["resume"])
    results: dict[str, Learner] = {}
    for number, task in enumerate(tasks, 1):
        say(f"{task.name} ({number} of {len(tasks)})")
        results[task.name] = finetune(
            **{**arguments, "glue_task": task.name, "out": out / task.name, "baselines": False}
        )
    scores = {
        name: {metric: result.metrics[metric] for metric in result.metric_names}
        for name, result in results.items()
    }
    missing = [name for name in AVERAGED if name not in scores]
    notes = (
        [f"not the leaderboard's average, which is over nine tasks: {', '.join(missing)} missing"]
        if missing
        else []
    )
    collapsed = [
        name for name, result in results.items() if final_of(result.model.parent).get("collapsed")
    ]
    for name in collapsed:
        notes.append(f"{name}: collapsed to one answer; train it again with another seed")
    report = GlueReport(scores, notes, str(data), bool(collapsed))
    write_json(out / TABLE, report.to_dict())
    elapsed = sum(result.elapsed for result in results.values())
    return Learner(out, [], report, elapsed, ("average",), results)
