"""What training for similarity ends with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bertine.terminal.console import counted, human_time
from bertine.terminal.shown import Shown


@dataclass(repr=False)
class SimilarityResult(Shown):
    """A model that was trained to give vectors.

    Attributes:
        model: its directory.
        kind: what it was trained on.
        rows: that it was trained on.
        steps: of the weights that are saved.
        before, after: the scores on the validation rows before training and of the model that is
            saved; empty where there are none.
        metric: by which the best evaluation was chosen.
        seconds: of training.
        kept_start: whether the weights of before training are saved, no evaluation being better.
        notes: what else to know.
        shortened: `metric` of the model that is saved with so many of a vector's first numbers, for
            the lengths that were trained.
    """

    model: Path
    kind: str
    rows: int
    steps: int
    before: dict[str, float]
    after: dict[str, float]
    metric: str
    seconds: float
    kept_start: bool = False
    notes: list[str] = field(default_factory=list)
    shortened: dict[int, float] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return what a person reads in the terminal."""
        lines = [
            f"{counted(self.rows, 'row')}, {counted(self.steps, 'step')} in "
            f"{human_time(self.seconds)}"
        ]
        for name, value in self.after.items():
            mark = " (by which the best was chosen)" if name == self.metric else ""
            lines.append(f"{name} {value:.4f}, before training {self.before[name]:.4f}{mark}")
        lines += [
            f"{self.metric} {value:.4f} with the first {counted(length, 'number')} of a vector"
            for length, value in self.shortened.items()
        ]
        if self.kept_start:
            lines.append(
                f"training did not make {self.metric} higher, so the weights of before training "
                "are saved; a lower learning rate, or more rows, may help"
            )
        return [*lines, *self.notes, f"model: {self.model}"]
