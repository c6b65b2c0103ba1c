"""What a learning-rate range test has found: lines, files, and the command to run next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.files import write_json, write_text
from bertine.options.names import option as option_name
from bertine.options.names import shell_option
from bertine.reports.rate_page import RateTest, rate_plot, rate_text, write_rate_page
from bertine.reports.scores import exact_rate
from bertine.terminal.console import aligned, human_time
from bertine.terminal.shown import Shown
from bertine.training.rate.curve import PAPER_RATES, Bracket, RateCurve, bracket_of, loss_at
from bertine.version import __version__

#: The files in the folder of a test.
CURVE, PLOT, PAGE = "lr-find.json", "lr-find.svg", "lr-find.html"
#: Arguments that `finetune` has not, or that mean something else there.
_OWN = ("task", "out", "min_rate", "max_rate", "steps", "warmup_steps")
_HOW = (
    "Each step has a higher rate than the one before, by the same factor; its loss is that of its "
    "batch before the update. The smoothed loss is their exponential moving average with its bias "
    "corrected, set at the rate that is averaged in the same way, so that it does not lag.",
    "The bracket lies between the rate at which the smoothed loss falls fastest (the steepest "
    "straight line through half a decade of the curve, left of the lowest point) and a tenth of "
    "the rate up to which it stays at its lowest, as far as its noise lets tell: near that one a "
    "run is already about to diverge.",
    "The rates are those of a warmed-up run: the climb itself is a warm-up, and Adam's moments are "
    "filled at the lowest rate before it. Keep a warm-up when you train; without it take the lower "
    "end.",
    "A test sees a hundred steps with a fresh head, not a whole run, and it is noisy. So the "
    "advised rate is the usual one for a model of this size, unless the loss rises there (then a "
    "third of the rate up to which it stays at its lowest, or half of the usual rate if that is "
    "more) or rises only far above it (then twice the usual rate); epochs and batch size follow "
    "from the number of examples. A search (bertine search) is the check.",
)


@dataclass(frozen=True, repr=False)
class LrFindReport(Shown):
    """What a range test found.

    Attributes:
        curve: the losses.
        bracket: between which rates to train; None where the loss did not fall.
        grid: of each of the paper's rates the smoothed loss there (None: not reached) and what
            the curve says of it.
        advice: the arguments of ``finetune`` to train with: epochs, batch_size, learning_rate.
        command: the command that trains so.
        out: the folder of the files: ``lr-find.json``, ``.svg``, ``.html``.
        notes: what stands out.
        passes: over the training examples.
        seconds: of wall time.
    """

    curve: RateCurve
    bracket: Bracket | None
    grid: list[tuple[float, float | None, str]]
    advice: dict[str, Any]
    command: str
    out: Path
    notes: list[str] = field(default_factory=list)
    passes: float = 0.0
    seconds: float = 0.0

    def lead(self) -> str:
        """The result in a sentence."""
        if self.bracket is None:
            return "No bracket: the loss did not fall clearly at any rate."
        low, high, steepest, lowest = map(
            rate_text,
            (self.bracket.low, self.bracket.high, self.bracket.steepest, self.bracket.lowest),
        )
        return (
            f"Train between {low} and {high}: the loss falls fastest at {steepest}, and stays at "
            f"its lowest up to {lowest}, a tenth of which is the other end."
        )

    def lines(self) -> list[str]:
        """The bracket, the paper's grid beside it, what stands out, the files, what to run next."""
        rows = aligned(
            [
                ("", rate_text(rate), "" if loss is None else f"{loss:.4f}", said)
                for rate, loss, said in self.grid
            ],
            left=(0, 1, 3),
        )
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
        """The same, with the arguments in Python in place of the command."""
        advice = ", ".join(f"{name}={value!r}" for name, value in self.advice.items())
        return [*self.lines()[:-1], f"next: bertine.finetune(…, {advice})"]

    def to_dict(self) -> dict[str, Any]:
        """What a program reads; only JSON types."""
        found = self.bracket
        return {
            "bracket": None
            if found is None
            else {
                "low": found.low,
                "high": found.high,
                "steepest": found.steepest,
                "lowest": found.lowest,
            },
            "paper_grid": [
                {"rate": rate, "smoothed_loss": loss, "says": said}
                for rate, loss, said in self.grid
            ],
            "advice": self.advice,
            "next": self.command,
            "notes": self.notes,
            "passes": self.passes,
            "curve": self.curve.to_dict(),
        }

    @classmethod
    def of(
        cls,
        curve: RateCurve,
        *,
        out: Path,
        advice: dict[str, Any],
        command: str,
        passes: float,
        num_examples: int,
        seconds: float,
    ) -> LrFindReport:
        """The report on a curve of `passes` over `num_examples` training examples."""
        found, reached = bracket_of(curve), curve.at[-1]
        grid = [
            (
                rate,
                loss_at(curve, rate),
                found.says_of(rate, reached) if found else "nothing: there is no bracket",
            )
            for rate in PAPER_RATES
        ]
        notes = _notes(curve, found, passes, num_examples)
        return cls(curve, found, grid, advice, command, out, notes, passes, seconds)

    def write(self, settings: Mapping[str, Any]) -> None:
        """Write the three files; `settings` are shown in them.

        Raises:
            BertineError: they cannot be written.
        """
        curve, found = self.curve, self.bracket
        at, smoothed = curve.points()
        test = RateTest(
            curve.rates[curve.warmup :],
            curve.losses[curve.warmup :],
            at.tolist(),
            smoothed.tolist(),
            None if found is None else (found.low, found.high),
            None if found is None else found.lowest,
            self.grid,
        )
        plot = rate_plot(test)
        shown = {name: _json(value) for name, value in settings.items() if value is not None}
        write_json(self.out / CURVE, {**self.to_dict(), "settings": shown})
        write_text(self.out / PLOT, plot.decode("utf-8") + "\n")
        facts = []
        if found is not None:
            facts = [
                ("Bracket", f"{rate_text(found.low)} to {rate_text(found.high)}", "learning rate"),
                ("Steepest", rate_text(found.steepest), "the loss falls fastest"),
                (
                    "Lowest",
                    rate_text(found.lowest),
                    "the test ended there"
                    if _still_falling(curve, found)
                    else "beyond it the loss rises",
                ),
            ]
        write_rate_page(
            self.out / PAGE,
            test,
            plot,
            title=f"Learning rate: {settings.get('glue_task') or settings['task']}",
            lead=self.lead(),
            facts=facts,
            notes=self.notes,
            how=_HOW,
            command=self.command,
            settings=shown,
            footer=f"Made by bertine {__version__} with 'bertine lr-find'.",
        )


