"""Hold what a diagnosis is made of: findings, and a log as the checks want to see it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bertine.runs.log import LogRow, series
from bertine.terms import TERMS, TermTexts, main_term, word_term

#: float64 [N].
Floats = npt.NDArray[np.float64]
Severity = Literal["fault", "warning", "advice"]
#: Fewer points of a curve than this are no trend.
FEW = 6
#: In fewer lines of log neither a stall nor a divergence is told from noise.
SHORT_LOG = 10


@dataclass(frozen=True)
class Finding:
    """One thing that a person should know about a run.

    Attributes:
        kind: a short name for programs, e.g. "stalled".
        severity: "fault": the result is of no use; "warning": it is worse than it need be;
            "advice": nothing is wrong, but more can be had.
        text: what was seen, with its figures, and what to try.
        command: what to run next, for the shell; "" in pre-training.
        call: the same in Python.
    """

    kind: str
    severity: Severity
    text: str
    command: str = ""
    call: str = ""

    def __str__(self) -> str:
        """Write the finding in one line, with the command."""
        text = f"{self.severity}: {self.text}"
        return f"{text}; next: {self.command}" if self.command else text


@dataclass(frozen=True)
class LogView:
    """The log of a run and the facts about it, as the checks want them."""

    log: Sequence[LogRow]
    facts: Mapping[str, Any]
    pretraining: bool

    @property
    def main(self) -> str:
        """The term by which the model of a run of pre-training is judged."""
        return main_term(self.facts.get("objective"))

    @property
    def watched(self) -> str:
        """The term of pre-training whose loss is watched: that of guessing words, where there is
        one, since it can be compared with their frequencies."""
        return word_term(self.facts.get("objective"))

    @property
    def term(self) -> TermTexts:
        """The name and the meaning of the term that is watched."""
        return TERMS[self.watched]

    @property
    def loss_key(self) -> str:
        """The key of the loss that is watched."""
        return f"{self.watched}_loss" if self.pretraining else "loss"

    @property
    def loss_name(self) -> str:
        """The name of that loss for people."""
        return f"{self.term.title} loss" if self.pretraining else "loss"

    @property
    def watched_losses(self) -> dict[str, str]:
        """The losses of which each should fall, by key, with their names for people: the one that
        is watched, and that of the main term."""
        if not self.pretraining:
            return {self.loss_key: self.loss_name}
        names = dict.fromkeys((self.watched, self.main))
        return {f"{name}_loss": f"{TERMS[name].title} loss" for name in names}

    @property
    def last_step(self) -> int:
        """The last step that is logged."""
        return int(self.log[-1]["step"]) if self.log else 0

    @property
    def begin(self) -> int:
        """The step before the first of the current phase: where sequences become longer, the loss
        rises and the speed changes, and neither is a fault."""
        starts = [int(step) for step in self.facts.get("phase_starts") or ()]
        return max((step for step in starts if step < self.last_step), default=0)

    @property
    def warm(self) -> int:
        """The step from which on the learning rate no longer rises."""
        return max(self.begin, int(self.fact("warmup_steps") or 0))

    def fact(self, name: str) -> float | None:
        """Return a fact that is a finite number, else None."""
        value = self.facts.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return None

    def points(self, key: str, after: float = -1) -> tuple[Floats, Floats]:
        """Return steps and values of `key` in lines whose step is above `after`."""
        steps, values = series((row for row in self.log if row["step"] > after), key)
        return np.asarray(steps), np.asarray(values)


def mean(values: Floats) -> float:
    """Compute the mean as a float of Python."""
    return float(values.mean())


def noise(values: Floats) -> float:
    """Estimate the standard deviation of what is not trend, from the differences of neighbours,
    robustly."""
    return float(np.median(np.abs(np.diff(values)))) / (0.6745 * math.sqrt(2))


def last_third(view: LogView, key: str) -> tuple[Floats, Floats] | None:
    """Take the last third of the lines after warm-up; None where they are too few to tell."""
    steps, values = view.points(key, view.warm)
    size = len(values) // 3
    return (steps[-size:], values[-size:]) if size >= FEW // 2 else None


def context_floor(view: LogView) -> float | None:
    """Return the lowest loss of words that uses no context, in nats; None where none is known.

    Of the tokens that MLM chooses a tenth is left in place, so a model that repeats what it sees
    and knows how frequent tokens are pays the unigram entropy H for the others only: 0.9 H. (It
    cannot reach that quite: a random token might have been left in place too.) Where nothing can be
    copied, it is H.
    """
    entropy = view.fact("unigram_entropy")
    if entropy is None or not view.term.words:
        return None
    if not view.term.copied:
        return entropy
    split = view.facts.get("mask_split")
    kept = float(split[2]) if isinstance(split, list | tuple) and len(split) == 3 else 0.1
    return (1 - kept) * entropy


def rounded(count: float) -> str:
    """Round a count for a sentence: 12345 → "12,000"."""
    digits = max(0, int(math.log10(max(count, 1))) - 1)
    return f"{round(count, -digits):,.0f}"
