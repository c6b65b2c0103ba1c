"""Sets of labels that hold the right one as often as is asked for: split conformal prediction.

Of n labelled examples that the model was not trained on, the probability of the right label is
noted. A set then has every label whose probability is at least the k-th highest of these, k =
⌈(n + 1) c⌉ for a coverage c: the least ambiguous sets (Sadinle, Lei and Wasserman 2019, arXiv
1609.00451, section 3; LAC). For a text drawn like the examples, the right label is in its set with
probability c at least, whatever the model is worth; a bad model has large sets. This holds over all
texts together, not for each label or text.

The most probable label is always in a set, so none is empty: that can only raise the coverage.

What the examples are also used for weakens the promise: the epoch that is saved is chosen on them,
and the temperature is fitted on them. So each fifth of them is divided by the temperature of the
others before its probabilities are noted: no example's label has a part in its own temperature.

Shape legend: N texts, K labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertine.errors import BertineError
from bertine.intervals import wilson_interval
from bertine.options.names import option
from bertine.scores import ranking
from bertine.tasks.calibration import LEAST_EXAMPLES, Decisions, probabilities_of

#: What stands between the labels of a set in a column.
SEPARATOR = "|"
#: Coverages that a bound is kept for: 0.5, 0.505, …, 0.995.
COVERAGES = tuple(round(0.5 + 0.005 * number, 3) for number in range(100))


@dataclass(frozen=True)
class Conformal:
    """The least probability of a label in a set, by the coverage of the sets.

    Attributes:
        num_examples: n, that the bounds come from.
        least: the bound of each of :data:`COVERAGES` that so many examples are enough for.
    """

    num_examples: int
    least: Mapping[float, float]

    @classmethod
    def of(cls, decisions: Decisions | None) -> Conformal | None:
        """Take the bounds from decisions of which each is about one example.

        Returns:
            None where they are fewer than 50, about several labels of an example, or not finite.
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
        """Read what :meth:`to_dict` made; None of anything else."""
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
        """Return the least probability of a label in sets of a `coverage`, from 0.5 on; between
        two that are kept that of the higher one.

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
    and that of the highest; the most probable first."""
    sets = []
    for row in probabilities:
        members = np.flatnonzero(row >= min(least, row.max()))
        sets.append(members[ranking(row[members])].tolist())
    return sets


def coverage_line(
    asked: float, sets: Sequence[Sequence[str] | None], labels: Sequence[str]
) -> tuple[dict[str, float], str]:
    """Compare sets with the labels of their texts: the coverage and the mean size as metrics, and
    in words."""
    found = [(label, label in (chosen or ())) for chosen, label in zip(sets, labels, strict=True)]
    inside = sum(there for _, there in found)
    sizes = [len(chosen or ()) for chosen in sets]
    metrics = {"coverage": inside / len(found), "mean_set_size": sum(sizes) / len(sizes)}
    low, high = wilson_interval(inside, len(found))
    of_label: dict[str, list[bool]] = {}
    for label, there in found:
        of_label.setdefault(label, []).append(there)
    rarest = min(of_label, key=lambda label: sum(of_label[label]) / len(of_label[label]))
    members = of_label[rarest]
    return metrics, (
        f"sets of labels for a coverage of {asked:.1%}: the label is in {metrics['coverage']:.1%} "
        f"of them (95% interval {low:.1%} to {high:.1%}), with {metrics['mean_set_size']:.2f} "
        f"labels on average; least often of {rarest!r}: {sum(members) / len(members):.1%} of "
        f"{len(members):,}"
    )
