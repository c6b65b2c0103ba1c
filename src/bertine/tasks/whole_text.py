"""Define tasks on whole texts or pairs of texts: their base, and regression.

Regression gives a number for a text or a pair (Devlin et al. 2018, section 4.1, STS-B).

Shape legend: B sequences in a batch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import BOTH_ORDERS, PAIR_CLASSIFIER, VECTOR_CLASSIFIER, later
from bertine.core.task_info import TaskInfo
from bertine.core.text import Index, number_in, row_at
from bertine.corpora.batch import Batch
from bertine.data.examples import Example, Examples
from bertine.models.config import Config
from bertine.tasks.answer import Answer, worst_lines
from bertine.tasks.base import (
    LEAST_LENGTH,
    NONE,
    Features,
    Task,
    check_long_text,
    check_room,
    of_examples,
    parts_of,
    pooled,
    require_positions,
    setting,
    tokenized,
)
from bertine.tasks.metrics import regression_scores
from bertine.tasks.report import EvaluationReport, require_some
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bertine.models.encoder import Encoded
    from bertine.models.heads import Model, encode_both_orders, texts_apart
    from bertine.models.pooling import Pooling
    from bertine.objectives.losses import Term
else:
    later(
        globals(),
        "torch models.heads:encode_both_orders,texts_apart models.pooling:Pooling "
        "objectives.losses:Term nn=torch.nn",
    )

# Whole-text tasks: the base of classification with one label or many, and of regression.
#
# Shape legend: B sequences in a batch, K outputs.

#: A probability of 0 in logarithms: smaller than any model's.
LEAST = 1e-9
#: The target of a batch with the weight of each sequence in the loss.
WEIGHTS = "weights"
Prediction = TypeVar("Prediction")


class WholeTextTask(Task[Prediction]):
    """Base of the tasks whose head reads one vector of a text or of a pair of texts.

    Attributes:
        kind: the task's name in messages.
        long_text: which part of a longer text is read (:mod:`bertine.tasks.base`).
        pair_pooling: for pairs whose texts are encoded separately: how states become vectors, by
            the name of a :class:`~bertine.models.pooling.Pooling`; "": both texts are one input.
        shared_pieces: for such pairs: whether it also counts how much of each text occurs in the
            other.
        text_pooling: for a head that is a linear layer on a text's vector: how states become it;
            "": the head is that of the published models.
        both_orders: whether pairs are read in both orders, and the head reads the sum of the two
            vectors.

    Raises:
        BertineError: there are not one or two text columns, a maximum length has no room for text,
            a mode of long texts is unknown or not for pairs, a pooling or both orders are for the
            other kind of texts, or shared pieces have no pooling.
    """

    kind: ClassVar[str]
    vector_head: ClassVar[str] = VECTOR_CLASSIFIER

    pair_pooling: str
    shared_pieces: bool
    text_pooling: str
    both_orders: bool

    def __post_init__(self) -> None:
        width = len(self.text_columns)
        if width not in (1, 2):
            raise BertineError(f"{self.kind} takes one or two text columns, not {width}")
        if self.max_length < LEAST_LENGTH[width]:
            raise BertineError(f"max_length {self.max_length} leaves no room for text")
        check_long_text(self.long_text, width)
        if self.pair_pooling and width != 2:
            raise BertineError("bertine.json: pair_pooling is for two text columns, not for one")
        if self.both_orders and width != 2:
            raise BertineError("bertine.json: both_orders is for two text columns, not for one")
        if self.text_pooling and width != 1:
            raise BertineError("bertine.json: text_pooling is for one text column, not for two")
        if self.shared_pieces and not self.pair_pooling:
            raise BertineError("bertine.json: shared_pieces is for texts with a pair_pooling")

    @classmethod
    def vector_settings(
        cls,
        train: Examples,
        labels: Sequence[str] | None,
        pooling: str,
        is_linear: Callable[[int], bool],
    ) -> dict[str, Any]:
        """Return the arguments of :meth:`from_examples` for a head on vectors; the two texts of a
        pair are encoded separately, so that their vectors and their words are compared."""
        if len(train.text_columns) == 2:
            return {"pair_pooling": pooling, "shared_pieces": True}
        names = labels or {name for item in train.items for name in cls.names_in(item.label)}
        return {} if is_linear(1 if cls.numeric else len(names)) else {"text_pooling": pooling}

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    @property
    def head(self) -> str:
        if self.text_pooling:
            return VECTOR_CLASSIFIER
        if self.both_orders:
            return BOTH_ORDERS
        return PAIR_CLASSIFIER if self.pair_pooling else "classifier"

    def as_student(
        self, train: Examples[Any], max_length: int, outputs: Sequence[Any] = ()
    ) -> Self:
        """Return the task with the head of the published models."""
        student: Any = super().as_student(train, max_length)
        return replace(
            student, pair_pooling="", shared_pieces=False, text_pooling="", both_orders=False
        )

    def heads(self, config: Config, **options: Any) -> dict[str, nn.Module]:
        """Return the head: with the pooling, if it reads vectors, and for pairs whether shared
        pieces are read.

        Raises:
            BertineError: the model has one token type for two texts; the pooling does not exist; it
                has fewer positions than `max_length`.
        """
        require_positions(self.max_length, config)
        if len(self.text_columns) == 2 and config.num_segments < 2:
            raise BertineError(
                "the model has a type_vocab_size of 1, so it cannot tell two texts apart; join "
                "them in one column, or use another model"
            )
        if named := self.text_pooling or self.pair_pooling:
            options["pooling"] = Pooling.named(named)
        if self.pair_pooling:
            options["shared_pieces"] = self.shared_pieces
        return super().heads(config, **options)

    @abstractmethod
    def target(self, label: str | None, source: str, line: int) -> Any:
        """Return the target of an example's features for its label; None for None.

        Raises:
            BertineError: the label does not exist; names `source` and `line`.
        """

    def target_of(self, example: Example, source: str) -> Any:
        """Return the target of an example's features: for its label, or for soft labels."""
        return self.target(example.label, source, example.line)

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Tokenize; inputs longer than `max_length` are cut, a pair at its longer text first, a
        single text as `long_text` says.

        Raises:
            BertineError: an example has another number of texts than there are columns; an error
                of :meth:`target`.
        """
        check_room(self.max_length, len(self.text_columns), tokenizer)
        cut_at_end, features = self.long_text == "head", list[Features]()
        longest, frame = self.max_length if cut_at_end else None, tokenizer.template.one
        for row, example, ids, types, cut in tokenized(
            examples, self.text_columns, tokenizer, longest
        ):
            label, inputs = self.target_of(example, examples.source), [ids]
            if not cut_at_end:
                inputs = parts_of(ids, self.max_length, self.long_text, frame)
            if len(inputs) == 1:
                cut += len(ids) - len(inputs[0])
            features.extend(
                Features(
                    kept,
                    types[: len(kept)],
                    row,
                    label=label,
                    num_truncated=cut,
                    weight=example.weight,
                )
                for kept in inputs
            )
        return features

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad features into one batch; with ``targets["weights"]`` fp32 [B] if any is not 1."""
        batch = super().collate(features, pad_id)
        weights = [feature.weight for feature in features]
        if any(weight != 1 for weight in weights):
            batch.targets[WEIGHTS] = torch.tensor(weights, dtype=torch.float32)
        return batch

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Encode the inputs, or both texts of each pair separately, or pairs in both orders."""
        if self.both_orders:
            return encode_both_orders(model, batch)
        return model.encode(texts_apart(batch) if self.pair_pooling else batch)

    def outputs(self, model: Model, batch: Batch, encoded: Encoded | None = None) -> Tensor:
        """Compute the head's outputs [B, K]."""
        encoded = self.encode(model, batch) if encoded is None else encoded
        texts = texts_apart(batch) if self.pair_pooling else batch
        return model.read(self.head, encoded, texts=texts, fp32=self.fp32_head)

    @abstractmethod
    def as_outputs(self, answers: np.ndarray) -> np.ndarray:
        """Convert another model's answers to outputs that :meth:`decode` takes, fp32.

        Args:
            answers: fp64 [N, K], the probability of each label; for scores [N].
        """

    @abstractmethod
    def loss_of(self, output: np.ndarray, label: Any) -> float:
        """Compute the loss of one output against its target."""

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[float]:
        """Compute the loss of each example, the mean over its windows; nan without a label."""
        losses = [
            NONE if feature.label is None else self.loss_of(output, feature.label)
            for output, feature in zip(outputs, features, strict=True)
        ]
        return of_examples(losses, features)