def _notes(curve: RateCurve, found: Bracket | None, passes: float, num_examples: int) -> list[str]:
    notes = []
    if found is None and curve.diverged:
        notes.append(
            f"the loss diverged after {len(curve.losses) - curve.warmup} steps with a rising rate, "
            f"before it had clearly fallen: let them rise more slowly ({option_name('steps')}, "
            f"{option_name('max_rate')}), and look whether the labels fit the texts; until then "
            "the usual rate is the best guess"
        )
    elif found is None:
        notes.append(
            "the loss did not fall by clearly more than it differs from batch to batch: take "
            f"larger batches ({option_name('batch_size')}) or more steps "
            f"({option_name('steps')}), and look whether the labels fit the texts; until then the "
            "usual rate is the best guess"
        )
    elif _still_falling(curve, found):
        notes.append(
            "the loss was still falling at the highest rate: raise "
            f"{option_name('max_rate')} to see where it rises"
        )
    if passes > 1:
        notes.append(
            f"the test passed {passes:.1f} times over the {num_examples} training examples: late "
            "losses are of examples seen before"
            + ("" if found is None else ", so the bracket may be a little high")
        )
    return notes


def _still_falling(curve: RateCurve, found: Bracket) -> bool:
    """Whether the loss was at its lowest where the test ended."""
    return not curve.diverged and found.lowest >= curve.points()[0][-1] * 0.999


def next_command(
    given: Mapping[str, Any], defaults: Mapping[str, Any], advice: Mapping[str, Any]
) -> str:
    """The command that trains with the `advice`, and with the arguments that were `given` and are
    not the `defaults`."""
    if not isinstance(given["data"], str | Path):  # examples in memory
        said = ", ".join(f"{name}={_number(value)}" for name, value in advice.items())
        return f"bertine.finetune({given['task']!r}, …, {said})"
    words = ["bertine", "finetune", given["task"]]
    for name, value in given.items():
        if name in _OWN or name in advice or value == defaults.get(name):
            continue
        option = shell_option(name, value)
        if value is True:
            words.append(option)
        elif value is False:
            words.append("--no-" + option.removeprefix("--"))
        elif isinstance(value, list | tuple):
            words += [option, *map(str, value)]
        else:
            words += [option, str(value)]
    for name, value in advice.items():
        words += ["--" + name.replace("_", "-"), _number(value)]
    name = given["glue_task"] or Path(given["data"]).resolve().name.strip(".-").split(".")[0]
    words += ["--out", f"{name or 'my'}-model"]
    return shlex.join(words)


def _number(value: float) -> str:
    return exact_rate(value) if isinstance(value, float) else str(value)


def _json(value: Any) -> Any:
    """A setting as a JSON value."""
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return value if isinstance(value, str | int | float) else str(value)
