"""How far probabilities can be trusted: how often answers are right that are given with this or
that probability, and a temperature that makes them so (Guo et al. 2017, arXiv 1706.04599).

Shape legend: N answers, K labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertine.rng import generator

#: Bins of the expected calibration error, of equal width (Guo et al. 2017, section 2).
BINS = 15
#: Fewer answers than that say too little of what probabilities are worth.
LEAST_EXAMPLES = 50
#: Bounds of a temperature; and how far its logarithm is from 0 in an ordinary run, which counts as
#: much as a few examples: where all answers are right, the best temperature would be 0.
_LOWEST, _HIGHEST, _ORDINARY = 0.2, 20.0, 0.5
#: Parts of the examples, each of which is judged with the temperature of the others.
_FOLDS = 5
#: Of what is written: the last bits of a probability depend on the texts beside it.
_DIGITS = 6
#: What can be left open below a probability.
_LEFT_OPEN = ("answers", "entities")
#: What is so often, by what has the probabilities.
_RIGHT = {
    "answers": "are right",
    "labels": "are there",
    "entities": "are right",
    "tags": "are right",
}
#: Of the normal distribution: a number is above it by chance in 1 of 20 cases.
_ONE_OF_20 = 1.645
#: Shares of what is left open or not, for the accuracy of each.
_SHARES = tuple(round(0.05 * number, 2) for number in range(1, 21))


@dataclass(frozen=True)
class Reliability:
    """How often answers are right, by the probability that they are given with.

    Attributes:
        error: the expected calibration error: by how much the probability of an answer and how
            often such answers are right differ on average, over 15 bins.
        error_by_chance: what it would be on average if all probabilities were right: of few
            examples it is not 0.
        bins: of each that is not empty the mean probability, how often answers are right, and how
            many there are.
        coverage: of the most certain 5%, 10%, …, 100% of the answers: the share, how often these
            are right, and the lowest probability among them; nothing where none can be left open.
        about: what has the probabilities: "answers", "labels" (of which several are given: right
            is one that is there), "entities", or "tags" of words.
    """

    error: float
    error_by_chance: float
    bins: list[tuple[float, float, int]]
    coverage: list[tuple[float, float, float]]
    about: str = "answers"

    @classmethod
    def of(
        cls,
        probabilities: Sequence[float] | np.ndarray,
        right: Sequence[bool] | np.ndarray,
        about: str = "answers",
    ) -> Reliability:
        """Compare the probabilities of N answers with whether they are right; those that are no
        numbers, of a model whose weights are none, are left out."""
        chances = np.asarray(probabilities, dtype=np.float64)
        finite = np.isfinite(chances)
        chances, correct = chances[finite], np.asarray(right, dtype=bool)[finite]
        if not len(chances):
            return cls(0.0, 0.0, [], [], about)
        order = np.argsort(-chances, kind="stable")
        shares = correct[order].cumsum() / np.arange(1, len(order) + 1)
        lowest = chances[order]
        counts = [max(1, round(share * len(order))) for share in _SHARES]
        return cls(
            calibration_error(chances, correct),
            _by_chance(chances),
            [
                (float(chances[inside].mean()), float(correct[inside].mean()), int(inside.sum()))
                for inside in _bins(chances)
            ],
            [
                (count / len(order), float(shares[count - 1]), float(lowest[count - 1]))
                for count in dict.fromkeys(counts if about in _LEFT_OPEN else ())
            ],
            about,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "about": self.about,
            "error": round(self.error, _DIGITS),
            "error_by_chance": round(self.error_by_chance, _DIGITS),
            "bins": [[round(value, _DIGITS) for value in values] for values in self.bins],
            "coverage": [[round(value, _DIGITS) for value in values] for values in self.coverage],
            "in_words": self.line(),
        }

    @property
    def beyond_chance(self) -> bool:
        """Whether the error is one that answers which are right exactly as often as they say have
        in about 1 of 20 cases: a sum over the bins of the sizes of normal numbers, each with
        2/π of its square in its mean."""
        squares = [number * chance * (1 - chance) for chance, _, number in self.bins]
        mean = sum(math.sqrt(2 / math.pi * square) for square in squares)
        deviation = math.sqrt((1 - 2 / math.pi) * sum(squares))
        count = sum(number for _, _, number in self.bins)
        return self.error * count > mean + _ONE_OF_20 * deviation

    def line(self) -> str:
        """Say how far the probabilities are off, and to which side."""
        named, right = probabilities_named(self.about), _RIGHT[self.about]
        count = sum(number for _, _, number in self.bins)
        if not self.beyond_chance:
            return (
                f"{named} are as they should be within chance: as many {right} as they say, as far "
                f"as {count:,} {self.about} tell"
            )
        said = sum(chance * number for chance, _, number in self.bins) / max(1, count)
        true = sum(share * number for _, share, number in self.bins) / max(1, count)
        side = f"they say {said:.0%} on average, and {true:.0%} {right}"
        if abs(said - true) < self.error / 2:
            side = "some are too high, some too low"
        return f"{named} are off by {100 * self.error:.1f} points on average: {side}"


@dataclass(frozen=True)
class Decisions:
    """The logits of decisions, and what is right.

    Attributes:
        logits: fp64 [N, K]; -inf where there were fewer to choose from.
        truth: int64 [N], which of them is right.
        examples: int64 [N], the example that a decision is about; there may be several.
        about: what is decided: "answers", "labels" (of which several are given) or "tags".
    """

    logits: np.ndarray
    truth: np.ndarray
    examples: np.ndarray
    about: str = "answers"

    @classmethod
    def of(cls, logits: Sequence[np.ndarray], truth: Sequence[int]) -> Decisions | None:
        """Join those of N examples, one of each, [K] or fewer; None where there are none."""
        if not logits:
            return None
        table = np.full((len(logits), max(map(len, logits))), -np.inf)
        for row, values in enumerate(logits):
            table[row, : len(values)] = values
        return cls(table, np.asarray(truth, dtype=np.int64), np.arange(len(truth)))


@dataclass(frozen=True)
class Calibration:
    """A temperature that was fitted, and what it is worth.

    Attributes:
        temperature: that logits are divided by: above 1 where probabilities were too extreme.
        error_before: the expected calibration error without it.
        error_after: with it, each fifth of the examples by the temperature of the others.
        num_examples: that it was fitted on.
        helps: whether the loss of each fifth by the temperature of the others is lower than
            without one.
        about: what has the probabilities: see :class:`Decisions`.
    """

    temperature: float
    error_before: float
    error_after: float
    num_examples: int
    helps: bool
    about: str = "answers"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        names = ("about", "temperature", "error_before", "error_after", "num_examples")
        return {name: getattr(self, name) for name in names}

    def line(self) -> str:
        """Say what was done."""
        if not self.helps:
            return (
                "no temperature makes the probabilities better on validation examples that it was "
                "not fitted on; the head stays as it is"
            )
        return (
            f"calibrated: a temperature of {self.temperature:.2f}, fitted on "
            f"{self.num_examples:,} validation examples, is in the head; it makes "
            f"{probabilities_named(self.about)} better on examples that it was not fitted on, too"
        )


def probabilities_named(about: str) -> str:
    """Return "probabilities", with what they are of where it is not answers."""
    return "probabilities" if about == "answers" else f"probabilities of {about}"


def calibration_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    """Compute the expected calibration error of answers that are given with `probabilities`, fp64
    [N], and are `right` or not, bool [N] (Guo et al. 2017, equation 3)."""
    total = sum(
        abs(float(probabilities[inside].sum()) - float(right[inside].sum()))
        for inside in _bins(probabilities)
    )
    return total / max(1, len(probabilities))


def _by_chance(probabilities: np.ndarray) -> float:
    """Estimate the mean error of answers that are right exactly as often as `probabilities` say,
    fp64 [N]: how far a sum of so many draws is from its mean, by the normal distribution."""
    spreads = (
        math.sqrt(2 / math.pi * float((chances * (1 - chances)).sum()))
        for chances in (probabilities[inside] for inside in _bins(probabilities))
    )
    return sum(spreads) / max(1, len(probabilities))


def calibrate(decisions: Decisions | None) -> Calibration | None:
    """Fit a temperature, and measure what it is worth.

    Returns:
        None where they are about fewer than 50 examples, or where a number is not finite.
    """
    if decisions is None:
        return None
    table, right = decisions.logits, decisions.truth
    known = np.unique(decisions.examples)
    if len(known) < LEAST_EXAMPLES or np.isnan(table).any() or (table == np.inf).any():
        return None
    divided = divided_by_others(decisions).logits
    return Calibration(
        _fitted(table, right),
        _error_of(table, right, decisions.about),
        _error_of(divided, right, decisions.about),
        len(known),
        _loss(divided, right) < _loss(table, right),
        decisions.about,
    )


def divided_by_others(decisions: Decisions) -> Decisions:
    """Return the decisions with the logits of each fifth of the examples divided by the temperature
    that is fitted to the others."""
    table, right = decisions.logits, decisions.truth
    known, numbers = np.unique(decisions.examples, return_inverse=True)
    folds = (generator(0, "calibration folds").permutation(len(known)) % _FOLDS)[numbers]
    divided = np.empty_like(table)
    for fold in range(_FOLDS):
        inside = folds == fold
        divided[inside] = table[inside] / _fitted(table[~inside], right[~inside])
    return replace(decisions, logits=divided)


def probabilities_of(table: np.ndarray) -> np.ndarray:
    """Return the softmax of logits fp64 [N, K], by the sums that answers are made with."""
    powers = np.exp(table - table.max(1, keepdims=True))
    chances: np.ndarray = powers / powers.sum(1, keepdims=True)
    return chances


def _error_of(table: np.ndarray, right: np.ndarray, about: str) -> float:
    chances = np.exp(_log_softmax(table))
    if about == "labels":  # as their report counts: the probability that a label is there
        return calibration_error(chances[:, 1], right == 1)
    return calibration_error(chances.max(1), table.argmax(1) == right)


def _loss(table: np.ndarray, right: np.ndarray) -> float:
    """Return the summed cross-entropy, in nats."""
    return -float(_log_softmax(table)[np.arange(len(right)), right].sum())


def _fitted(table: np.ndarray, right: np.ndarray) -> float:
    """Return the temperature with the lowest loss of `table` [N, K]; far from 1 costs a little."""
    from scipy.optimize import minimize_scalar

    def cost(exponent: float) -> float:
        return _loss(table / math.exp(exponent), right) + 0.5 * (exponent / _ORDINARY) ** 2

    bounds = (math.log(_LOWEST), math.log(_HIGHEST))
    return math.exp(float(minimize_scalar(cost, bounds=bounds, method="bounded").x))


def _log_softmax(table: np.ndarray) -> np.ndarray:
    shifted = table - table.max(1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return result


def _bins(probabilities: np.ndarray) -> list[np.ndarray]:
    """Return which of N probabilities are in each bin that has any, bool [N]."""
    numbers = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    return [numbers == number for number in np.unique(numbers)]
