"""Count the test passages that a model gets right, and compute how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertine.intervals import mean_interval


@dataclass(frozen=True)
class DemoScores:
    """One kind of model on the test passages, trained several times with other labelled passages.

    Attributes:
        name: which kind, for people.
        articles: the article of each test passage.
        right: for each training, whether each test passage was answered rightly.
    """

    name: str
    articles: Sequence[str]
    right: Sequence[Sequence[bool]]

    @property
    def accuracies(self) -> list[float]:
        """The accuracy of each training."""
        return [statistics.fmean(run) for run in self.right]

    @property
    def accuracy(self) -> float:
        """The mean of all trainings."""
        return statistics.fmean(self.accuracies)

    @property
    def by_article(self) -> dict[str, float]:
        """The share of right answers to the passages of each article. Passages of one article
        resemble each other; articles are independent."""
        shares: dict[str, list[bool]] = {}
        for run in self.right:
            for article, right in zip(self.articles, run, strict=True):
                shares.setdefault(article, []).append(right)
        return {article: statistics.fmean(answers) for article, answers in shares.items()}

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of `accuracy`: what other articles might give."""
        low, high = mean_interval(list(self.by_article.values()))
        return max(0.0, low), min(1.0, high)

    @property
    def interval_text(self) -> str:
        """The interval in words."""
        low, high = self.interval
        return f"95% interval {100 * low:.1f} to {100 * high:.1f}%"

    def line(self, chance: float) -> str:
        """Say for the terminal how many answers are right."""
        return (
            f"{self.name}: {self.accuracy:.1%} of {len(self.articles):,} test passages right "
            f"(guessing: {chance:.1%})"
        )

    def ahead_of(self, other: DemoScores) -> tuple[float, float, float]:
        """Compute how much more accurate this is than `other`, with the 95% interval. Both answer
        the same passages, so it is narrower than the intervals of the two would say."""
        mine, others = self.by_article, other.by_article
        low, high = mean_interval([mine[article] - others[article] for article in mine])
        return self.accuracy - other.accuracy, low, high

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON values."""
        return {
            "accuracy": self.accuracy,
            "interval_95": list(self.interval),
            "accuracy_of_each": self.accuracies,
            "test_passages": len(self.articles),
        }
