"""Calibrate probabilities, form sets of labels with a given coverage, and decide by cost.

Shape legend: N answers, K labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertine.core.console import visible_list
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.rng import generator
from bertine.core.scores import ranking, wilson_interval
from bertine.core.strict_json import Jsonable
from bertine.core.text import briefly, number_in
from bertine.data.tables import Table, TableRow
from bertine.tasks.labels import known_labels

# Reliability: how often answers with a certain probability are right, and a temperature that makes
# both agree (Guo et al. 2017, arXiv 1706.04599).

#: Bins of the expected calibration error, of equal width (Guo et al. 2017, section 2).
BINS = 15
#: The fewest answers that show how reliable probabilities are.
LEAST_EXAMPLES = 50
#: Bounds of a temperature; and the usual size of its logarithm, a prior that counts as much as a
#: few examples: if all answers are right, the best temperature would be 0.
_LOWEST, _HIGHEST, _ORDINARY = 0.2, 20.0, 0.5
#: Parts of the examples, each of which is judged with the temperature of the others.
_FOLDS = 5
#: Digits in output: the last bits of a probability depend on the other texts in the batch.
_DIGITS = 6
#: The kinds of results that can be left open below a probability.
_LEFT_OPEN = ("answers", "entities")
#: The kind of result with probabilities → the words for a right one.
_RIGHT = {
    "answers": "are right",
    "labels": "are there",
    "entities": "are right",
    "tags": "are right",
}
#: A normally distributed number exceeds this by chance in 1 of 20 cases.
_ONE_OF_20 = 1.645
#: Shares of answered texts for which the accuracy is computed.
_SHARES = tuple(round(0.05 * number, 2) for number in range(1, 21))


@dataclass(frozen=True)
class Reliability(Jsonable):
    """The share of right answers, by their probability.

    Attributes:
        error: the expected calibration error: the mean difference between the probability of an
            answer and how often such answers are right, over 15 bins.
        error_by_chance: its mean if all probabilities were right: with few examples it is not 0.
        bins: of each non-empty bin the mean probability, how often answers are right, and their
            number.
        coverage: for the most certain 5%, 10%, …, 100% of the answers: the share, how often these
            are right, and the lowest probability among them; empty if none can be left open.
        about: the kind of result with probabilities: "answers", "labels" (if several are predicted:
            right is one that applies), "entities", or "tags" of words.
    """

    error: float
    error_by_chance: float
    bins: list[tuple[float, float, int]]
    coverage: list[tuple[float, float, float]]
    about: str = "answers"

    json_keys = ("about", "error", "error_by_chance", "bins", "coverage", "in_words=line")
    json_digits = _DIGITS

    @classmethod
    def of(
        cls,
        probabilities: Sequence[float] | np.ndarray,
        right: Sequence[bool] | np.ndarray,
        about: str = "answers",
    ) -> Reliability:
        """Compare the probabilities of N answers with whether they are right; NaN, from a model
        whose weights are not finite, is left out."""
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

    @property
    def beyond_chance(self) -> bool:
        """Whether the error is larger than what answers that are right exactly as often as they say
        have in about 19 of 20 cases: a sum over the bins of absolute normal numbers, each with
        2/π of its square in its mean."""
        squares = [number * chance * (1 - chance) for chance, _, number in self.bins]
        mean = sum(math.sqrt(2 / math.pi * square) for square in squares)
        deviation = math.sqrt((1 - 2 / math.pi) * sum(squares))
        count = sum(number for _, _, number in self.bins)
        return self.error * count > mean + _ONE_OF_20 * deviation

    def line(self) -> str:
        """Describe how far the probabilities are off, and in which direction."""
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
    """The logits of decisions, and the right choices.

    Attributes:
        logits: fp64 [N, K]; -inf for missing choices.
        truth: int64 [N], the right choice.
        examples: int64 [N], the example that a decision is about; there may be several.
        about: the kind of decision: "answers", "labels" (if several are predicted) or "tags".
    """

    logits: np.ndarray
    truth: np.ndarray
    examples: np.ndarray
    about: str = "answers"

    @classmethod
    def of(cls, logits: Sequence[np.ndarray], truth: Sequence[int]) -> Decisions | None:
        """Join those of N examples, one for each, [K] or fewer; None if there are none."""
        if not logits:
            return None
        table = np.full((len(logits), max(map(len, logits))), -np.inf)
        for row, values in enumerate(logits):
            table[row, : len(values)] = values
        return cls(table, np.asarray(truth, dtype=np.int64), np.arange(len(truth)))


@dataclass(frozen=True)
class Calibration(Jsonable):
    """A fitted temperature, and its effect.

    Attributes:
        temperature: the divisor of logits: above 1 if probabilities were too extreme.
        error_before: the expected calibration error without it.
        error_after: with it, each fifth of the examples by the temperature of the others.
        num_examples: number of examples it was fitted on.
        helps: whether the loss of each fifth by the temperature of the others is lower than without
            one.
        about: the kind of decision; see :class:`Decisions`.
    """

    temperature: float
    error_before: float
    error_after: float
    num_examples: int
    helps: bool
    about: str = "answers"

    json_keys = ("about", "temperature", "error_before", "error_after", "num_examples")

    def line(self) -> str:
        """Describe the calibration and its effect."""
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
    """Return "probabilities", with their kind if they are not those of answers."""
    return "probabilities" if about == "answers" else f"probabilities of {about}"


def calibration_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    """Compute the expected calibration error of answers with `probabilities`, fp64 [N], that are
    `right` or not, bool [N] (Guo et al. 2017, equation 3)."""
    total = sum(
        abs(float(probabilities[inside].sum()) - float(right[inside].sum()))
        for inside in _bins(probabilities)
    )
    return total / max(1, len(probabilities))


def _by_chance(probabilities: np.ndarray) -> float:
    """Estimate the mean error of answers that are right exactly as often as `probabilities` say,
    fp64 [N]: the mean deviation of a sum of as many draws, by the normal distribution."""
    spreads = (
        math.sqrt(2 / math.pi * float((chances * (1 - chances)).sum()))
        for chances in (probabilities[inside] for inside in _bins(probabilities))
    )
    return sum(spreads) / max(1, len(probabilities))


def calibrate(decisions: Decisions | None) -> Calibration | None:
    """Fit a temperature, and measure its effect.

    Returns:
        None if there are fewer than 50 examples, or a number is not finite.
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
    """Return the softmax of logits fp64 [N, K], computed as for answers."""
    powers = np.exp(table - table.max(1, keepdims=True))
    chances: np.ndarray = powers / powers.sum(1, keepdims=True)
    return chances


