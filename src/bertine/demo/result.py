"""What the demo found: accuracies with their intervals, and the figures of every stage."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.console import human_time
from bertine.demo.budget import Plan
from bertine.demo.recipe import Recipe
from bertine.intervals import wilson_interval
from bertine.shown import Shown


@dataclass(frozen=True)
class Scores:
    """Fine-tuning runs of one kind that differ in their seeds only.

    Attributes:
        name: which kind, for people.
        validation: accuracy of each run on the validation passages.
        test: accuracy of each run on the test passages.
        num_test: test passages.
    """

    name: str
    validation: Sequence[float]
    test: Sequence[float]
    num_test: int

    @property
    def best(self) -> int:
        """The run that did best on the validation passages, the first of equals."""
        return max(range(len(self.validation)), key=lambda run: self.validation[run])

    @property
    def accuracy(self) -> float:
        """On the test passages, the mean of the runs."""
        return statistics.fmean(self.test)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of `accuracy` (Wilson): what another draw of as many passages might
        give. All runs answer the same passages, so more runs do not make it narrower."""
        return wilson_interval(round(self.accuracy * self.num_test), self.num_test)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "validation": list(self.validation),
            "test": list(self.test),
            "num_test": self.num_test,
            "test_mean": self.accuracy,
            "test_interval_95": list(self.interval),
        }


@dataclass(frozen=True, repr=False)
class DemoResult(Shown):
    """What ``bertine demo`` ended with.

    Attributes:
        out: its folder.
        recipe: what was asked for.
        plan: what the machine's speed allowed.
        seed: random seed.
        unigram_entropy: of the token store, in nats: the line to beat.
        mlm_loss, mlm_accuracy, nsp_accuracy: at the end of pre-training, means over the last
            lines of its log; on the text it trains on, in maskings it had not seen.
        tokens: seen in pre-training.
        tokens_per_second: of pre-training.
        majority: accuracy of always naming the most frequent author of the test passages.
        pretrained: fine-tuned after pre-training.
        untrained: fine-tuned without it.
        seconds: stage -> time taken.
    """

    out: Path
    recipe: Recipe
    plan: Plan
    seed: int
    unigram_entropy: float
    mlm_loss: float
    mlm_accuracy: float
    nsp_accuracy: float
    tokens: int
    tokens_per_second: float
    majority: float
    pretrained: Scores
    untrained: Scores
    seconds: dict[str, float]

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.out / "report.html"

    @property
    def model(self) -> Path:
        """The model directory that answers."""
        return self.out / "model"

    @property
    def pretrained_model(self) -> Path:
        """The model directory that fills masks."""
        length = self.recipe.phases[-1].max_seq_length
        return self.out / "pretraining" / f"length-{length}" / "model"

    @property
    def helped(self) -> bool:
        """Whether pre-training raised the accuracy beyond the 95% intervals."""
        return self.pretrained.interval[0] > self.untrained.interval[1]

    @property
    def gain(self) -> float:
        """How much accuracy pre-training added."""
        return self.pretrained.accuracy - self.untrained.accuracy

    @property
    def total_seconds(self) -> float:
        """Of the whole demo."""
        return sum(self.seconds.values())

    def verdict(self) -> str:
        """Whether pre-training helped, in one sentence."""
        points = 100 * self.gain
        if self.helped:
            return (
                f"Pre-training helped: {points:+.1f} points of accuracy on books that no stage "
                "had seen, more than the 95% intervals can explain."
            )
        why = (
            f"; it was cut short to {self.plan.steps:,} of {self.plan.wanted_steps:,} steps"
            if self.plan.steps < self.plan.wanted_steps
            else ""
        )
        return (
            f"No clear gain from pre-training this time: {points:+.1f} points, within the 95% "
            f"intervals{why}."
        )

    def next_steps(self) -> list[tuple[str, str]]:
        """(What one may do next, the command for it)."""
        mask = "She looked at him with tears in her [MASK]."
        return [
            ("fill a mask", f'bertine fill-mask {self.pretrained_model} "{mask}"'),
            (
                "score the model on the test passages",
                f"bertine evaluate {self.model} --data {self.out / 'passages' / 'test.csv'}",
            ),
            (
                "label texts of your own, one a line",
                f"bertine predict {self.model} --input my-texts.txt",
            ),
            ("what a model is", f"bertine inspect {self.model}"),
            ("a vocabulary of your own text", "bertine vocab my-texts/ --out my-tokenizer"),
        ]

    def lines(self) -> list[str]:
        """What the command prints at the end."""

        def row(name: str, share: float, interval: tuple[float, float] | None, note: str) -> str:
            bounds = "" if interval is None else f"{interval[0]:6.1%} to {interval[1]:5.1%}"
            return f"  {name:<24}{share:6.1%}   {bounds:<17}  {note}".rstrip()

        runs = len(self.pretrained.test)
        means = "mean of their runs" if runs > 1 else "one run"
        return [
            f"accuracy on {self.pretrained.num_test:,} test passages of other books "
            f"({means}; 95% interval)",
            row("most frequent author", self.majority, None, ""),
            *(
                row(
                    scores.name,
                    scores.accuracy,
                    scores.interval,
                    "runs " + ", ".join(f"{share:.1%}" for share in scores.test)
                    if runs > 1
                    else "",
                )
                for scores in (self.untrained, self.pretrained)
            ),
            self.verdict(),
            f"all of it took {human_time(self.total_seconds)}: "
            + ", ".join(f"{name} {human_time(time)}" for name, time in self.seconds.items()),
            "",
            f"report: {self.report}",
            f"model:  {self.model}",
            "",
            "try next:",
            *(f"  {command}" for _, command in self.next_steps()),
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "unigram_entropy": self.unigram_entropy,
            "mlm_loss": self.mlm_loss,
            "mlm_accuracy": self.mlm_accuracy,
            "nsp_accuracy": self.nsp_accuracy,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens_per_second,
            "majority": self.majority,
            "pretrained": self.pretrained.to_dict(),
            "untrained": self.untrained.to_dict(),
            "helped": self.helped,
            "seconds": self.seconds,
        }
