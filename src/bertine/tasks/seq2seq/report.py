"""What was written beside what was to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from bertine.tasks.report import TaskReport
from bertine.tasks.seq2seq.rouge import needs_all_alphabets, rouge_l, rouge_n, rouge_words
from bertine.tasks.worst import worst_lines
from bertine.terminal.console import counted, visible

#: Characters of a text in a report.
_SHOWN = 200


@dataclass(repr=False)
class WrittenTextReport(TaskReport):
    """The scores of written texts.

    Attributes:
        metrics: the means of rouge1, rouge2 and rougeL (F1), and exact_match.
        num_examples: that were scored.
        mean_words: of what was written, and of what was to be written, as ROUGE counts them.
        collapsed: whether the same was written for every text, although the targets differ.
        examples: some texts that were written, beside those that were to be.
    """

    metrics: dict[str, float]
    num_examples: int
    mean_words: tuple[float, float]
    collapsed: bool
    examples: list[tuple[str, str]] = field(default_factory=list)

    facts = ("num_examples", "metrics", "mean_words", "collapsed", "examples")

    def lines(self) -> list[str]:
        """Return the scores, a few texts, and the warning of a collapse."""
        ours, wanted = self.mean_words
        lines = [
            self.headline(counted(self.num_examples, "example"), self.metrics),
            f"{ours:.1f} words are written on average, {wanted:.1f} were to be",
        ]
        for written, target in self.examples:
            lines += [f"written: {_cut(written)}", f"     to be: {_cut(target)}"]
        if self.collapsed:
            lines.append(
                "collapsed: the same is written for every text; train longer, or with another "
                "learning rate"
            )
        return lines + self.notes + worst_lines(self.worst)


def text_scores(written: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """Return the means of the scores of texts that were written."""
    words = partial(rouge_words, all_alphabets=needs_all_alphabets(wanted))
    sums = dict.fromkeys(("rouge1", "rouge2", "rougeL", "exact_match"), 0.0)
    for text, target in zip(written, wanted, strict=True):
        ours, theirs = words(text), words(target)
        sums["rouge1"] += rouge_n(ours, theirs, 1)
        sums["rouge2"] += rouge_n(ours, theirs, 2)
        sums["rougeL"] += rouge_l(ours, theirs)
        sums["exact_match"] += text.split() == target.split()
    return {name: value / max(1, len(wanted)) for name, value in sums.items()}


def _cut(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
