"""Regression: a number for a text or a pair of texts (Devlin et al. 2018, section 4.1, STS-B).

Shape legend: B sequences in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.objectives.base import Term
from bertine.records.examples import Examples
from bertine.taskinfo import TaskInfo
from bertine.tasks.answer import Answer, rounded
from bertine.tasks.base import Features, Report, TaskDefaults, pad_features
from bertine.tasks.encoding import HeadOfTexts, check_inputs, check_pair_pooling, encode
from bertine.tasks.long_text import pooled
from bertine.tasks.losses import NONE, of_examples
from bertine.tasks.metrics import regression_scores
from bertine.tasks.worst import WorstExample, worst_lines
from bertine.terminal.console import counted
from bertine.terminal.shown import Shown
from bertine.text.tokenizer import Tokenizer

#: Standard deviation of the predictions over that of the true scores: a collapse below it.
_COLLAPSED = 0.01
#: Points that a report keeps to be drawn.
_POINTS = 1000


@dataclass(frozen=True, repr=False)
class Score(Answer):
    """The number that the model gives a text, or a pair of texts."""

    score: float

    def cells(self) -> tuple[str, str]:
        return f"{self.score:.4g}", ""

    def to_json(self, details: bool) -> dict[str, Any]:
        return {"score": rounded(self.score)}

    @classmethod
    def agreement(cls, ours: Sequence[Any], theirs: Sequence[Any]) -> str:
        farthest = max(abs(a.score - b.score) for a, b in zip(ours, theirs, strict=True))
        return f"scores within {farthest:.2g} of those in fp32 for {len(ours)} sample texts"


@dataclass(repr=False)
class RegressionReport(Shown):
    """Scores of a regression on labelled examples.

    Attributes:
        metrics: pearson, spearman, mean_squared_error, mean_absolute_error.
        num_examples: that were scored.
        mean: of the true scores.
        variance: of the true scores: the mean squared error of always answering their mean.
        collapsed: whether the predictions vary by less than a hundredth of what the true scores
            do: practically one number.
        points: (true, predicted) scores of the examples; of more than 1000, about so many of them,
            evenly spaced in the order of the true scores.
        notes: what else to know, e.g. how many texts were cut.
        source: the file of the examples.
        worst: the examples predicted worst, where they were asked for.
    """

    metrics: dict[str, float]
    num_examples: int
    mean: float
    variance: float
    collapsed: bool
    points: list[tuple[float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    source: str = ""
    worst: list[WorstExample] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The scores beside what always answering the mean would get, and the warning of a
        collapse."""
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())
        origin = f" of {self.source}" if self.source else ""
        lines = [
            f"{counted(self.num_examples, 'example')}{origin}: {scores}",
            f"always answering the mean, {self.mean:.4g}: mean_squared_error {self.variance:.4f}",
        ]
        if self.collapsed:
            lines.append(
                "collapsed: every prediction is nearly the same number; train again with another "
                "seed, another learning rate or more epochs"
            )
        return lines + self.notes + worst_lines(self.worst)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "num_examples": self.num_examples,
            "metrics": self.metrics,
            "mean": self.mean,
            "variance": self.variance,
            "collapsed": self.collapsed,
            "points": [list(point) for point in self.points],
            "notes": self.notes,
        }


