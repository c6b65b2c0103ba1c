"""What a fine-tuning run ended with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import read_json_object
from bertine.reports.checks.diagnosis import diagnose
from bertine.reports.checks.log_view import Finding
from bertine.runs.files import RunFiles
from bertine.tasks.baseline_scores import BaselineScore, baseline_lines
from bertine.tasks.metrics import official_score
from bertine.tasks.report import EvaluationReport
from bertine.terminal.console import human_time
from bertine.terminal.shown import Shown
from bertine.training.finetuning.next_steps import next_lines, write_pages

#: The key of ``scores.json`` that says in words which weights are saved.
SAVED = "saved"
#: Findings at the end of the command; the report has all.
_SHOWN = 3


def final_of(folder: Path) -> dict[str, Any]:
    """The report on the model of the finished run in `folder`, from its ``scores.json``: its
    ``metrics``, whether it ``collapsed`` to one answer; empty where there were no validation
    examples. A run that is found finished is not evaluated again."""
    file = folder / "scores.json"
    final = read_json_object(file, lenient=True).get("final")
    if not isinstance(final, dict) or not isinstance(final.get("metrics", {}), dict):
        raise BertineError(f"{file}: damaged; remove the folder and train again")
    return final


def saved_of(folder: Path) -> str:
    """Which weights the model of the finished run in `folder` has, in words; "" where an earlier
    Bertine trained it, which did not write that down."""
    return str(read_json_object(folder / "scores.json", lenient=True).get(SAVED, ""))


@dataclass(frozen=True, repr=False)
class FinetuneResult(Shown):
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
        baselines: the scores of the task's baselines on the same examples.
        saved: which weights the model has, in words, such as "saved: the last epoch (12)".
    """

    model: Path
    scores: list[dict[str, Any]]
    report: EvaluationReport | None
    elapsed: float
    metric_names: tuple[str, ...] = ()
    runs: Mapping[str, FinetuneResult] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)
    baselines: tuple[BaselineScore, ...] = ()
    saved: str = ""

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
        return self._lines(self._findings())

    def shown_lines(self) -> list[str]:
        """The same, with calls of Python to run next in place of commands."""
        return self._lines(self.findings)

    def _lines(self, findings: Sequence[Finding]) -> list[str]:
        lines = self.report.lines() if self.report is not None else []
        if self.report is None and self.final:  # the run was found finished
            scores = ", ".join(f"{name} {value:.4f}" for name, value in self.final.items())
            lines.append(f"on the validation examples: {scores}")
        if len(self.metric_names) > 1 and self.metrics:
            lines.append(f"score: {self.score:.4f}, the mean of {' and '.join(self.metric_names)}")
        return [
            *lines,
            *baseline_lines(self.metrics, self.metric_names, self.baselines),
            *(str(finding) for finding in findings[:_SHOWN]),
            f"trained in {human_time(self.elapsed)}",
            *([self.saved] if self.saved else []),
            f"model: {self.model}",
        ]

    def write_pages(self) -> None:
        """Write the run's page, ``report.html`` in its folder; of all of GLUE that of each task."""
        write_pages(self.model if self.runs else self.model.parent)

    def next_lines(self) -> list[str]:
        """Where the page is, and the commands to run next; of all of GLUE empty."""
        return [] if self.runs else next_lines(self.model.parent)

    @property
    def findings(self) -> list[Finding]:
        """The diagnosis of the run, the gravest first; empty where nothing stands out. Each has
        the next call in ``command``."""
        return [replace(one, command=one.call or one.command) for one in self._findings()]

    def _findings(self) -> list[Finding]:
        folder = self.model.parent
        if self.runs or not (folder / "run.json").is_file():
            return []
        files = RunFiles.read(folder)
        return diagnose(files.log, files.facts())