def _error_of(table: np.ndarray, right: np.ndarray, about: str) -> float:
    chances = np.exp(_log_softmax(table))
    if about == "labels":  # as in their report: the probability that a label applies
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
    """Return the members of each non-empty bin of N probabilities, bool [N]."""
    numbers = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    return [numbers == number for number in np.unique(numbers)]


# Conformal prediction: sets of labels that contain the right one as often as requested (split
# conformal prediction).
#
# The probability of the right label is recorded for n labelled examples that the model was not
# trained on. A set then has every label whose probability is at least the k-th highest of these, k
# = ⌈(n + 1) c⌉ for a coverage c: the least ambiguous sets (Sadinle, Lei and Wasserman 2019, arXiv
# 1609.00451, section 3; LAC). For a text drawn like the examples, the right label is in its set
# with probability c at least, even if the model is bad; a bad model has large sets. This holds over
# all texts together, not for each label or text.
#
# The most probable label is always in a set, so none is empty: that can only raise the coverage.
#
# The guarantee is weaker because the examples have other uses: the saved epoch is chosen on them,
# and the temperature is fitted on them. So each fifth of them is divided by the temperature of the
# others before its probabilities are recorded: no example's label affects its own temperature.
#
# Shape legend: N texts, K labels.

#: The separator of the labels of a set in a column.
SEPARATOR = "|"
#: Coverages with a stored bound: 0.5, 0.505, …, 0.995.
COVERAGES = tuple(round(0.5 + 0.005 * number, 3) for number in range(100))


