"""Define the task of classifying texts and pairs of texts (Devlin et al. 2018, section 4.1).

Shape legend: B sequences in a batch, K labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertine.core.console import visible_list
from bertine.core.errors import BertineError
from bertine.core.names import ClassWeights, later
from bertine.core.text import row_at, visible
from bertine.corpora.batch import Batch
from bertine.data.examples import Example, Examples, SoftExample
from bertine.tasks.answer import LabelAnswer, OneLabel, compact, json_value
from bertine.tasks.base import Features, by_example, cross_entropy, entropy, pooled, setting
from bertine.tasks.calibration import (
    SEPARATOR,
    Costs,
    Decisions,
    Reliability,
    label_sets,
)
from bertine.tasks.familiarity import Familiarity, WithVectors
from bertine.tasks.labels import check_labels, label_id
from bertine.tasks.metrics import classification_scores, mean_cross_entropy, mean_log_loss
from bertine.tasks.report import ClassificationReport, require_some
from bertine.tasks.whole_text import LEAST, WEIGHTS, WholeTextTask, probability_columns

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    from bertine.models.encoder import Encoded
    from bertine.models.heads import Model
    from bertine.models.losses import focal
    from bertine.objectives.losses import Term
else:
    later(globals(), "torch models.losses:focal objectives.losses:Term F=torch.nn.functional")

#: From this many examples on, a different label in every row means that the column is wrong.
_SUSPICIOUS = 50


@dataclass(frozen=True, repr=False)
class Prediction(LabelAnswer, OneLabel):
    """The most probable label, or that of least expected cost, and the probability of each (they
    sum to 1).

    If it abstains, the label is left open in files and in JSON, and `label` is the best guess.
    `label_set` holds the labels of a set that contains the right one with the requested coverage,
    the most probable first; None: no sets were requested. `familiarity` says how much the text is
    like the training texts, above 0 and at most 1; None: it was not requested.
    """

    written = ("label", "probability")
    detailed = ("probabilities",)
    left_open = ("label",)

    label: str
    abstains: bool = False
    label_set: tuple[str, ...] | None = None
    familiarity: float | None = None

    @property
    def probability(self) -> float:
        """The probability of `label`."""
        return self.numbers[self.all_labels.index(self.label)]

    def to_json(self, details: bool) -> dict[str, Any]:
        values = super().to_json(details)
        if self.familiarity is not None and not self.empty:
            values["familiarity"] = json_value(self.familiarity)
        return values

    def flag_lines(self) -> list[str]:
        more = [] if self.familiarity is None else [f"familiarity {self.familiarity:.3f}"]
        return [*more, *super().flag_lines()]

    def own_cells(self) -> tuple[str, str]:
        if self.abstains:
            return f"(no answer; {visible(self.label)}?)", f"{self.probability:.1%}"
        if self.label_set is not None and len(self.label_set) > 1:
            others = [name for name in self.label_set if name != self.label]
            return f"{visible(self.label)} (or {visible_list(others)})", f"{self.probability:.1%}"
        return visible(self.label), f"{self.probability:.1%}"


@dataclass(frozen=True)
class TextClassification(WholeTextTask[Prediction]):
    """The task of choosing one of two or more classes for a text or a pair of texts.

    The head is a dropout and a linear layer on the pooled output, as in the paper and in
    ``BertForSequenceClassification``; or, for pairs whose texts are encoded separately, a linear
    layer on their vectors (:class:`~bertine.models.heads.PairHead`).

    Attributes:
        labels: the classes, in the order of the head's outputs.
        text_columns: one column, or two for pairs.
        label_column: the column of the label, None if unknown.
        max_length: longest input in pieces, special tokens included; longer ones are cut.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set, e.g. "glue/CoLA"; None for a user's own.
        long_text: which part of a longer text is read (:mod:`bertine.tasks.base`).
        numbered: whether the labels are names that the user gave to the numbers 0, 1, 2, … in the
            data; data to judge on may then have either.
        class_weights: of each label in the loss, in their order; None: all 1. For training only.
        focal_gamma: of the focal loss (:func:`~bertine.models.losses.focal`); 0: cross-entropy.
            For training only.
        pair_pooling, shared_pieces, text_pooling, both_orders: see
            :class:`~bertine.tasks.whole_text.WholeTextTask`.
        abstain_below: an answer with a lower probability abstains.
        costs: the costs of answers; the label of least expected cost is chosen. None: the most
            probable one is.
        coverage, least_probability: of the sets of labels that are also returned, and the
            probability from which a label is in one; None: no sets.
        familiarity: judges how much a text is like the training texts; None: answers do not say.
        abstain_unfamiliar: an answer to a text with a lower familiarity abstains.

    Raises:
        BertineError: there are fewer than two labels, a repeated label, not one or two text
            columns, or a maximum length without room for text.
    """

    name: ClassVar[str] = "text"
    kind: ClassVar[str] = "classification"
    primary_metric: ClassVar[str] = "accuracy"
    answer: ClassVar[type[Prediction]] = Prediction
    label_noun: ClassVar[str] = "label"
    rules: ClassVar[tuple[str, ...]] = ("abstain_below", "costs", "coverage", "familiarity")

    labels: tuple[str, ...] = field()  # without a default, as others have
    text_columns: tuple[str, ...] = ("text",)
    label_column: str | None = None
    max_length: int = 128
    metric_names: tuple[str, ...] = ("accuracy",)
    dataset: str | None = None
    long_text: str = setting("head")
    numbered: bool = setting(False)
    class_weights: tuple[float, ...] | None = None
    focal_gamma: float = 0.0
    pair_pooling: str = setting("")
    shared_pieces: bool = setting(False)
    text_pooling: str = setting("")
    both_orders: bool = setting(False)
    abstain_below: float = 0.0
    costs: Costs | None = None
    coverage: float | None = None
    least_probability: float | None = None
    familiarity: Familiarity | None = None
    abstain_unfamiliar: float = 0.0

    def __post_init__(self) -> None:
        check_labels(self.kind, self.labels)
        super().__post_init__()

    @classmethod
    def from_examples(
        cls,
        examples: Examples,
        *,
        max_length: int = 128,
        labels: Sequence[str] | None = None,
        class_weights: ClassWeights | tuple[float, ...] | None = None,
        **settings: Any,
    ) -> TextClassification:
        """Create the task from labelled training examples.

        The labels are those that occur, in the order of the file's class names, or else sorted (as
        numbers if all are integers), unless given. The class weights are given, or those of
        :meth:`balanced`.

        Raises:
            BertineError: fewer than two labels occur, every row has a different label, or one is
                not among the given `labels`.
        """
        occurring = {example.label for example in examples.items if example.label is not None}
        if len(occurring) < 2 and labels is None:
            raise BertineError(
                f"{examples.source}: the column {examples.label_column!r} holds only the label "
                f"{next(iter(occurring), '')!r}; classification needs at least two"
            )
        if labels is None and len(occurring) == len(examples) >= _SUSPICIOUS:
            raise BertineError(
                f"{examples.source}: every row has its own value in the column "
                f"{examples.label_column!r}; is that the label column?"
            )
        names = tuple(in_order(occurring, examples.class_names) if labels is None else labels)
        weights = _balanced(names, examples) if isinstance(class_weights, str) else class_weights
        task = cls(
            names,
            examples.text_columns,
            examples.label_column,
            max_length,
            class_weights=weights,
            **settings,
        )
        for example in examples.items:
            task.target(example.label, examples.source, example.line)
        return task

    def target(self, label: str | None, source: str, line: int) -> int | None:
        """Return the index of `label`, or None for None.

        Raises:
            BertineError: it is not one of the labels; names file, line, label and the known ones.
        """
        return None if label is None else label_id(label, self.ids, row_at(source, line))

    def target_of(self, example: Example, source: str) -> Any:
        """Return the index of the label; for soft labels their probabilities, fp32 [K]."""
        if isinstance(example, SoftExample):
            return np.array(example.probabilities, dtype=np.float32)
        return self.target(example.label, source, example.line)

    def targets(self, labels: Sequence[Any]) -> Tensor:
        """Return the targets of a batch: int64 [B]; for soft labels fp32 [B, K]."""
        if isinstance(labels[0], np.ndarray):
            return torch.from_numpy(np.stack(labels))
        return super().targets(labels)

    def balanced(self, examples: Examples) -> tuple[float, ...]:
        """Return weights with which every class counts equally: N / (K n) for a class with n of the
        N `examples` (scikit-learn's "balanced"); their mean over the examples is 1."""
        return _balanced(self.labels, examples)

    def weighted_for(self, features: Sequence[Any]) -> TextClassification:
        """Divide `class_weights` by the ratio of a class's share of windows to its share of texts,
        so that it has the intended share of the loss."""
        if self.class_weights is None:
            return self
        texts = Counter({feature.row: feature.label for feature in features}.values())
        inputs = Counter(feature.label for feature in features)
        weights = []
        for number, weight in enumerate(self.class_weights):
            share = texts[number] / texts.total()
            share_of_inputs = inputs[number] / len(features)
            weights.append(weight * (share / share_of_inputs) if share_of_inputs else weight)
        return replace(self, class_weights=tuple(weights))

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy, times the weight of the true class and that of the example if
        there are any, summed over the sequences, in fp32. Weights have the mean 1, so the sum is
        still divided by the count, and the parts of a step add up to the whole."""
        logits, labels = self.outputs(model, batch, encoded).float(), batch.targets["labels"]
        weights = None if self.class_weights is None else logits.new_tensor(self.class_weights)
        example_weights = batch.targets.get(WEIGHTS)
        if self.focal_gamma or example_weights is not None:
            losses = F.cross_entropy(logits, labels, weight=weights, reduction="none")
            if example_weights is not None:
                losses = losses * example_weights
            log_likelihoods = -F.cross_entropy(logits, labels, reduction="none")
            total = focal(losses, log_likelihoods, self.focal_gamma)
        else:
            total = F.cross_entropy(logits, labels, weight=weights, reduction="sum")
        right = labels.argmax(-1) if labels.is_floating_point() else labels
        correct = (logits.argmax(-1) == right).sum()
        return {self.head: Term(total, batch.num_sequences, correct)}

    @property
    def answering(self) -> Any:
        return self if self.familiarity is None else WithVectors(self)

    def decode(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> list[Prediction]:
        """Turn logits [K] of each feature, or those and a vector, into softmax (in fp64) and its
        maximum, or the label of least expected cost."""
        if not outputs:
            return []
        rows, count = np.stack(pooled(outputs, features)), len(self.labels)
        logits = rows[:, :count].astype(np.float64)
        exp = np.exp(logits - logits.max(-1, keepdims=True))
        table = exp / exp.sum(-1, keepdims=True)
        chosen, left_open = logits.argmax(-1), np.zeros(len(table), dtype=bool)
        if self.costs is not None:
            chosen, left_open = self.costs.decide(table)
        familiar: list[float | None] = [None] * len(table)
        if self.familiarity is not None and rows.shape[1] > count:
            values = self.familiarity.of(rows[:, count:])
            familiar = values.tolist()
            left_open = left_open | (values < self.abstain_unfamiliar)
        sets: list[tuple[str, ...] | None] = [None] * len(table)
        if self.least_probability is not None:
            sets = [
                tuple(self.labels[number] for number in numbers)
                for numbers in label_sets(table, self.least_probability)
            ]
        return [
            Prediction(
                self.labels[best],
                row[best] < self.abstain_below or open_,
                label_set,
                familiarity,
                all_labels=self.labels,
                numbers=row,
            )
            for best, row, open_, label_set, familiarity in zip(
                chosen.tolist(), compact(table), left_open.tolist(), sets, familiar, strict=True
            )
        ]

    def decisions(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> Decisions | None:
        """Return the logits of each text, and the number of its label, for soft labels that of the
        most probable one."""
        logits, truth = [], []
        for of_windows, own in by_example(outputs, features):
            if (label := own[0].label) is None:
                continue
            logits.append(np.asarray(np.mean(of_windows, axis=0, dtype=np.float64)))
            truth.append(int(label.argmax() if isinstance(label, np.ndarray) else label))
        return Decisions.of(logits, truth)

    def as_outputs(self, answers: np.ndarray) -> np.ndarray:
        """Return the logarithms of probabilities."""
        return np.log(np.maximum(answers, LEAST)).astype(np.float32)

    def loss_of(self, output: np.ndarray, label: int | np.ndarray) -> float:
        """Compute the cross-entropy of logits [K]; for soft labels its mean under these."""
        output = output[: len(self.labels)]  # a vector may stand behind them
        if isinstance(label, np.ndarray):
            losses = [cross_entropy(output, number) for number in range(len(label))]
            return float(label.astype(np.float64) @ losses)
        return cross_entropy(output, label)

    def constant(
        self, examples: Examples[Any], features: Sequence[Features]
    ) -> tuple[str, float | None]:
        """Return the most frequent label, and the entropy of the label frequencies; with class
        weights the log of the number of labels; None if examples have weights."""
        counts, items = Counter(item.label for item in examples.items), examples.items
        loss: float | None
        if self.focal_gamma or any(feature.weight != 1 for feature in features):
            loss = None
        elif self.class_weights is not None:
            loss = math.log(len(self.labels))
        elif items and isinstance(items[0], SoftExample):
            mean = np.mean([item.probabilities for item in items], axis=0)
            loss = float(-(mean[mean > 0] * np.log(mean[mean > 0])).sum()) or None
        else:
            loss = entropy(counts)
        return max(self.labels, key=lambda label: counts[label]), loss

    def report(
        self, predictions: Sequence[Prediction], labels: Sequence[str]
    ) -> ClassificationReport:
        """Compute accuracy, macro_f1, loss (mean cross-entropy in nats) and matthews, with two
        labels also f1 (of the second one); and the confusion of labels.

        Raises:
            BertineError: there are no examples.
        """
        require_some(predictions)
        pairs = zip(predictions, labels, strict=True)
        loss = mean_log_loss([answer.numbers[self.ids[label]] for answer, label in pairs])
        scores = classification_scores(
            labels, [prediction.label for prediction in predictions], self.labels
        )
        # The loss comes after the two shares that every classifier has.
        first = {name: scores.pop(name) for name in ("accuracy", "macro_f1")}
        report = ClassificationReport(
            self.labels,
            {**first, "loss": loss, **scores},
            Counter(
                (self.ids[label], self.ids[answer.label])
                for answer, label in zip(predictions, labels, strict=True)
            ),
            reliability=Reliability.of(
                [prediction.probability for prediction in predictions],
                [answer.label == label for answer, label in zip(predictions, labels, strict=True)],
            ),
        )
        if self.costs is not None:
            self._add_costs(report, self.costs, predictions, labels)
        if self.coverage is not None:
            report.add_coverage(self.coverage, predictions, labels)
        return report

    def _add_costs(
        self,
        report: ClassificationReport,
        costs: Costs,
        predictions: Sequence[Prediction],
        labels: Sequence[str],
    ) -> None:
        """Add the mean cost of the answers to a report, and that of the most probable labels."""
        truth = np.array([self.ids[label] for label in labels])
        chances = np.array([answer.numbers for answer in predictions])
        answers = np.array([self.ids[answer.label] for answer in predictions])
        left_open = np.array([answer.abstains for answer in predictions])
        paid = costs.mean(truth, answers, left_open)
        usual = costs.mean(truth, chances.argmax(1), np.zeros(len(truth), dtype=bool))
        report.metrics |= {"mean_cost": paid, "most_probable_mean_cost": usual}
        share = f", {left_open.mean():.1%} of them left open" if costs.no_answer else ""
        report.notes.append(
            f"mean cost {paid:.4f} with the answers of least expected cost{share}; {usual:.4f} "
            "with the most probable labels"
        )

    def judge(self, predictions: Sequence[Prediction], examples: Examples) -> ClassificationReport:
        """Compute the report. If examples have the probability of each label, the most probable one
        counts as the label, and the loss is the cross-entropy with all of them."""
        labels = [item.label for item in examples.items if item.label is not None]
        report = self.report(predictions, labels)
        soft = [item.probabilities for item in examples.items if isinstance(item, SoftExample)]
        if soft and len(soft) == len(predictions):
            wanted = np.array(soft)
            given = np.array([answer.numbers for answer in predictions])
            report.metrics["loss"] = mean_cross_entropy(wanted, given)
            report.notes.append(
                "the most probable label of a row counts as its label; the loss is the "
                "cross-entropy with the probabilities, "
                f"{mean_cross_entropy(wanted, wanted):.4f} at the least"
            )
        return report

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return ``label``, ``probability``; with `details` also the probability of each label."""
        columns = super().output_columns(False)
        if self.coverage is not None:
            columns["label_set"] = lambda answer: SEPARATOR.join(answer.label_set)
        if self.familiarity is not None:
            columns["familiarity"] = lambda answer: json_value(answer.familiarity)
        return columns | (probability_columns(self.labels) if details else {})


#: The answers of the heads of pre-training on pairs, in the order of their outputs.
PAIR_ANSWERS = {"nsp": ("IsNext", "NotNext"), "sop": ("InOrder", "Swapped")}


@dataclass(frozen=True)
class SentencePairs(TextClassification):
    """What pre-training on pairs has learned to answer: whether B is the next sentence after A
    (Devlin et al. 2018, section 3.1), or whether A and B are in the order of their document (Lan et
    al. 2019, section 3.1). The labels, those of :data:`PAIR_ANSWERS`, say which.

    The head is that of pre-training, so nothing is trained for it.
    """

    name: ClassVar[str] = "pretraining"
    kind: ClassVar[str] = "next-sentence prediction"
    advice: ClassVar[str] = (
        "; it was only pre-trained, on pairs, so for labels fine-tune it first (bertine finetune)"
    )

    text_columns: tuple[str, ...] = ("sentence1", "sentence2")

    @property
    def head(self) -> str:
        return next(name for name, labels in PAIR_ANSWERS.items() if labels == self.labels)

    def shown(
        self, texts: Sequence[str], answer: Any, details: bool
    ) -> tuple[tuple[str, str], list[str]]:
        """Return the answer as text, always with the probability of both."""
        return super().shown(texts, answer, True)

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return the columns of a file of answers, always with the probability of both."""
        return super().output_columns(True)


def _balanced(labels: Sequence[str], examples: Examples) -> tuple[float, ...]:
    """Return the weights of :meth:`TextClassification.balanced`."""
    counts = dict.fromkeys(labels, 0.0)
    for item in examples.items:
        if item.label in counts:
            counts[item.label] += item.weight
    share = sum(counts.values()) / len(labels)
    return tuple(share / (counts[label] or 1.0) for label in labels)


def in_order(labels: set[str], names: Sequence[str]) -> list[str]:
    """Sort labels: in the order of `names` if all are in it; by number if all are integers (so that
    10 comes after 9); otherwise by text."""
    if labels <= set(names):
        return [name for name in names if name in labels]
    try:
        return sorted(labels, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(labels)