@dataclass(frozen=True)
class TextRegression(HeadOfTexts, TaskDefaults):
    """The score of a text, or of a pair of texts: one output on the pooled one, mean squared error.

    The head is that of classification with one output, as in ``BertForSequenceClassification``
    with ``problem_type`` "regression". In training its output is the standardized score,
    (score - `mean`) / `scale`, so that prices in thousands are learned at the same rates as
    shares of one; :meth:`unscaled` moves both numbers into the head, and a model directory
    gives scores as they are.

    Attributes:
        text_columns: one column, or two for pairs.
        label_column: the column of the score, None when not known.
        max_length: longest input in pieces, special tokens included; longer ones are cut.
        mean: of the training scores, or 0 when it is in the head.
        scale: their standard deviation, or 1 when it is in the head.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set it is, e.g. "glue/STS-B"; None for one's own.
        long_text: what is read of a longer text (:mod:`bertine.tasks.long_text`).
        deviation: the standard deviation of the training scores where `scale` is in the head, so
            that losses mean then what they meant in training; else 1.
        pair_pooling: see :class:`~bertine.tasks.encoding.HeadOfTexts`.

    Raises:
        BertineError: not one or two text columns, or a maximum length that leaves no room for
            text.
    """

    name: ClassVar[str] = "regression"
    primary_metric: ClassVar[str] = "pearson"
    single_output: ClassVar[bool] = True

    text_columns: tuple[str, ...] = ("text",)
    label_column: str | None = None
    max_length: int = 128
    mean: float = 0.0
    scale: float = 1.0
    metric_names: tuple[str, ...] = ("pearson", "spearman")
    dataset: str | None = None
    long_text: str = "head"
    deviation: float = 1.0
    pair_pooling: str = ""

    def __post_init__(self) -> None:
        check_inputs("regression", self.text_columns, self.max_length, self.long_text)
        check_pair_pooling(self.pair_pooling, self.text_columns)

    @classmethod
    def from_examples(
        cls, examples: Examples, *, max_length: int = 128, labels: Sequence[str] | None = None
    ) -> TextRegression:
        """The task of training examples with scores; `labels` must be None.

        Raises:
            BertineError: a score is not a number, or all are the same.
        """
        if labels is not None:
            raise BertineError("regression has no labels")
        scores = np.array(
            [_number(e.label, examples.source, e.line) for e in examples.items], dtype=np.float64
        )
        if not len(scores) or np.ptp(scores) == 0:
            raise BertineError(
                f"{examples.source}: every row has the same score in the column "
                f"{examples.label_column!r}; there is nothing to learn"
            )
        return cls(
            examples.text_columns,
            examples.label_column,
            max_length,
            mean=float(scores.mean()),
            scale=float(scores.std()),
        )

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config) -> TextRegression:
        """The task of a model directory; what its file leaves open is as for classification."""
        deviation = info.setting("deviation", 1.0)
        if deviation <= 0:
            raise BertineError(f"bertine.json: deviation is {deviation:g}, but must be above 0")
        return cls(
            info.text_columns or ("text",),
            info.label_column,
            info.input_length(config.longest_input),
            metric_names=info.metrics or ("pearson", "spearman"),
            dataset=info.dataset,
            long_text=info.setting("long_text", "head"),
            deviation=deviation,
            pair_pooling=info.setting("pair_pooling", ""),
        )

    def task_info(self, training: dict[str, Any] | None = None) -> TaskInfo:
        return TaskInfo(
            name=self.name,
            text_columns=self.text_columns,
            label_column=self.label_column,
            max_length=self.max_length,
            metrics=self.metric_names,
            dataset=self.dataset,
            settings={
                **({} if self.long_text == "head" else {"long_text": self.long_text}),
                **({} if self.deviation == 1.0 else {"deviation": self.deviation}),
                **({"pair_pooling": self.pair_pooling} if self.pair_pooling else {}),
            },
            training=training or {},
        )

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """A fresh head with one output.

        Raises:
            BertineError: the model has fewer positions than `max_length`.
        """
        return self.new_head(config, self.max_length, 1)

    def reuses(self, info: TaskInfo) -> bool:
        """Never: the head learns standardized scores, and is saved with their mean and scale in
        it."""
        return False

    @property
    def unsaved(self) -> bool:
        """Whether `mean` and `scale` are still to be moved into the head."""
        return (self.mean, self.scale) != (0.0, 1.0)

    def finished(self, model: Model, report: Report | None) -> TextRegression:
        """What :meth:`unscaled` makes of it."""
        return self.unscaled(model)

    def unscaled(self, model: Model) -> TextRegression:
        """Move `mean` and `scale` into the head of `model`, in place; the task of the result.

        ``scale * (W x + b) + mean = (scale * W) x + (scale * b + mean)``.
        """
        out = model.heads[self.head].out
        assert isinstance(out, nn.Linear)
        with torch.no_grad():
            out.weight.mul_(self.scale)
            out.bias.mul_(self.scale).add_(self.mean)
        return replace(self, mean=0.0, scale=1.0, deviation=self.scale * self.deviation)

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Tokenize; inputs longer than `max_length` are cut, a pair at its longer text first.

        Raises:
            BertineError: a score that is not a number, or an example with another number of texts.
        """

        def target(label: str | None, line: int) -> float | None:
            return None if label is None else _number(label, examples.source, line)

        return encode(
            examples, tokenizer, self.text_columns, self.max_length, target, self.long_text
        )

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        """Pad; ``targets["labels"]`` fp32 [B], standardized, when every feature has a score."""
        batch = pad_features(features, pad_id, self.max_length)
        scores = [feature.label for feature in features if feature.label is not None]
        if len(scores) == len(features):
            standard = (np.asarray(scores, dtype=np.float64) - self.mean) / self.scale
            batch.targets["labels"] = torch.from_numpy(standard).float()
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.head: batch.num_sequences}

    def outputs_of(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Standardized scores fp32 [B]. The head computes in fp32: bf16 has three digits."""
        return self.logits(model, encoded, batch, fp32=True).squeeze(-1)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Squared error of the standardized scores, summed over the sequences, in fp32."""
        errors = self.outputs_of(model, encoded, batch) - batch.targets["labels"]
        return {self.head: Term(errors.square().sum(), batch.num_sequences)}

    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[Score]:
        """The standardized score [] of each feature → its score."""
        return [
            Score(float(output) * self.scale + self.mean) for output in pooled(outputs, features)
        ]

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[float]:
        """Squared error of each example in standardized units, the mean over its windows."""
        found = []
        for output, feature in zip(outputs, features, strict=True):
            if feature.label is None:
                found.append(NONE)
                continue
            wanted = (feature.label - self.mean) / self.scale
            found.append(((float(output) - wanted) / self.deviation) ** 2)
        return of_examples(found, features)

    def metrics(self, predictions: Sequence[Score], labels: Sequence[str]) -> dict[str, float]:
        """pearson, spearman, mean_squared_error, mean_absolute_error."""
        truth = [_number(label, "labels", row) for row, label in enumerate(labels, 1)]
        return regression_scores(truth, [prediction.score for prediction in predictions])

    def report(self, predictions: Sequence[Score], labels: Sequence[str]) -> RegressionReport:
        """Metrics, and what always answering the mean would get.

        Raises:
            BertineError: there are no examples.
        """
        if not predictions:
            raise BertineError("there are no examples to evaluate on")
        truth = np.array([_number(label, "labels", row) for row, label in enumerate(labels, 1)])
        guesses = np.array([prediction.score for prediction in predictions])
        return RegressionReport(
            self.metrics(predictions, labels),
            len(truth),
            float(truth.mean()),
            float(truth.var()),
            collapsed=bool(guesses.std() < _COLLAPSED * truth.std()),
            points=_points(truth, guesses),
        )

    def output_columns(self, details: bool) -> list[str]:
        """``score``."""
        return ["score"]

    def output_values(self, prediction: Score, details: bool) -> list[Any]:
        return [round(prediction.score, 6)]


def _points(truth: np.ndarray, guesses: np.ndarray) -> list[tuple[float, float]]:
    """(true, predicted), to six digits; of very many examples some of all sizes."""
    order = np.argsort(truth, kind="stable")
    order = np.sort(order[:: -(-len(order) // _POINTS)])
    pairs = zip(truth[order].tolist(), guesses[order].tolist(), strict=True)
    return [(float(f"{true:.6g}"), float(f"{guess:.6g}")) for true, guess in pairs]


def _number(label: str | None, source: str, line: int) -> float:
    """The score that a cell holds.

    Raises:
        BertineError: it is not a finite number.
    """
    try:
        value = float(label or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BertineError(f"{source}:{line}: the score is {label!r}, but must be a number")
    return value
