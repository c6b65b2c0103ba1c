"""Hold what a learning-rate range test has found, and the command to run next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bertine.inference.seen_in_training import seen_in_training_line
from bertine.options.finetuning import FinetuneOptions
from bertine.options.names import option
from bertine.reports.checks.next_command import finetune_command
from bertine.scores import exact_rate, rate_text
from bertine.terminal.console import human_time
from bertine.terminal.shown import Shown
from bertine.training.rate.curve import Landmarks, RateCurve, landmarks_of

#: The files in the folder of a test.
CURVE, PLOT, PAGE = "lr-find.json", "lr-find.svg", "lr-find.html"
#: The rates that a curve shows.
LANDMARKS = ("steepest", "lowest", "rises")


@dataclass(frozen=True, repr=False)
class LrFindReport(Shown):
    """The result of a range test.

    Attributes:
        curve: the losses.
        advice: the arguments of ``finetune`` to train with: epochs, batch_size, learning_rate.
        reason: why with this learning rate.
        command: the command that trains so.
        out: the folder of the files: ``lr-find.json``, ``.svg``, ``.html``.
        num_examples: of training.
        passes: over these.
        seconds: of wall time.
        seen: training examples that the model was trained on before; 0 of few.
    """

    curve: RateCurve
    advice: dict[str, Any]
    reason: str
    command: str
    out: Path
    num_examples: int
    passes: float
    seconds: float
    seen: int = 0

    @property
    def learning_rate(self) -> float:
        """The rate to train with."""
        rate: float = self.advice["learning_rate"]
        return rate

    @cached_property
    def landmarks(self) -> Landmarks | None:
        """The rates that the curve shows; None where the loss did not fall."""
        return landmarks_of(self.curve)

    @cached_property
    def notes(self) -> list[str]:
        """What stands out."""
        notes, curve = [], self.curve
        usual = "look whether the labels fit the texts; until then the usual rate is the best guess"
        if self.landmarks is None and curve.diverged:
            notes.append(
                f"the loss diverged after {len(curve.losses) - curve.warmup} steps with a rising "
                f"rate, before it had clearly fallen: let them rise more slowly "
                f"({option('steps')}, {option('max_rate')}), and {usual}"
            )
        elif self.landmarks is None:
            notes.append(
                "the loss did not fall by clearly more than it differs from batch to batch: take "
                f"larger batches ({option('batch_size')}) or more steps ({option('steps')}), and "
                f"{usual}"
            )
        elif self.landmarks.ends:
            notes.append(
                "the loss did not rise up to the highest rate: raise "
                f"{option('max_rate')} to see where it does"
            )
        if line := seen_in_training_line(self.seen, self.num_examples):
            notes.append(f"{line}: the curve is of what it has learned already")
        if self.passes > 1:
            notes.append(
                f"the test passed {self.passes:.1f} times over the {self.num_examples} training "
                "examples: late losses are of examples seen before"
                + ("" if self.landmarks is None else ", and the rates may be a little high")
            )
        return notes

    def lead(self) -> str:
        """Name the rate, and say why."""
        return f"Train with the learning rate {rate_text(self.learning_rate)}: {self.reason}."

    def shown(self) -> str:
        """Say what the curve shows."""
        if self.landmarks is None:
            return "The loss did not fall clearly at any rate."
        steepest, lowest, rises = (rate_text(getattr(self.landmarks, name)) for name in LANDMARKS)
        after = (
            "and does not rise before the test ends"
            if self.landmarks.ends
            else (f"and rises from {rises} on")
        )
        return f"The loss falls fastest at {steepest}, is lowest at {lowest}, {after}."

    def lines(self) -> list[str]:
        """List the rate, what the curve shows, what stands out, the page, and what to run next."""
        return [
            self.lead(),
            self.shown(),
            *self.notes,
            f"{len(self.curve.losses)} steps, {self.passes:.2g} passes over the training examples, "
            f"in {human_time(self.seconds)}; the weights on disk are as they were",
            f"curve: {self.out / PAGE}",
            f"next: {self.command}",
        ]

    def shown_lines(self) -> list[str]:
        """List the same with the arguments in Python in place of the command."""
        advice = ", ".join(f"{name}={value!r}" for name, value in self.advice.items())
        return [*self.lines()[:-1], f"next: bertine.finetune(…, {advice})"]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "advice": self.advice,
            "reason": self.reason,
            "landmarks": self.landmarks and {n: getattr(self.landmarks, n) for n in LANDMARKS},
            "next": self.command,
            "notes": self.notes,
            "passes": self.passes,
            "curve": self.curve.to_dict(),
        }


def next_command(
    task: str, model: Any, data: Any, options: FinetuneOptions, advice: Mapping[str, Any]
) -> str:
    """Write the command that trains with the `advice`, and with the other `options` that are not
    the defaults."""
    numbers = {
        name: exact_rate(value) if isinstance(value, float) else str(value)
        for name, value in advice.items()
    }
    if not isinstance(data, str | Path):  # examples in memory
        words = ", ".join(f"{name}={number}" for name, number in numbers.items())
        return f"bertine.finetune({task!r}, …, {words})"
    name = options.glue_task or Path(data).resolve().name.strip(".-").split(".")[0]
    changed = {key: value for key, value in options.changed().items() if key not in advice}
    arguments = {"model": model, "data": data, **changed, **numbers}
    return finetune_command(task, {**arguments, "out": f"{name or 'my'}-model"})
