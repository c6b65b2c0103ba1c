"""Confident learning: which labels are probably wrong, from what models say that have not seen them
(Northcutt, Jiang and Chuang 2021, arXiv 1911.00068).

Shape legend: N examples, K labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertine.scores import ranking

#: Of a probability whose logarithm is taken.
_LEAST = 1e-12


@dataclass(frozen=True)
class LabelNoise:
    """What N labels look like beside the probabilities of models that have not seen them.

    Attributes:
        given: int64 [N], the labels.
        counts: int64 [K, K], the confident joint: examples with a label (a row) for which a model
            is as sure of some label (a column) as it is on average of examples that have it.
        suggested: int64 [N], that label of each example where it is more probable than its own,
            else its own.
        log_odds: fp64 [N], the logarithm of the probability of the label divided by that of the
            suggested one, or of the most probable other one where no other is suggested: the lower,
            the more probably the label is wrong.
        share: the estimated share of wrong labels.
    """

    given: np.ndarray
    counts: np.ndarray
    suggested: np.ndarray
    log_odds: np.ndarray
    share: float

    @property
    def wrong(self) -> np.ndarray:
        """bool [N], whether another label is suggested."""
        return np.asarray(self.suggested != self.given)

    @property
    def suspects(self) -> np.ndarray:
        """int64, the numbers of the examples for which another label is suggested, the surest
        first, of equals the first of the file."""
        order = ranking(-self.log_odds)
        return order[self.wrong[order]]


def find_noise(probabilities: np.ndarray, labels: np.ndarray) -> LabelNoise:
    """Find labels that are probably wrong.

    Args:
        probabilities: fp64 [N, K], by models that were trained without the example.
        labels: int64 [N]; each of the K occurs.
    """
    numbers = np.arange(len(labels))
    kinds = probabilities.shape[1]
    own = probabilities[numbers, labels]
    # How sure a model is on average of a label where it is given (equation 2 of the paper).
    thresholds = np.array([own[labels == kind].mean() for kind in range(kinds)])
    sure = np.where(probabilities >= thresholds, probabilities, -1.0)
    confident = sure.max(1) >= 0
    best = sure.argmax(1)
    counts = np.zeros((kinds, kinds), dtype=np.int64)
    np.add.at(counts, (labels[confident], best[confident]), 1)
    # A rare label has a low threshold: it is suggested only where it is the more probable one too.
    suggested = np.where(confident & (probabilities[numbers, best] > own), best, labels)
    others = probabilities.copy()
    others[numbers, labels] = 0.0
    other = np.where(suggested != labels, probabilities[numbers, suggested], others.max(1))
    # The ratio, not the difference: where a model is never sure, the probabilities of a wrong label
    # and of the right one are both low and lie close to each other.
    log_odds = np.log(np.maximum(own, _LEAST)) - np.log(np.maximum(other, _LEAST))
    return LabelNoise(labels, counts, suggested, log_odds, _share(counts, labels))


def _share(counts: np.ndarray, labels: np.ndarray) -> float:
    """Estimate the share of wrong labels: off the diagonal of the joint, whose rows are scaled to
    how often each label is given."""
    rows = counts.sum(1)
    given = np.bincount(labels, minlength=len(counts))
    wrong = np.where(rows > 0, 1 - np.diag(counts) / np.maximum(rows, 1), 0.0)
    return float((wrong * given).sum() / len(labels))