def probability_columns(labels: Sequence[str]) -> dict[str, Callable[[Any], Any]]:
    """Return an output column with the probability of each label."""

    def column(number: int) -> Callable[[Any], Any]:
        return lambda answer: round(answer.numbers[number], 6)

    return {f"probability_{label}": column(number) for number, label in enumerate(labels)}


#: The ratio of the standard deviations of predictions and true scores below which it is a collapse.
_COLLAPSED = 0.01
#: The most points that a report keeps for a plot.
_POINTS = 1000


@dataclass(frozen=True, repr=False)
class Score(Answer):
    """The number that the model predicts for a text, or a pair of texts."""

    written = ("score",)

    score: float

    def own_cells(self) -> tuple[str, str]:
        return f"{self.score:.4g}", ""

    @property
    def as_label(self) -> str:
        return repr(self.score)

    @classmethod
    def share_alike(cls, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
        return None

    @classmethod
    def agreement(cls, ours: Sequence[Any], theirs: Sequence[Any]) -> str:
        farthest = max(abs(a.score - b.score) for a, b in zip(ours, theirs, strict=True))
        return f"scores within {farthest:.2g} of those in fp32 for {len(ours)} sample texts"


@dataclass(repr=False)
class RegressionReport(EvaluationReport):
    """The scores of a regression on labelled examples.

    Attributes:
        metrics: pearson, spearman, mean_squared_error, mean_absolute_error.
        num_examples: number of scored examples.
        mean: of the true scores.
        variance: of the true scores: the mean squared error of always predicting their mean.
        collapsed: whether the standard deviation of the predictions is less than a hundredth of
            that of the true scores: practically one number.
        points: (true, predicted) scores of the examples; if there are more than 1000, about 1000 of
            them, evenly spaced in the order of the true scores.
    """

    metrics: dict[str, float]
    num_examples: int
    mean: float
    variance: float
    collapsed: bool
    points: list[tuple[float, float]] = field(default_factory=list)

    json_keys = (
        *("source", "num_examples", "metrics", "mean", "variance", "collapsed", "points", "notes"),
    )

    def lines(self) -> list[str]:
        """Return the scores with those of always predicting the mean, and the warning of a
        collapse."""
        lines = [
            self.headline(plural(self.num_examples, "example"), self.metrics, self.metrics),
            f"always answering the mean, {self.mean:.4g}: mean_squared_error {self.variance:.4f}",
        ]
        if self.collapsed:
            lines.append(
                "collapsed: every prediction is nearly the same number; train again with another "
                "seed, another learning rate or more epochs"
            )
        return lines + self.notes + worst_lines(self.worst)


@dataclass(frozen=True)
class TextRegression(WholeTextTask[Score]):
    """The task of scoring a text or a pair of texts: one output on the pooled one, mean squared
    error.

    The head is that of classification with one output, as in ``BertForSequenceClassification``
    with ``problem_type`` "regression". In training its output is the standardized score,
    (score - `mean`) / `scale`, so that prices in thousands are learned at the same rates as shares
    of one; :meth:`finished` moves both numbers into the head, and a saved model gives unscaled
    scores.

    Attributes:
        text_columns: one column, or two for pairs.
        label_column: the column of the score, None if unknown.
        max_length: longest input in pieces, special tokens included; longer ones are cut.
        mean: of the training scores, or 0 when the head contains it.
        scale: their standard deviation, or 1 when the head contains it.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set, e.g. "glue/STS-B"; None for a user's own.
        long_text: which part of a longer text is read (:mod:`bertine.tasks.base`).
        deviation: the standard deviation of the training scores when the head contains `scale`, so
            that losses mean the same as in training; else 1.
        offset: added to the head's output, the mean of the training scores if the head has no bias
            for it.
        sigmoid: whether scores are probabilities, and the head gives their log-odds, as in
            cross-encoders of sentence-transformers; not in training.
        pair_pooling, shared_pieces, text_pooling, both_orders: see
            :class:`~bertine.tasks.whole_text.WholeTextTask`.

    Raises:
        BertineError: there are not one or two text columns, a maximum length has no room for text,
            or a deviation is not a positive number.
    """

    name: ClassVar[str] = "regression"
    kind: ClassVar[str] = "regression"
    primary_metric: ClassVar[str] = "pearson"
    answer: ClassVar[type[Score]] = Score
    fp32_head: ClassVar[bool] = True  # bf16 has three digits
    numeric: ClassVar[bool] = True

    text_columns: tuple[str, ...] = ("text",)
    label_column: str | None = None
    max_length: int = 128
    mean: float = 0.0
    scale: float = 1.0
    metric_names: tuple[str, ...] = ("pearson", "spearman")
    dataset: str | None = None
    long_text: str = setting("head")
    deviation: float = setting(1.0)
    offset: float = setting(0.0)
    sigmoid: bool = setting(False)
    pair_pooling: str = setting("")
    shared_pieces: bool = setting(False)
    text_pooling: str = setting("")
    both_orders: bool = setting(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deviation <= 0:
            raise BertineError(
                f"bertine.json: deviation is {self.deviation:g}, but must be above 0"
            )

    @classmethod
    def from_examples(
        cls,
        examples: Examples,
        *,
        max_length: int = 128,
        labels: Sequence[str] | None = None,
        **settings: Any,
    ) -> TextRegression:
        """Create the task from training examples with scores; `labels` must be None.

        Raises:
            BertineError: a score is not a number, or all are the same.
        """
        if labels is not None:
            raise BertineError("regression has no labels")
        scores = np.array(
            [_number(item.label, examples.source, item.line) for item in examples.items],
            dtype=np.float64,
        )
        if not len(scores) or np.ptp(scores) == 0:
            raise BertineError(
                f"{examples.source}: every row has the same score in the column "
                f"{examples.label_column!r}; there is nothing to learn"
            )
        weights = [item.weight for item in examples.items]
        mean = np.average(scores, weights=weights)
        return cls(
            examples.text_columns,
            examples.label_column,
            max_length,
            mean=float(mean),
            scale=float(np.sqrt(np.average((scores - mean) ** 2, weights=weights))),
            **settings,
        )

    def reuses(self, info: TaskInfo | None) -> bool:
        """Return False: the head learns standardized scores, and is saved with their mean and scale
        included."""
        return False

    @classmethod
    def label_facts(cls, labels: Iterable[Any]) -> dict[str, Any]:
        """Return the range of the scores, their mean and deviation."""
        values = np.array(list(map(float, labels)))
        if not len(values):
            return {}
        return {
            "numbers": {
                "minimum": float(values.min()),
                "maximum": float(values.max()),
                "mean": float(values.mean()),
                "deviation": float(values.std()),
            }
        }

    @property
    def unsaved(self) -> bool:
        """Whether `mean` and `scale` must still be moved into the head."""
        return (self.mean, self.scale) != (0.0, 1.0)

    @property
    def center(self) -> float:
        """The number that is subtracted from a score for comparison with the head's output."""
        return self.mean + self.offset

    def finished(self, model: Model, report: EvaluationReport | None) -> Self:
        """Move `mean` and `scale` into the head of `model`, in place; return the task of the
        result.

        ``scale * (W x + b) + mean = (scale * W) x + (scale * b + mean)``.
        """
        out = model.heads[self.head].out
        assert isinstance(out, nn.Linear)
        with torch.no_grad():
            out.weight.mul_(self.scale)
            if out.bias is not None:
                out.bias.mul_(self.scale).add_(self.mean)
        offset = self.mean if out.bias is None else 0.0
        deviation = self.scale * self.deviation
        return replace(self, mean=0.0, scale=1.0, deviation=deviation, offset=offset)

    def target(self, label: str | None, source: str, line: int) -> float | None:
        """Return the score in a label, or None for None.

        Raises:
            BertineError: it is not a number.
        """
        return None if label is None else _number(label, source, line)

    def targets(self, labels: Sequence[float]) -> Tensor:
        """Standardize scores: fp32 [B]."""
        standard = (np.asarray(labels, dtype=np.float64) - self.center) / self.scale
        return torch.from_numpy(standard).float()

    def outputs(self, model: Model, batch: Batch, encoded: Encoded | None = None) -> Tensor:
        """Compute standardized scores fp32 [B]."""
        return super().outputs(model, batch, encoded).squeeze(-1)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the squared error of the standardized scores, times the weight of the example if
        there are any, summed over the sequences, in fp32."""
        errors = (self.outputs(model, batch, encoded) - batch.targets["labels"]).square()
        if WEIGHTS in batch.targets:
            errors = errors * batch.targets[WEIGHTS]
        return {self.head: Term(errors.sum(), batch.num_sequences)}

    def as_student(
        self, train: Examples[Any], max_length: int, outputs: Sequence[Any] = ()
    ) -> Self:
        """Return the task with the mean and the scale of the labels, or without labels of the
        teacher's scores, when these are known.

        Raises:
            BertineError: they are all the same.
        """
        student = super().as_student(train, max_length)
        if not len(outputs):
            return student
        labelled = [item for item in train.items if item.label is not None]
        if len({item.label for item in labelled}) > 1:
            known = type(self).from_examples(replace(train, items=labelled))
            mean, scale = known.mean, known.scale
        else:
            values = torch.tensor([float(output) for output in outputs], dtype=torch.float64)
            mean, scale = float(values.mean()), float(values.std(correction=0))
            if not scale > 0:
                raise BertineError("the teacher gives every example the same score")
        return replace(student, mean=mean, scale=scale, deviation=1.0)

    def with_some_target(self, feature: Any) -> Any:
        return feature if feature.label is not None else replace(feature, label=self.center)

    def soft_term(
        self, outputs: Tensor, teacher_outputs: Tensor, batch: Batch, temperature: float
    ) -> Term:
        """Compute the squared difference from the scores of the teacher, standardized in the same
        way as labels, summed over the sequences; there is no temperature."""
        standard = (teacher_outputs.double() - self.center) / self.scale
        total = (outputs.float() - standard.float()).square().sum()
        return Term(total, batch.num_sequences)

    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[Score]:
        """Turn the standardized score [] of each feature into its score."""
        return [Score(self.score(float(output))) for output in pooled(outputs, features)]

    def score(self, output: float) -> float:
        """Turn one standardized score into a score."""
        value = output * self.scale + self.center
        return (1 + math.tanh(value / 2)) / 2 if self.sigmoid else value

    def as_outputs(self, answers: np.ndarray) -> np.ndarray:
        """Return scores in standard units."""
        return ((answers - self.mean) / self.scale).astype(np.float32)

    def loss_of(self, output: np.ndarray, label: float) -> float:
        """Compute the squared error in standardized units."""
        if self.sigmoid:
            return (self.score(float(output)) - label) ** 2
        wanted = (label - self.center) / self.scale
        return ((float(output) - wanted) / self.deviation) ** 2

    def constant(self, examples: Examples[Any], features: Sequence[Features]) -> tuple[None, float]:
        """Return the squared error of the mean of standardized scores, 1."""
        return None, 1.0

    def report(self, predictions: Sequence[Score], labels: Sequence[str]) -> RegressionReport:
        """Compute pearson, spearman, mean_squared_error, mean_absolute_error, and the error of
        always predicting the mean.

        Raises:
            BertineError: there are no examples.
        """
        require_some(predictions)
        truth = np.array(_numbers(labels))
        guesses = np.array([answer.score for answer in predictions])
        return RegressionReport(
            regression_scores(truth, guesses),
            len(truth),
            float(truth.mean()),
            float(truth.var()),
            collapsed=bool(guesses.std() < _COLLAPSED * truth.std()),
            points=_points(truth, guesses),
        )


def _points(truth: np.ndarray, guesses: np.ndarray) -> list[tuple[float, float]]:
    """Pair true with predicted scores, to six digits; of very many examples a selection."""
    order = np.argsort(truth, kind="stable")
    order = np.sort(order[:: -(-len(order) // _POINTS)])
    pairs = zip(truth[order].tolist(), guesses[order].tolist(), strict=True)
    return [(float(f"{true:.6g}"), float(f"{guess:.6g}")) for true, guess in pairs]


def _numbers(labels: Sequence[str]) -> list[float]:
    """Return the scores in labels whose file is unknown."""
    return [_number(label, "labels", Index(row)) for row, label in enumerate(labels)]


def _number(label: str | None, source: str, line: int) -> float:
    """Return the score in a cell.

    Raises:
        BertineError: it is not a finite number.
    """
    value = number_in(label)
    if not math.isfinite(value):
        raise BertineError(f"{row_at(source, line)}: the score is {label!r}, but must be a number")
    return value
