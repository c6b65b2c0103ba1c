"""The result of evaluating a classifier with many labels.

Shape legend: N examples, K labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bertine.options.names import option
from bertine.tasks.report import label_lines
from bertine.tasks.worst import WorstExample, worst_lines
from bertine.terminal.console import counted
from bertine.terminal.shown import Shown


def multi_label_scores(
    truth: np.ndarray, answers: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """micro_f1 and macro_f1 (0 where there is nothing to find and nothing found), accuracy (all
    labels of an example right), loss (mean binary cross-entropy in nats).

    Args:
        truth: bool [N, K].
        answers: bool [N, K].
        probabilities: fp64 [N, K].
    """
    from sklearn import metrics as sk

    tiny = np.finfo(np.float64).tiny
    given = np.maximum(np.where(truth, probabilities, 1.0 - probabilities), tiny)
    return {
        "micro_f1": float(sk.f1_score(truth, answers, average="micro", zero_division=0)),
        "macro_f1": float(sk.f1_score(truth, answers, average="macro", zero_division=0)),
        "accuracy": float((truth == answers).all(-1).mean()),
        "loss": float(-np.log(given).mean()),
    }


@dataclass(repr=False)
class MultiLabelReport(Shown):
    """Scores of a classifier with many labels.

    Attributes:
        labels: in the order of the head's outputs.
        metrics: scores by name, as fractions of 1; ``loss`` in nats.
        per_label: for each label ``precision``, ``recall``, ``f1``, how often it is there
            (``support``) and how often it was given (``predicted``).
        num_examples: that were scored.
        collapsed: whether every example got the same labels although they differ.
        notes: what else to know, e.g. how many texts were cut.
        source: the file of the examples.
        worst: the examples predicted worst, where they were asked for.
    """

    labels: tuple[str, ...]
    metrics: dict[str, float]
    per_label: dict[str, dict[str, float]]
    num_examples: int
    collapsed: bool
    notes: list[str] = field(default_factory=list)
    source: str = ""
    worst: list[WorstExample] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        labels: tuple[str, ...],
        truth: np.ndarray,
        answers: np.ndarray,
        probabilities: np.ndarray,
    ) -> MultiLabelReport:
        """The report of answers; the arrays are those of :func:`multi_label_scores`."""
        from sklearn import metrics as sk

        precision, recall, f1, support = sk.precision_recall_fscore_support(
            truth, answers, average=None, zero_division=0
        )
        each = {
            label: {
                "precision": float(precision[index]),
                "recall": float(recall[index]),
                "f1": float(f1[index]),
                "support": int(support[index]),
                "predicted": int(answers[:, index].sum()),
            }
            for index, label in enumerate(labels)
        }
        same = bool((answers == answers[:1]).all() and not (truth == truth[:1]).all())
        scores = multi_label_scores(truth, answers, probabilities)
        return cls(labels, scores, each, len(truth), same)

    def lines(self) -> list[str]:
        """The scores, the warning of a collapse, and the labels with their scores, the most
        frequent first."""
        scores = ", ".join(
            f"{name} {value:.4f}" if name == "loss" else f"{name} {value:.2%}"
            for name, value in self.metrics.items()
        )
        origin = f" of {self.source}" if self.source else ""
        lines = [f"{counted(self.num_examples, 'example')}{origin}: {scores}"]
        if self.collapsed:
            lines.append(
                "collapsed: every example got the same labels; train again with another seed, "
                f"more epochs, a lower threshold or {option('class_weights', 'balanced')}"
            )
        lines.extend(self.notes)
        return lines + label_lines(self.per_label) + worst_lines(self.worst)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "num_examples": self.num_examples,
            "metrics": self.metrics,
            "labels": list(self.labels),
            "per_label": self.per_label,
            "collapsed": self.collapsed,
            "notes": self.notes,
        }
