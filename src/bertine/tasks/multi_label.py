"""Define the task of classifying with any number of labels, each decided separately.

The head is that of classification (Devlin et al. 2018, section 4.1); sigmoid and binary
cross-entropy replace the softmax, as in ``BertForSequenceClassification`` with ``problem_type``
"multi_label_classification".

Shape legend: B sequences in a batch, K labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import ClassWeights, later, option
from bertine.core.text import Index, row_at, visible
from bertine.corpora.batch import Batch
from bertine.data.examples import Examples
from bertine.data.label_sets import joined, labels_in
from bertine.tasks.answer import LabelAnswer, compact, json_value, worst_lines
from bertine.tasks.base import Features, binary_cross_entropies, by_example, pooled, setting
from bertine.tasks.calibration import Decisions, Reliability
from bertine.tasks.labels import check_labels, label_id
from bertine.tasks.metrics import mean_log_loss
from bertine.tasks.report import EvaluationReport, label_lines, require_some
from bertine.tasks.whole_text import LEAST, WholeTextTask, probability_columns

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    from bertine.models.encoder import Encoded
    from bertine.models.heads import Model
    from bertine.models.losses import focal
    from bertine.objectives.distillation import binary_divergences
    from bertine.objectives.losses import Term
else:
    later(
        globals(),
        "torch models.losses:focal objectives.distillation:binary_divergences "
        "objectives.losses:Term F=torch.nn.functional",
    )

# Report: the scores of a classifier with many labels.
#
# Shape legend: N examples, K labels.


def multi_label_scores(
    truth: np.ndarray, answers: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """Compute micro_f1 and macro_f1 (0 if there are no true and no predicted labels), accuracy (all
    labels of an example right), loss (mean binary cross-entropy in nats).

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
    """Return `part` / `whole`; 0 where `whole` is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


@dataclass(repr=False)
class MultiLabelReport(EvaluationReport):
    """The scores of a classifier with many labels.

    Attributes:
        labels: in the order of the head's outputs.
        metrics: scores by name, as fractions of 1; ``loss`` in nats.
        per_label: for each label ``precision``, ``recall``, ``f1``, how many examples have it
            (``support``) and how many were predicted to (``predicted``).
        num_examples: number of scored examples.
        collapsed: whether every example got the same labels although the true ones differ.
        reliability: how often a label applies, by its probability.
    """

    labels: tuple[str, ...]
    metrics: dict[str, float]
    per_label: dict[str, dict[str, float]]
    num_examples: int
    collapsed: bool
    reliability: Reliability

    json_keys = (
        *("source", "num_examples", "metrics", "labels", "per_label", "collapsed"),
        *("reliability", "notes"),
    )

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
        """Return the scores, the calibration error, the warning of a collapse, and the labels with
        their scores, the most frequent first."""
        lines = [self.headline(plural(self.num_examples, "example"), self.metrics, ("loss",))]
        if self.reliability.bins:
            lines.append(self.reliability.line())
        if self.collapsed:
            lines.append(
                "collapsed: every example got the same labels; train again with another seed, "
                f"more epochs, a lower threshold or {option('class_weights', 'balanced')}"
            )
        lines.extend(self.notes)
        return lines + label_lines(self.per_label) + worst_lines(self.worst)


@dataclass(frozen=True, repr=False)
class LabelSet(LabelAnswer):
    """The labels whose probability reaches the threshold, in the head's order (possibly none), and
    the probability of each (they do not sum to 1)."""

    written = ("labels",)

    labels: tuple[str, ...]

    def own_cells(self) -> tuple[str, str]:
        chances = self.probabilities
        chosen = (f"{visible(name)} {chances[name]:.1%}" for name in self.labels)
        return ", ".join(chosen) or "(no label)", ""

    noun = "labels"

    @property
    def decision(self) -> frozenset[str]:
        return frozenset(self.labels)

    @property
    def as_label(self) -> str:
        return joined(self.labels)

    def to_json(self, details: bool) -> dict[str, Any]:
        if self.empty:
            return super().to_json(details) | {"probabilities": None}
        every = self.probabilities
        chances = {label: json_value(every[label]) for label in (every if details else self.labels)}
        return super().to_json(details) | {"probabilities": chances}


@dataclass(frozen=True)
class MultiLabel(WholeTextTask[LabelSet]):
    """The task of choosing labels, none to all of them, for a text or a pair of texts.

    Attributes:
        labels: in the order of the head's outputs.
        text_columns: one column, or two for pairs.
        label_column: the column of the labels, joined by a separator; None if unknown, or if each
            label has a column.
        max_length: longest input in pieces, special tokens included.
        threshold: a label is given from this probability on.
        separator: between labels, in `label_column` and in answers.
        one_column_each: whether each label has a column of its own, of 0 and 1, under its name.
        one_hot: whether the labels of a text are a list of 0 and 1, one for each label.
        long_text: which part of a longer text is read (:mod:`bertine.tasks.base`).
        positive_weights: of a label's presence in the loss, in the labels' order; None: all 1.
        focal_gamma: of the focal loss (:func:`~bertine.models.losses.focal`); 0: cross-entropy.
        metric_names: the metrics by which the task is judged.
        pair_pooling, shared_pieces, text_pooling, both_orders: see
            :class:`~bertine.tasks.whole_text.WholeTextTask`.

    Raises:
        BertineError: there are fewer than two labels, a repeated one, a threshold out of range, or
            impossible inputs.
    """

    name: ClassVar[str] = "multi-label"
    kind: ClassVar[str] = "multi-label"
    primary_metric: ClassVar[str] = "micro_f1"
    answer: ClassVar[type[LabelSet]] = LabelSet
    label_noun: ClassVar[str] = "label"

    labels: tuple[str, ...] = field()  # without a default, as others have
    text_columns: tuple[str, ...] = ("text",)
    label_column: str | None = None
    max_length: int = 128
    threshold: float = setting(0.5, always=True)
    separator: str = setting("|", always=True)
    one_column_each: bool = setting(False, always=True)
    long_text: str = setting("head", always=True)
    positive_weights: tuple[float, ...] | None = None
    focal_gamma: float = 0.0
    metric_names: tuple[str, ...] = ("micro_f1",)
    pair_pooling: str = setting("")
    shared_pieces: bool = setting(False)
    text_pooling: str = setting("")
    both_orders: bool = setting(False)
    one_hot: bool = setting(False)

    def __post_init__(self) -> None:
        check_labels(self.kind, self.labels)
        if not 0.0 < self.threshold < 1.0:
            raise BertineError(f"threshold is {self.threshold:g}, but must be between 0 and 1")
        super().__post_init__()

    @classmethod
    def names_in(cls, label: str) -> list[str]:
        """Return the labels, or "(none)"."""
        return labels_in(label) or ["(none)"]

    @classmethod
    def from_examples(
        cls,
        examples: Examples,
        *,
        max_length: int = 128,
        labels: Sequence[str] | None = None,
        class_weights: ClassWeights | None = None,
        **settings: Any,
    ) -> MultiLabel:
        """Create the task from labelled training examples. The labels are those that occur, sorted,
        unless given; `class_weights`: with the weights of :meth:`balanced`.

        Raises:
            BertineError: fewer than two labels occur, or one is not among the given.
        """
        occurring = {label for item in examples.items for label in labels_in(item.label or "")}
        if labels is None and len(occurring) < 2:
            raise BertineError(
                f"{examples.source}: the column {examples.label_column!r} holds {len(occurring)} "
                f"different labels; multi-label needs at least two (another "
                f"{option('label_separator')}?)"
            )
        names = tuple(sorted(occurring) if labels is None else labels)
        ids = {name: number for number, name in enumerate(names)}
        targets = [
            _target(item.label or "", ids, row_at(examples.source, item.line))
            for item in examples.items
        ]
        weights = tuple(_lacking_for_one(np.stack(targets)).tolist()) if class_weights else None
        return cls(
            names,
            examples.text_columns,
            examples.label_column,
            max_length,
            positive_weights=weights,
            **settings,
        )

    def target(self, label: str | None, source: str, line: int) -> np.ndarray | None:
        """Return fp32 [K], 1 for each of an example's labels; None for None.

        Raises:
            BertineError: one of them is unknown; names file, line, label and the nearest.
        """
        return None if label is None else _target(label, self.ids, row_at(source, line))

    def balanced(self, examples: Examples) -> tuple[float, ...]:
        """Count for each label how many of the `examples` lack it for each one that has it: with
        these `positive_weights` presence and absence weigh the same. 1 for a label that all of them
        have: without any weight it would not be learned."""
        table = self._table([item.label or "" for item in examples.items], examples.source)
        return tuple(_lacking_for_one(table).tolist())

    def weighted_for(self, features: Sequence[Any]) -> MultiLabel:
        """Convert `positive_weights` for texts to those for windows."""
        if self.positive_weights is None:
            return self
        texts = np.stack(list({feature.row: feature.label for feature in features}.values()))
        inputs = np.stack([feature.label for feature in features])
        scale = (_lacking_for_one(inputs) / _lacking_for_one(texts)).tolist()
        weights = zip(self.positive_weights, scale, strict=True)
        return replace(self, positive_weights=tuple(weight * by for weight, by in weights))

    def targets(self, labels: Sequence[np.ndarray]) -> Tensor:
        """Stack targets: fp32 [B, K]."""
        return torch.from_numpy(np.stack(labels))

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count decisions: one for each label of each sequence."""
        return {self.head: batch.num_sequences * len(self.labels)}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the binary cross-entropy, summed over sequences and labels, in fp32. A decision
        counts as right by probability 0.5, independently of the threshold."""
        logits, labels = self.outputs(model, batch, encoded).float(), batch.targets["labels"]
        weights = self.positive_weights
        total = F.binary_cross_entropy_with_logits(
            logits,
            labels,
            reduction="none" if self.focal_gamma else "sum",
            pos_weight=None if weights is None else logits.new_tensor(weights),
        )
        if self.focal_gamma:
            likelihood = -F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
            total = focal(total, likelihood, self.focal_gamma)
        correct = ((logits > 0) == (labels > 0.5)).sum()
        return {self.head: Term(total, labels.numel(), correct)}

    def with_some_target(self, feature: Any) -> Any:
        if feature.label is not None:
            return feature
        return replace(feature, label=np.zeros(len(self.labels), dtype=np.float32))

    def soft_term(
        self, outputs: Tensor, teacher_outputs: Tensor, batch: Batch, temperature: float
    ) -> Term:
        """Compute the divergence of each decision from the teacher's, summed over sequences and
        labels; see the base."""
        ours = outputs.float()
        total = binary_divergences(ours, teacher_outputs, temperature).sum()
        return Term(total, ours.numel(), ((ours > 0) == (teacher_outputs > 0)).sum())

    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[LabelSet]:
        """Turn logits [K] of each feature into sigmoid (in fp64) and the labels that reach the
        threshold."""
        if not outputs:
            return []
        logits = np.stack(pooled(outputs, features)).astype(np.float64)
        return self.answers_of(0.5 * (1.0 + np.tanh(0.5 * logits)))

    def answers_of(self, probabilities: np.ndarray) -> list[LabelSet]:
        """Return for each row of fp64 [N, K] the labels that reach the threshold."""
        return [
            LabelSet(
                tuple(self.labels[number] for number in np.flatnonzero(reached)),
                all_labels=self.labels,
                numbers=row,
            )
            for row, reached in zip(
                compact(probabilities), probabilities >= self.threshold, strict=True
            )
        ]

    def decisions(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> Decisions | None:
        """Return for each label of each text the logits of its absence and presence, and whether it
        has the label. None if a threshold was chosen, because it applies to the raw
        probabilities."""
        if self.threshold != 0.5:
            return None
        logits, truth = [], []
        for of_windows, own in by_example(outputs, features):
            if own[0].label is not None:
                logits.append(np.mean(of_windows, axis=0, dtype=np.float64))
                truth.append(own[0].label > 0.5)
        if not logits:
            return None
        having = np.concatenate(logits)
        return Decisions(
            np.stack([np.zeros_like(having), having], 1),
            np.concatenate(truth).astype(np.int64),
            np.repeat(np.arange(len(logits)), len(self.labels)),
            "labels",
        )

    def as_outputs(self, answers: np.ndarray) -> np.ndarray:
        """Return the log-odds."""
        bounded = np.clip(answers, LEAST, 1.0 - LEAST)
        return np.log(bounded / (1.0 - bounded)).astype(np.float32)

    def loss_of(self, output: np.ndarray, label: np.ndarray) -> float:
        """Compute the binary cross-entropy, the mean over the labels."""
        return float(binary_cross_entropies(output, label).mean())

    def constant(
        self, examples: Examples[Any], features: Sequence[Features]
    ) -> tuple[None, float | None]:
        """Return the mean over the labels of the entropy of whether an example has it."""
        if self.focal_gamma:
            return None, None
        counts = Counter(label for item in examples.items for label in labels_in(item.label or ""))
        entropies = []
        for label in self.labels:
            share = counts[label] / len(examples)
            entropies.append(-sum(p * math.log(p) for p in (share, 1 - share) if p > 0))
        return None, sum(entropies) / len(entropies) or None

    def _table(self, labels: Sequence[str], source: str = "labels") -> np.ndarray:
        """Stack the targets of N examples: fp32 [N, K]."""
        targets: list[Any] = [
            self.target(label, source, Index(row)) for row, label in enumerate(labels)
        ]
        return np.stack(targets)

    def report(self, predictions: Sequence[LabelSet], labels: Sequence[str]) -> MultiLabelReport:
        """Compute micro_f1, macro_f1, accuracy (all labels of an example right) and loss (mean
        binary cross-entropy in nats); and precision, recall and F1 of each label.

        Raises:
            BertineError: there are no examples.
        """
        require_some(predictions)
        chances = np.array([answer.numbers for answer in predictions])
        truth, answers = self._table(labels) > 0.5, chances >= self.threshold
        return MultiLabelReport.of(self.labels, truth, answers, chances)

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return ``labels``, with the separator between them; with `details` also the probability
        of each."""
        labels = {"labels": lambda answer: joined(answer.labels, self.separator)}
        return labels | (probability_columns(self.labels) if details else {})


def _target(label: str, ids: Mapping[str, int], where: str) -> np.ndarray:
    """Return fp32 [K], 1 for each label in an example's `label`; an error begins with `where`."""
    target = np.zeros(len(ids), dtype=np.float32)
    for name in labels_in(label):
        target[label_id(name, ids, where)] = 1.0
    return target


def _lacking_for_one(table: np.ndarray) -> np.ndarray:
    """Count how many rows lack each label for each one that has it; 1 for a label that all have:
    fp32 [K], for a `table` fp32 [N, K] of 1 and 0."""
    having = table.sum(0)
    lacking = np.where(having < len(table), len(table) - having, having)
    return np.asarray(lacking / np.maximum(having, 1))
