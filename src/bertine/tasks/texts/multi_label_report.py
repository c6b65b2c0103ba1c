"""The result of evaluating a classifier with many labels.

Shape legend: N examples, K labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertine.options.names import option
from bertine.tasks.calibration import Reliability
from bertine.tasks.metrics import mean_log_loss
from bertine.tasks.report import TaskReport, label_lines
from bertine.tasks.worst import worst_lines
from bertine.terminal.console import counted


def multi_label_scores(
    truth: np.ndarray, answers: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """Compute micro_f1 and macro_f1 (0 where there is nothing to find and nothing found), accuracy
    (all labels of an example right), loss (mean binary cross-entropy in nats).

    Args:
        truth: bool [N, K].
        answers: bool [N, K].
        probabilities: fp64 [N, K].
    """
    right, actual, given = (truth & answers).sum(0), truth.sum(0), answers.sum(0)
    return {
        "micro_f1": float(_share(2 * right.sum(), actual.sum() + given.sum())),
        "macro_f1": float(_share(2 * right, actual + given).mean()),
        "accuracy": float((truth == answers).all(-1).mean()),
        "loss": mean_log_loss(np.where(truth, probabilities, 1.0 - probabilities)),
    }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return `part` / `whole`; 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


@dataclass(repr=False)
class MultiLabelReport(TaskReport):
    """The scores of a classifier with many labels.

    Attributes:
        labels: in the order of the head's outputs.
        metrics: scores by name, as fractions of 1; ``loss`` in nats.
        per_label: for each label ``precision``, ``recall``, ``f1``, how often it is there
            (``support``) and how often it was given (``predicted``).
        num_examples: that were scored.
        collapsed: whether every example got the same labels although they differ.
        reliability: how often a label is there, by its probability.
    """

    labels: tuple[str, ...]
    metrics: dict[str, float]
    per_label: dict[str, dict[str, float]]
    num_examples: int
    collapsed: bool
    reliability: Reliability

    facts = ("num_examples", "metrics", "labels", "per_label", "collapsed", "reliability")

    @classmethod
    def of(
        cls,
        labels: tuple[str, ...],
        truth: np.ndarray,
        answers: np.ndarray,
        probabilities: np.ndarray,
    ) -> MultiLabelReport:
        """Score answers; the arrays are those of :func:`multi_label_scores`."""
        right, support, predicted = (truth & answers).sum(0), truth.sum(0), answers.sum(0)
        precision, recall = _share(right, predicted), _share(right, support)
        f1 = _share(2 * right, support + predicted)
        per_label = {
            label: {
                "precision": float(precision[index]),
                "recall": float(recall[index]),
                "f1": float(f1[index]),
                "support": int(support[index]),
                "predicted": int(predicted[index]),
            }
            for index, label in enumerate(labels)
        }
        same = bool((answers == answers[:1]).all() and not (truth == truth[:1]).all())
        scores = multi_label_scores(truth, answers, probabilities)
        reliability = Reliability.of(probabilities.ravel(), truth.ravel(), "labels")
        return cls(labels, scores, per_label, len(truth), same, reliability)

    def lines(self) -> list[str]:
        """Return the scores, how far probabilities are off, the warning of a collapse, and the
        labels with their scores, the most frequent first."""
        lines = [self.headline(counted(self.num_examples, "example"), self.metrics, ("loss",))]
        if self.reliability.bins:
            lines.append(self.reliability.line())
        if self.collapsed:
            lines.append(
                "collapsed: every example got the same labels; train again with another seed, "
                f"more epochs, a lower threshold or {option('class_weights', 'balanced')}"
            )
        lines.extend(self.notes)
        return lines + label_lines(self.per_label) + worst_lines(self.worst)
