"""Classification of texts and of pairs of texts (Devlin et al. 2018, section 4.1).

Shape legend: B sequences in a batch, K labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.losses import focal
from bertine.models.model import Model
from bertine.objectives.base import Term
from bertine.records.examples import Examples
from bertine.taskinfo import TaskInfo
from bertine.tasks.answer import Answer, rounded, rounded_each
from bertine.tasks.base import Features, TaskDefaults, pad_features
from bertine.tasks.encoding import HeadOfTexts, check_inputs, check_pair_pooling, encode
from bertine.tasks.labels import known_labels, label_ids, same_numbers
from bertine.tasks.long_text import pooled
from bertine.tasks.losses import NONE, cross_entropy, of_examples
from bertine.tasks.metrics import classification_scores
from bertine.tasks.report import ClassificationReport
from bertine.terminal.console import visible
from bertine.text.tokenizer import Tokenizer

#: From this many examples on, a label for every single one means that the column is wrong.
_SUSPICIOUS = 50


@dataclass(frozen=True, repr=False)
class Prediction(Answer):
    """The most probable label, and the probability of each (they sum to 1)."""

    label: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """Of `label`."""
        return self.probabilities[self.label]

    def cells(self) -> tuple[str, str]:
        return visible(self.label), f"{self.probability:.1%}"

    @property
    def decision(self) -> str:
        return self.label

    def to_json(self, details: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"label": self.label, "probability": rounded(self.probability)}
        return found | ({"probabilities": rounded_each(self.probabilities)} if details else {})

    def chances(self) -> list[tuple[str, float]]:
        return list(self.probabilities.items())


@dataclass(frozen=True)
class TextClassification(HeadOfTexts, TaskDefaults):
    """Which of two or more classes a text, or a pair of texts, belongs to.

    The head is a dropout and a linear layer on the pooled output, as in the paper and in
    ``BertForSequenceClassification``; or, of pairs, a linear layer on the vectors of the two texts
    (:class:`~bertine.models.heads.PairHead`).

    Attributes:
        labels: the classes, in the order of the head's outputs.
        text_columns: one column, or two for pairs.
        label_column: the column of the label, None when not known.
        max_length: longest input in pieces, special tokens included; longer ones are cut.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set it is, e.g. "glue/CoLA"; None for one's own.
        long_text: what is read of a longer text (:mod:`bertine.tasks.long_text`).
        class_weights: of each label in the loss, in their order; None: all 1. For training only.
        focal_gamma: of the focal loss (:func:`~bertine.models.losses.focal`); 0: cross-entropy.
            For training only.
        pair_pooling: see :class:`~bertine.tasks.encoding.HeadOfTexts`.

    Raises:
        BertineError: fewer than two labels, a repeated label, not one or two text columns, or a
            maximum length that leaves no room for text.
    """

    name: ClassVar[str] = "text"
    primary_metric: ClassVar[str] = "accuracy"

    labels: tuple[str, ...]
    text_columns: tuple[str, ...] = ("text",)
    label_column: str | None = None
    max_length: int = 128
    metric_names: tuple[str, ...] = ("accuracy",)
    dataset: str | None = None
    long_text: str = "head"
    class_weights: tuple[float, ...] | None = None
    focal_gamma: float = 0.0
    pair_pooling: str = ""
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = label_ids("classification", self.labels)
        check_inputs("classification", self.text_columns, self.max_length, self.long_text)
        check_pair_pooling(self.pair_pooling, self.text_columns)
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def from_examples(
        cls, examples: Examples, *, max_length: int = 128, labels: Sequence[str] | None = None
    ) -> TextClassification:
        """The task of labelled training examples.

        The labels are those that occur, in the order of the file's class names, or else sorted (as
        numbers when all are integers), unless given.

        Raises:
            BertineError: fewer than two labels occur, every row has a label of its own, or one
                is not among the given `labels`.
        """
        found = {example.label for example in examples.items if example.label is not None}
        if len(found) < 2 and labels is None:
            raise BertineError(
                f"{examples.source}: the column {examples.label_column!r} holds only the label "
                f"{next(iter(found), '')!r}; classification needs at least two"
            )
        if len(found) == len(examples) >= _SUSPICIOUS:
            raise BertineError(
                f"{examples.source}: every row has its own value in the column "
                f"{examples.label_column!r}; is that the label column?"
            )
        task = cls(
            tuple(_ordered(found, examples.class_names) if labels is None else labels),
            examples.text_columns,
            examples.label_column,
            max_length,
        )
        for example in examples.items:
            task.label_id(example.label, examples.source, example.line)
        for one, other in same_numbers(task.labels):
            note = f"{examples.source}: the labels {one!r} and {other!r} are told apart, but are "
            note += "the same number; write them alike if they are the same label"
            if note not in examples.notes:
                examples.notes.append(note)
        return task

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config) -> TextClassification:
        """The task of a model directory; what its file leaves open is one column ``text`` and
        the longest input that the model takes."""
        return cls(
            info.labels,
            info.text_columns or ("text",),
            info.label_column,
            info.input_length(config.longest_input),
            info.metrics or ("accuracy",),
            info.dataset,
            info.setting("long_text", "head"),
            pair_pooling=info.setting("pair_pooling", ""),
        )

    def task_info(self, training: dict[str, Any] | None = None) -> TaskInfo:
        return TaskInfo(
            name=self.name,
            labels=self.labels,
            text_columns=self.text_columns,
            label_column=self.label_column,
            max_length=self.max_length,
            metrics=self.metric_names,
            dataset=self.dataset,
            settings={
                **({} if self.long_text == "head" else {"long_text": self.long_text}),
                **({"pair_pooling": self.pair_pooling} if self.pair_pooling else {}),
            },
            training=training or {},
        )

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """A fresh classifier.

        Raises:
            BertineError: the model has fewer positions than `max_length`.
        """
        return self.new_head(config, self.max_length, len(self.labels))

    def label_id(self, label: str | None, source: str, line: int) -> int | None:
        """The index of `label`, or None for None.

        Raises:
            BertineError: it is none of the labels; names file, line, label and the known ones.
        """
        if label is None:
            return None
        if label not in self._ids:
            known = known_labels(label, self.labels)
            raise BertineError(f"{source}:{line}: unknown label {label!r}{known}")
        return self._ids[label]

    def balanced(self, examples: Examples) -> tuple[float, ...]:
        """Weights with which every class counts the same: N / (K n) for a class with n of the N
        `examples` (scikit-learn's "balanced"); their mean over the examples is 1."""
        found = Counter(item.label for item in examples.items)
        share = len(examples) / len(self.labels)
        return tuple(share / max(1, found[label]) for label in self.labels)

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Tokenize; inputs longer than `max_length` are cut, a pair at its longer text first.

        Raises:
            BertineError: an unknown label, or an example with another number of texts.
        """

        def target(label: str | None, line: int) -> int | None:
            return self.label_id(label, examples.source, line)

        return encode(
            examples, tokenizer, self.text_columns, self.max_length, target, self.long_text
        )

    def weighted_for(self, features: Sequence[Any]) -> TextClassification:
        """With `class_weights` divided by how much more often a class is met in windows than in
        texts: so it has the share of the loss that they are to give it."""
        if self.class_weights is None:
            return self
        texts = Counter({feature.row: feature.label for feature in features}.values())
        inputs = Counter(feature.label for feature in features)
        weights = []
        for number, weight in enumerate(self.class_weights):
            share = texts[number] / texts.total()
            met = inputs[number] / len(features)
            weights.append(weight * (share / met) if met else weight)
        return replace(self, class_weights=tuple(weights))

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        """Pad; ``targets["labels"]`` int64 [B] when every feature has a label."""
        batch = pad_features(features, pad_id, self.max_length)
        labels = [feature.label for feature in features if feature.label is not None]
        if len(labels) == len(features):
            batch.targets["labels"] = torch.tensor(labels, dtype=torch.int64)
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.head: batch.num_sequences}

    def outputs_of(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Logits [B, K]."""
        return self.logits(model, encoded, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Cross-entropy, times the weight of the true class if there are any, summed over the
        sequences, in fp32. Balanced weights have the mean 1, so the sum is over the count all the
        same: any parts of a step add up to the whole."""
        logits, labels = self.outputs_of(model, encoded, batch).float(), batch.targets["labels"]
        weights = None if self.class_weights is None else logits.new_tensor(self.class_weights)
        if self.focal_gamma:
            each = F.cross_entropy(logits, labels, weight=weights, reduction="none")
            likelihood = -F.cross_entropy(logits, labels, reduction="none")
            total = focal(each, likelihood, self.focal_gamma)
        else:
            total = F.cross_entropy(logits, labels, weight=weights, reduction="sum")
        correct = (logits.argmax(-1) == labels).sum()
        return {self.head: Term(total, batch.num_sequences, correct)}

    def decode(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> list[Prediction]:
        """Logits [K] of each feature → softmax (in fp64) and its maximum."""
        if not outputs:
            return []
        logits = np.stack(pooled(outputs, features)).astype(np.float64)
        exp = np.exp(logits - logits.max(-1, keepdims=True))
        table = exp / exp.sum(-1, keepdims=True)
        return [
            Prediction(self.labels[best], dict(zip(self.labels, row, strict=True)))
            for best, row in zip(logits.argmax(-1).tolist(), table.tolist(), strict=True)
        ]

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[float]:
        """Cross-entropy of each example, the mean over its windows."""
        found = [
            NONE if feature.label is None else cross_entropy(output, int(feature.label))
            for output, feature in zip(outputs, features, strict=True)
        ]
        return of_examples(found, features)

    def metrics(self, predictions: Sequence[Prediction], labels: Sequence[str]) -> dict[str, float]:
        """accuracy, macro_f1, loss (mean cross-entropy in nats) and matthews; with two labels
        also f1 (of the second one)."""
        guesses = [prediction.label for prediction in predictions]
        given = [
            prediction.probabilities[label] for prediction, label in _pairs(predictions, labels)
        ]
        loss = float(-np.log(np.maximum(given, np.finfo(np.float64).tiny)).mean())
        scores = classification_scores(labels, guesses, self.labels)
        # The loss after the two shares that every classifier has.
        first = {name: scores.pop(name) for name in ("accuracy", "macro_f1")}
        return {**first, "loss": loss, **scores}

    def report(
        self, predictions: Sequence[Prediction], labels: Sequence[str]
    ) -> ClassificationReport:
        """Metrics, confusion matrix, and whether the model fell for a single class."""
        if not predictions:
            raise BertineError("there are no examples to evaluate on")
        confusion = np.zeros((len(self.labels), len(self.labels)), dtype=np.int64)
        for prediction, label in _pairs(predictions, labels):
            confusion[self._ids[label], self._ids[prediction.label]] += 1
        return ClassificationReport(
            self.labels, self.metrics(predictions, labels), confusion.tolist()
        )

    def output_columns(self, details: bool) -> list[str]:
        """``label``, ``probability``; with `details` also the probability of each label."""
        each = [f"probability_{label}" for label in self.labels] if details else []
        return ["label", "probability", *each]

    def output_values(self, prediction: Prediction, details: bool) -> list[Any]:
        each = list(prediction.probabilities.values()) if details else []
        return [prediction.label, *(round(p, 6) for p in (prediction.probability, *each))]


def _pairs(
    predictions: Sequence[Prediction], labels: Sequence[str]
) -> list[tuple[Prediction, str]]:
    return list(zip(predictions, labels, strict=True))


def _ordered(labels: set[str], names: Sequence[str]) -> list[str]:
    """In the order of `names` when all are there; by number when all are whole numbers (so that 10
    comes after 9), else by text."""
    if labels <= set(names):
        return [name for name in names if name in labels]
    try:
        return sorted(labels, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(labels)
