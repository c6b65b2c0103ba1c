"""The scores of vectors on pairs of texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from bertine.intervals import correlation_interval
from bertine.tasks.report import TaskReport
from bertine.terminal.console import counted

#: What is not a share of 1.
_PLAIN = ("pearson", "spearman")


@dataclass(repr=False, kw_only=True)
class SimilarityReport(TaskReport):
    """The scores of a model's vectors.

    Attributes:
        num_examples: pairs with a score, or queries.
        num_texts: of queries, the texts that are searched; 0 of pairs with a score.
        metrics: ``spearman`` and ``pearson`` of cosines and scores; or ``ndcg@10``, ``mrr@10`` and
            ``recall@1``, ``@10`` and ``@100``.
    """

    facts: ClassVar[tuple[str, ...]] = ("num_examples", "num_texts", "metrics")

    num_examples: int = 0
    num_texts: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def collapsed(self) -> bool:
        """False: what a search finds is never the same for all."""
        return False

    def lines(self) -> list[str]:
        """Return what a person reads in the terminal."""
        size = counted(self.num_examples, "pair")
        if self.num_texts:
            size = f"{self.num_examples:,} queries, {counted(self.num_texts, 'text')} to find"
        lines = [self.headline(size, self.metrics, _PLAIN)]
        if "spearman" in self.metrics and self.num_examples > 3:
            low, high = correlation_interval(self.metrics["spearman"], self.num_examples)
            lines.append(f"95% interval of spearman: {low:.4f} to {high:.4f}")
        return [*lines, *self.notes]
