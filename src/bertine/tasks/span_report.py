"""The result of evaluating span extraction, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SpanReport:
    """Scores of answers to questions.

    Attributes:
        metrics: exact_match and f1, as fractions of 1; where questions may have no answer also
            ``has_answer_…`` and ``no_answer_…``, over the two kinds apart.
        num_examples: questions.
        num_answerable: of them those that have an answer.
        null_threshold: above these null odds no answer was given; None where the model always
            answers.
        tuned: whether the threshold was tuned on these very questions.
        best_threshold: the one that would give the best F1 here, and that F1; None where the
            model always answers.
        collapsed: whether all questions, or none, were said to have no answer, though there are
            both kinds.
        notes: what else to know, e.g. how many questions were cut.
        source: the file of the questions.
    """

    metrics: dict[str, float]
    num_examples: int
    num_answerable: int
    null_threshold: float | None = None
    tuned: bool = False
    best_threshold: tuple[float, float] | None = None
    collapsed: bool = False
    notes: list[str] = field(default_factory=list)
    source: str = ""

    @property
    def majority_share(self) -> float | None:
        """The share of questions that have no answer: what always giving none would get."""
        silent = self.num_examples - self.num_answerable
        return silent / self.num_examples if silent else None

    def lines(self) -> list[str]:
        """Scores beside what always giving no answer would get, the threshold, a collapse."""
        scores = ", ".join(f"{name} {value:.2%}" for name, value in self.metrics.items())
        origin = f" of {self.source}" if self.source else ""
        lines = [f"{self.num_examples} questions{origin}: {scores}"]
        if self.majority_share is not None:
            lines.append(f"always saying that there is no answer: {self.majority_share:.2%}")
            if self.null_threshold is None:
                lines.append(
                    "the model was trained on questions that all have an answer, and always gives "
                    "one"
                )
        if self.null_threshold is not None and self.tuned:
            lines.append(f"null threshold {self.null_threshold:.4f}, tuned on these questions")
        elif self.null_threshold is not None:
            line = f"null threshold {self.null_threshold:.4f}, from the model"
            if self.best_threshold is not None:
                threshold, score = self.best_threshold
                line += f"; the best for these questions is {threshold:.4f}, with f1 {score:.2%}"
            lines.append(line)
        if self.collapsed:
            lines.append(
                "collapsed: the model gives an answer to every question, or to none; train again "
                "with another seed, a lower learning rate or more epochs"
            )
        return lines + self.notes

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "num_examples": self.num_examples,
            "num_answerable": self.num_answerable,
            "metrics": self.metrics,
            "null_threshold": self.null_threshold,
            "tuned": self.tuned,
            "best_threshold": None if self.best_threshold is None else list(self.best_threshold),
            "majority_share": self.majority_share,
            "collapsed": self.collapsed,
            "notes": self.notes,
        }