@dataclass(frozen=True)
class Conformal:
    """The least probability of a label in a set, by the coverage of the sets.

    Attributes:
        num_examples: n, the number of examples behind the bounds.
        least: the bound of each of :data:`COVERAGES` that n examples suffice for.
    """

    num_examples: int
    least: Mapping[float, float]

    @classmethod
    def of(cls, decisions: Decisions | None) -> Conformal | None:
        """Compute the bounds from decisions, each about a different example.

        Returns:
            None if there are fewer than 50, several labels per example, or non-finite numbers.
        """
        if decisions is None:
            return None
        table, truth = decisions.logits, decisions.truth
        count = len(table)
        if count < LEAST_EXAMPLES or len(np.unique(decisions.examples)) != count:
            return None
        if np.isnan(table).any() or (table == np.inf).any():
            return None
        right = np.sort(probabilities_of(table)[np.arange(count), truth])[::-1]
        ranks = {coverage: math.ceil((count + 1) * coverage - 1e-9) for coverage in COVERAGES}
        return cls(count, {c: float(right[k - 1]) for c, k in ranks.items() if k <= count})

    @classmethod
    def from_facts(cls, facts: Any) -> Conformal | None:
        """Read the result of :meth:`to_dict`; return None for anything else."""
        if not isinstance(facts, dict) or not isinstance(facts.get("least"), dict):
            return None
        count = facts.get("num_examples")
        least: dict[float, float] = {}
        for coverage in COVERAGES:
            value = facts["least"].get(str(coverage))
            if isinstance(value, int | float) and 0 <= value <= 1:
                least[coverage] = float(value)
        return cls(count, least) if isinstance(count, int) and least else None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "num_examples": self.num_examples,
            "least": {str(coverage): bound for coverage, bound in self.least.items()},
        }

    def bound(self, coverage: float) -> float:
        """Return the least probability of a label in sets of a `coverage`, from 0.5 on; between two
        stored coverages that of the higher one.

        Raises:
            BertineError: there were too few examples for it.
        """
        for known, bound in sorted(self.least.items()):
            if known >= coverage - 1e-9:
                return bound
        most = max(self.least)
        raise BertineError(
            f"{option('coverage')} is {coverage:g}, but the {self.num_examples:,} validation "
            f"examples of the fine-tuning are enough for {most:g} at most"
        )


def label_sets(probabilities: np.ndarray, least: float) -> list[list[int]]:
    """Return for each row of probabilities, fp64 [N, K], the numbers of those that reach `least`,
    and always that of the highest; the most probable first."""
    sets = []
    for row in probabilities:
        members = np.flatnonzero(row >= min(least, row.max()))
        sets.append(members[ranking(row[members])].tolist())
    return sets


def coverage_line(
    asked: float, sets: Sequence[Sequence[str] | None], labels: Sequence[str]
) -> tuple[dict[str, float], str]:
    """Compare sets with the labels of their texts: return the coverage and the mean size as
    metrics, and in words."""
    result = [(label, label in (chosen or ())) for chosen, label in zip(sets, labels, strict=True)]
    inside = sum(there for _, there in result)
    sizes = [len(chosen or ()) for chosen in sets]
    metrics = {"coverage": inside / len(result), "mean_set_size": sum(sizes) / len(sizes)}
    low, high = wilson_interval(inside, len(result))
    of_label: dict[str, list[bool]] = {}
    for label, there in result:
        of_label.setdefault(label, []).append(there)
    rarest = min(of_label, key=lambda label: sum(of_label[label]) / len(of_label[label]))
    members = of_label[rarest]
    return metrics, (
        f"sets of labels for a coverage of {asked:.1%}: the label is in {metrics['coverage']:.1%} "
        f"of them (95% interval {low:.1%} to {high:.1%}), with {metrics['mean_set_size']:.2f} "
        f"labels on average; least often of {rarest!r}: {sum(members) / len(members):.1%} of "
        f"{len(members):,}"
    )


