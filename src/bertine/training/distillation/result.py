"""The result of distilling on a task."""

from __future__ import annotations

from dataclasses import dataclass, field

from bertine.training.distillation.comparison import TeacherComparison
from bertine.training.finetuning.learner import Learner


@dataclass(frozen=True, repr=False)
class Distilled(Learner):
    """The result of distilling on a task: a learner, and its comparison with the teacher.

    Attributes:
        teacher: its scores on the validation examples, how often both answer alike, and how many
            times as fast the student is.
    """

    teacher: TeacherComparison = field(default_factory=lambda: TeacherComparison(""))

    def lines(self) -> list[str]:
        """Return what the command prints at the end."""
        return self._with_comparison(super().lines())

    def shown_lines(self) -> list[str]:
        return self._with_comparison(super().shown_lines())

    def _with_comparison(self, lines: list[str]) -> list[str]:
        """Put the comparison before the last two lines, of the time and the folder."""
        at = next((n for n, line in enumerate(lines) if line.startswith("trained in")), len(lines))
        return [*lines[:at], *self.teacher.lines(self.metrics, self.metric_names), *lines[at:]]
