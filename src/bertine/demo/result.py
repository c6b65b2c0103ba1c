"""Hold what the demo came to: the four scores, and the figures of every stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertine.demo.recipe import BUNDLED_MODEL, BUNDLED_TIME, MASKED, DemoRecipe
from bertine.demo.scores import DemoScores
from bertine.terminal.console import human_count, human_time
from bertine.terminal.shown import Shown
from bertine.text.special import WORDPIECE_MASK


def spoken_time(seconds: float) -> str:
    """Round a time for a sentence: "4 minutes", "2.5 minutes", "100 seconds"."""
    if seconds < 119.5:
        return f"{round(seconds)} seconds"
    return f"{round(seconds / 30) / 2:g} minutes"


@dataclass(frozen=True, repr=False)
class DemoResult(Shown):
    """The result of a demo.

    Attributes:
        out: its folder.
        recipe: what was asked for.
        seed: random seed.
        subjects: that a passage may be about.
        bundled: the scores of ``bertine-en``.
        pretrained: of the model that the demo pre-trained.
        untrained: of that model's random weights, before pre-training.
        tf_idf: of logistic regression on tf-idf.
        unigram_entropy: of the token store, in nats: the MLM loss of a model that knows how
            frequent each piece is and nothing else.
        mlm_loss, mlm_accuracy: at the end of pre-training, means over the last lines of its log;
            on the text it trains on, in maskings it had not seen.
        tokens: seen in pre-training.
        reading_seconds: of pre-training.
        seconds: stage -> time taken.
    """

    out: Path
    recipe: DemoRecipe
    seed: int
    subjects: tuple[str, ...]
    bundled: DemoScores
    pretrained: DemoScores
    untrained: DemoScores
    tf_idf: DemoScores
    unigram_entropy: float
    mlm_loss: float
    mlm_accuracy: float
    tokens: int
    reading_seconds: float
    seconds: dict[str, float]

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.out / "report.html"

    @property
    def model(self) -> Path:
        """The model directory that answers: ``bertine-en``, which has learned the subjects."""
        return self.out / "model"

    @property
    def pretrained_model(self) -> Path:
        """The model directory of the model that the demo pre-trained."""
        return self.out / "pretraining" / "model"

    @property
    def chance(self) -> float:
        """The accuracy of guessing."""
        return 1 / len(self.subjects)

    @property
    def models(self) -> list[DemoScores]:
        """The scores of the three models, by how much they have read."""
        return [self.untrained, self.pretrained, self.bundled]

    @property
    def helped(self) -> bool:
        """Whether the model of these minutes is ahead of random weights by more than the choice of
        articles explains (95% interval; the draws of the labels are the same for both)."""
        return self.pretrained.ahead_of(self.untrained)[1] > 0

    @property
    def total_seconds(self) -> float:
        """The time of the whole demo."""
        return sum(self.seconds.values())

    def verdict(self) -> str:
        """Say what pre-training gained."""
        gain, low, _ = self.pretrained.ahead_of(self.untrained)
        whole = self.bundled.ahead_of(self.untrained)[0]
        time = spoken_time(self.reading_seconds)
        if low > 0:
            first = (
                f"After {time} of pre-training a model gives {100 * gain:.0f} more right answers "
                "in 100 than one with random weights"
            )
        else:
            first = (
                f"After {time} of pre-training a model is not clearly better than one with random "
                f"weights ({100 * gain:+.1f} points)"
            )
        return f"{first}; {BUNDLED_MODEL}, after {BUNDLED_TIME}, gives {100 * whole:.0f} more."

    def next_steps(self) -> list[tuple[str, str]]:
        """List what to do next, each with its command."""
        test = self.out / "passages" / "test.csv"
        return [
            (
                "Say what texts of your own are about, one a line",
                f"bertine predict {self.model} --input my-texts.txt",
            ),
            (
                "Score the model on the test passages",
                f"bertine evaluate {self.model} --data {test}",
            ),
            (
                "Teach it labels of your own: a csv with the columns text and label",
                f"bertine finetune text --model {BUNDLED_MODEL} --data my.csv --out my-model",
            ),
            (
                "Fill a mask",
                f'bertine fill-mask {BUNDLED_MODEL} "{MASKED[0].format(WORDPIECE_MASK)}"',
            ),
            ("See how the pre-training went", f"bertine report {self.out / 'pretraining'}"),
        ]

    def lines(self) -> list[str]:
        """List what the command prints at the end."""
        scores = [*self.models, self.tf_idf]
        width = max(len(one.name) for one in scores) + 2
        rows = [f"  {'guessing':<{width}}{self.chance:6.1%}"]
        for one in scores:
            low, high = one.interval
            rows.append(f"  {one.name:<{width}}{one.accuracy:6.1%}   {low:.1%} to {high:.1%}")
        count = len(self.tf_idf.articles)
        return [
            f"What is a passage about? Right answers to {count:,} passages of articles that no "
            "model had seen,",
            f"after {self.recipe.labels} labelled passages of each subject (mean of "
            f"{self.recipe.draws} draws of the labels; 95% interval over articles):",
            *rows,
            self.verdict(),
            "",
            f"all of it took {human_time(self.total_seconds)}: "
            + ", ".join(f"{name} {human_time(time)}" for name, time in self.seconds.items()),
            f"report: {self.report}",
            f"model:  {self.model}",
            "",
            "try next:",
            *(f"  {command}" for _, command in self.next_steps()),
        ]

    def reading(self) -> str:
        """Say how much the demo's model has read."""
        return f"{human_count(self.tokens)} tokens in {human_time(self.reading_seconds)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        scores = ("bundled", "pretrained", "untrained", "tf_idf")
        figures = ("unigram_entropy", "mlm_loss", "mlm_accuracy", "tokens", "reading_seconds")
        return {
            "subjects": list(self.subjects),
            "chance": self.chance,
            **{name: getattr(self, name).to_dict() for name in scores},
            "helped": self.helped,
            **{name: getattr(self, name) for name in figures},
            "seconds": self.seconds,
        }