# Costs: the label whose expected cost, under the probabilities of all labels, is least (Elkan 2001,
# "The foundations of cost-sensitive learning", section 1.2; leaving a text to people at a separate
# cost is the rule of Chow 1970, doi 10.1109/TIT.1970.1054406).
#
# Shape legend: N answers, K labels.

#: The column with the cost of giving no answer.
NO_ANSWER = "(no answer)"


@dataclass(frozen=True)
class Costs:
    """The costs of answers.

    Attributes:
        table: [K][K], by the true label and the answer, in the order of the task's labels.
        no_answer: [K], the cost of no answer, by the true label; None: every text is answered.
        source: the file with the costs, for messages.
    """

    table: tuple[tuple[float, ...], ...]
    no_answer: tuple[float, ...] | None = None
    source: str = ""

    @classmethod
    def read(cls, path: Path | str, labels: Sequence[str]) -> Costs:
        """Read a csv or tsv file. Its header has the labels, and may have ``(no answer)``, after
        the name of the first column, which has the true label of each row.

        Raises:
            BertineError: a label is missing, unknown or repeated, among the rows or the columns; a
                cost is not a number; an error of reading the table.
        """
        source = str(path)
        rows: dict[str, TableRow] = {}
        with Table(path) as table:
            names = table.columns
            if len(names) < 2:
                raise BertineError(
                    f"{source}: has one column; the first is to have the true label of each row, "
                    f"the others are named as the labels: {visible_list(labels)}"
                )
            first, columns = names[0], names[1:]
            _check(source, "column", columns, [*labels, NO_ANSWER], labels)
            for row in table:
                label = table.label(row, first)
                if label in rows:
                    raise BertineError(f"{source}:{row.line}: a second row of the label {label!r}")
                rows[label] = row
                if len(rows) > len(labels):
                    break
            _check(source, "row", list(rows), labels, labels)
            numbers = {
                label: {name: _number(source, row, name) for name in columns}
                for label, row in rows.items()
            }
        return cls(
            tuple(tuple(numbers[true][answer] for answer in labels) for true in labels),
            tuple(numbers[true][NO_ANSWER] for true in labels) if NO_ANSWER in columns else None,
            source,
        )

    def decide(self, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose the label of least expected cost for each row of probabilities, fp64 [N, K]; ties
        go to the most probable.

        Returns:
            The labels, int64 [N], and whether no answer would cost less, bool [N].
        """
        expected = probabilities @ np.array(self.table)
        least = expected.min(1, keepdims=True)
        cheapest = expected <= least + 1e-12 * (1 + np.abs(least))
        best = np.where(cheapest, probabilities, -1.0).argmax(1)
        if self.no_answer is None:
            return best, np.zeros(len(best), dtype=bool)
        return best, probabilities @ np.array(self.no_answer) < least[:, 0]

    def mean(self, truth: np.ndarray, answers: np.ndarray, left_open: np.ndarray) -> float:
        """Compute the mean cost of answers, int64 [N], to texts with the labels `truth`, int64 [N];
        bool [N] marks those that are left open."""
        paid = np.array(self.table)[truth, answers]
        if self.no_answer is not None:
            paid = np.where(left_open, np.array(self.no_answer)[truth], paid)
        return float(paid.mean())


def _check(
    source: str, what: str, names: Sequence[str], allowed: Sequence[str], wanted: Sequence[str]
) -> None:
    for name in names:
        if name not in allowed:
            hint = known_labels(name, tuple(wanted))
            raise BertineError(
                f"{source}: the {what} {briefly(name)} is not one of the labels{hint}"
            )
    for label in wanted:
        if label not in names:
            raise BertineError(f"{source}: there is no {what} for the label {label!r}; add one")


def _number(source: str, row: TableRow, column: str) -> float:
    value = row.values.get(column)
    number = number_in(value)
    if not math.isfinite(number) or isinstance(value, bool):
        raise BertineError(
            f"{source}:{row.line}: the cost under {column!r} is {briefly(value)}, but must be a "
            "number"
        )
    return number
