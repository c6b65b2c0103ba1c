"""Hold what a learning-rate range test has found, and the command to run next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bertine.options.finetuning import FinetuneOptions
from bertine.options.names import option
from bertine.reports.checks.next_command import finetune_command
from bertine.scores import exact_rate, rate_text
from bertine.terminal.console import aligned, human_time
from bertine.terminal.shown import Shown
from bertine.training.rate.curve import PAPER_RATES, Bracket, RateCurve, bracket_of, loss_at

#: The files in the folder of a test.
CURVE, PLOT, PAGE = "lr-find.json", "lr-find.svg", "lr-find.html"
#: What is said of a bracket.
_BRACKET = ("low", "high", "steepest", "lowest")


@dataclass(frozen=True, repr=False)
class LrFindReport(Shown):
    """The result of a range test.

    Attributes:
        curve: the losses.
        advice: the arguments of ``finetune`` to train with: epochs, batch_size, learning_rate.
        command: the command that trains so.
        out: the folder of the files: ``lr-find.json``, ``.svg``, ``.html``.
        num_examples: of training.
        passes: over these.
        seconds: of wall time.
    """

    curve: RateCurve
    advice: dict[str, Any]
    command: str
    out: Path
    num_examples: int
    passes: float
    seconds: float

    @cached_property
    def bracket(self) -> Bracket | None:
        """The rates between which to train; None where the loss did not fall."""
        return bracket_of(self.curve)

    @cached_property
    def grid(self) -> list[tuple[float, float | None, str]]:
        """Each of the paper's rates with the smoothed loss there (None: not reached) and what the
        curve says of it."""
        reached, nothing = self.curve.at[-1], "nothing: there is no bracket"
        return [
            (
                rate,
                loss_at(self.curve, rate),
                self.bracket.says_of(rate, reached) if self.bracket else nothing,
            )
            for rate in PAPER_RATES
        ]

    def grid_rows(self) -> list[tuple[str, str, str]]:
        """Write the grid as cells of a table."""
        return [
            (rate_text(rate), "" if loss is None else f"{loss:.4f}", words)
            for rate, loss, words in self.grid
        ]

    @property
    def still_falling(self) -> bool:
        """Whether the loss was at its lowest where the test ended."""
        if self.bracket is None or self.curve.diverged:
            return False
        return self.bracket.lowest >= self.curve.points()[0][-1] * 0.999

    @cached_property
    def notes(self) -> list[str]:
        """What stands out."""
        notes, curve = [], self.curve
        usual = "look whether the labels fit the texts; until then the usual rate is the best guess"
        if self.bracket is None and curve.diverged:
            notes.append(
                f"the loss diverged after {len(curve.losses) - curve.warmup} steps with a rising "
                f"rate, before it had clearly fallen: let them rise more slowly "
                f"({option('steps')}, {option('max_rate')}), and {usual}"
            )
        elif self.bracket is None:
            notes.append(
                "the loss did not fall by clearly more than it differs from batch to batch: take "
                f"larger batches ({option('batch_size')}) or more steps ({option('steps')}), and "
                f"{usual}"
            )
        elif self.still_falling:
            notes.append(
                "the loss was still falling at the highest rate: raise "
                f"{option('max_rate')} to see where it rises"
            )
        if self.passes > 1:
            notes.append(
                f"the test passed {self.passes:.1f} times over the {self.num_examples} training "
                "examples: late losses are of examples seen before"
                + ("" if self.bracket is None else ", so the bracket may be a little high")
            )
        return notes

    def lead(self) -> str:
        """Say the result in a sentence."""
        if self.bracket is None:
            return "No bracket: the loss did not fall clearly at any rate."
        low, high, steepest, lowest = (rate_text(getattr(self.bracket, name)) for name in _BRACKET)
        return (
            f"Train between {low} and {high}: the loss falls fastest at {steepest}, and stays at "
            f"its lowest up to {lowest}, a tenth of which is the other end."
        )

    def lines(self) -> list[str]:
        """List the bracket, the paper's grid beside it, what stands out, the page, and what to run
        next."""
        rows = aligned([("", *row) for row in self.grid_rows()], left=(0, 1, 3))
        return [
            self.lead(),
            "the paper's rates, the smoothed loss there, and what the curve says of them:",
            *rows,
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
        bracket = self.bracket
        return {
            "bracket": bracket and {name: getattr(bracket, name) for name in _BRACKET},
            "paper_grid": [
                {"rate": rate, "smoothed_loss": loss, "says": words}
                for rate, loss, words in self.grid
            ],
            "advice": self.advice,
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
