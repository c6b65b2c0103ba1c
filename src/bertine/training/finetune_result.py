"""What a fine-tuning run ended with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.console import human_time
from bertine.files import read_json
from bertine.tasks.base import Report
from bertine.tasks.metrics import official_score


def final_of(folder: Path) -> dict[str, Any]:
    """The report on the model of the finished run in `folder`, from its ``scores.json``: its
    ``metrics``, whether it ``collapsed`` to one answer; empty where there were no validation
    examples. A run that is found finished is not evaluated again."""
    final: dict[str, Any] = read_json(folder / "scores.json")["final"]
    return final


@dataclass(frozen=True)
class FinetuneResult:
    """What a fine-tuning run ended with.

    Attributes:
        model: the model directory; of all of GLUE, the folder with a run for each task.
        scores: the metrics on the validation examples after each epoch, with ``step``.
        report: the evaluation of the model in `model`; None when a finished run was found, and
            in all processes but the first.
        elapsed: seconds of training, evaluation not counted.
        metric_names: the metrics by which the task is judged.
        runs: of all of GLUE, the result of each task by its name.
        final: the metrics of the model in `model` on the validation examples; of all of GLUE empty.
    """

    model: Path
    scores: list[dict[str, Any]]
    report: Report | None
    elapsed: float
    metric_names: tuple[str, ...] = ()
    runs: Mapping[str, FinetuneResult] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the final model on the validation examples."""
        return dict(self.final if self.report is None else self.report.metrics)

    @property
    def score(self) -> float:
        """The mean of the metrics by which the task is judged: in GLUE, its score; of all of GLUE,
        the average over the tasks."""
        return official_score(self.metrics, self.metric_names)

    def lines(self) -> list[str]:
        """What the command prints at the end."""
        lines = self.report.lines() if self.report is not None else []
        if self.report is None and self.final:  # the run was found finished
            scores = ", ".join(f"{name} {value:.4f}" for name, value in self.final.items())
            lines.append(f"on the validation examples: {scores}")
        if len(self.metric_names) > 1 and self.metrics:
            lines.append(f"score: {self.score:.4f}, the mean of {' and '.join(self.metric_names)}")
        return [
            *lines,
            f"trained in {human_time(self.elapsed)}",
            f"model: {self.model}",
        ]
