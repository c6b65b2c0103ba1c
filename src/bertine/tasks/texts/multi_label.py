"""Classification with any number of labels: each is a decision of its own.

The head is that of classification (Devlin et al. 2018, section 4.1); sigmoid and binary
cross-entropy take the place of the softmax, as in ``BertForSequenceClassification`` with
``problem_type`` "multi_label_classification".

Shape legend: B sequences in a batch, K labels.
"""

from __future__ import annotations

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
from bertine.options.names import option
from bertine.records.examples import Examples
from bertine.records.label_sets import joined, labels_in
from bertine.taskinfo import TaskInfo
from bertine.tasks.answer import Answer, rounded_each
from bertine.tasks.base import Features, TaskDefaults, pad_features
from bertine.tasks.encoding import HeadOfTexts, check_inputs, check_pair_pooling, encode
from bertine.tasks.labels import known_labels, label_ids
from bertine.tasks.long_text import pooled
from bertine.tasks.losses import NONE, binary_cross_entropies, of_examples
from bertine.tasks.texts.multi_label_report import MultiLabelReport, multi_label_scores
from bertine.terminal.console import visible
from bertine.text.tokenizer import Tokenizer


@dataclass(frozen=True, repr=False)
class LabelSet(Answer):
    """The labels whose probability reaches the threshold, in the head's order (there may be
    none), and the probability of each (they do not sum to 1)."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]

    def cells(self) -> tuple[str, str]:
        each = (f"{visible(name)} {self.probabilities[name]:.1%}" for name in self.labels)
        return ", ".join(each) or "(no label)", ""

    noun = "labels"

    @property
    def decision(self) -> frozenset[str]:
        return frozenset(self.labels)

    def to_json(self, details: bool) -> dict[str, Any]:
        chosen = {label: self.probabilities[label] for label in self.labels}
        shown = self.probabilities if details else chosen
        return {"labels": list(self.labels), "probabilities": rounded_each(shown)}

    def chances(self) -> list[tuple[str, float]]:
        return list(self.probabilities.items())


@dataclass(frozen=True, slots=True)
class SetFeatures(Features):
    """Features with many targets: `chosen` is fp32 [K], 1 for the example's labels; None when
    they are not known."""

    chosen: np.ndarray | None = None


@dataclass(frozen=True)
class MultiLabel(HeadOfTexts, TaskDefaults):
    """Which labels, none to all of them, a text or a pair of texts has.

    Attributes:
        labels: in the order of the head's outputs.
        text_columns: one column, or two for pairs.
        label_column: the column of the labels with a separator between them; None when not known,
            or where each label has a column.
        max_length: longest input in pieces, special tokens included.
        threshold: a label is given from this probability on.
        separator: between labels, in `label_column` and in answers.
        one_column_each: each label has a column of its own, of 0 and 1, under its name.
        long_text: what is read of a longer text (:mod:`bertine.tasks.long_text`).
        positive_weights: of a label's presence in the loss, in the labels' order; None: all 1.
        focal_gamma: of the focal loss (:func:`~bertine.models.losses.focal`); 0: cross-entropy.
        metric_names: the metrics by which the task is judged.

    Raises:
        BertineError: fewer than two labels, one given twice, a threshold out of range, or inputs
            that are none.
    """

    name: ClassVar[str] = "multi-label"
    primary_metric: ClassVar[str] = "micro_f1"

    labels: tuple[str, ...]
    text_columns: tuple[str, ...] = ("text",)
    label_column: str | None = None
    max_length: int = 128
    threshold: float = 0.5
    separator: str = "|"
    one_column_each: bool = False
    long_text: str = "head"
    positive_weights: tuple[float, ...] | None = None
    focal_gamma: float = 0.0
    metric_names: tuple[str, ...] = ("micro_f1",)
    pair_pooling: str = ""
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = label_ids("multi-label", self.labels)
        if not 0.0 < self.threshold < 1.0:
            raise BertineError(f"threshold is {self.threshold:g}, but must be between 0 and 1")
        check_inputs("multi-label", self.text_columns, self.max_length, self.long_text)
        check_pair_pooling(self.pair_pooling, self.text_columns)
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def from_examples(
        cls, examples: Examples, *, max_length: int = 128, labels: Sequence[str] | None = None
    ) -> MultiLabel:
        """The task of labelled training examples. The labels are those that occur, sorted, unless
        given.

        Raises:
            BertineError: fewer than two labels occur, or one is not among the given.
        """
        found = {label for item in examples.items for label in labels_in(item.label or "")}
        if labels is None and len(found) < 2:
            raise BertineError(
                f"{examples.source}: the column {examples.label_column!r} holds {len(found)} "
                f"different labels; multi-label needs at least two (another "
                f"{option('label_separator')}?)"
            )
        task = cls(
            tuple(sorted(found) if labels is None else labels),
            examples.text_columns,
            examples.label_column,
            max_length,
        )
        for item in examples.items:
            task.chosen(item.label, examples.source, item.line)
        return task

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config) -> MultiLabel:
        """The task of a model directory; what its file leaves open is one column ``text``, the
        longest input that the model takes and the threshold 0.5."""
        return cls(
            info.labels,
            info.text_columns or ("text",),
            info.label_column,
            info.input_length(config.longest_input),
            threshold=info.setting("threshold", 0.5),
            separator=info.setting("separator", "|"),
            one_column_each=info.setting("one_column_each", False),
            long_text=info.setting("long_text", "head"),
            metric_names=info.metrics or ("micro_f1",),
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
            settings={
                "threshold": self.threshold,
                "separator": self.separator,
                "one_column_each": self.one_column_each,
                "long_text": self.long_text,
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

    def chosen(self, label: str | None, source: str, line: int) -> np.ndarray | None:
        """fp32 [K], 1 for each of an example's labels; None for None.

        Raises:
            BertineError: one is none of the labels; names file, line, label and the nearest.
        """
        if label is None:
            return None
        found = np.zeros(len(self.labels), dtype=np.float32)
        for name in labels_in(label):
            if name not in self._ids:
                known = known_labels(name, self.labels)
                raise BertineError(f"{source}:{line}: unknown label {name!r}{known}")
            found[self._ids[name]] = 1.0
        return found

    def balanced(self, examples: Examples) -> tuple[float, ...]:
        """For each label, how many of the `examples` lack it for one that has it: with these
        `positive_weights` presence and absence weigh the same. 1 for a label that all of them have:
        without any weight it would not be learned."""
        table = self._table([item.label or "" for item in examples.items], examples.source)
        return tuple(_lacking_for_one(table).tolist())

    def weighted_for(self, features: Sequence[Any]) -> MultiLabel:
        """With `positive_weights` for windows in place of texts, if they were made for these."""
        if self.positive_weights is None:
            return self
        texts = np.stack(list({feature.row: feature.chosen for feature in features}.values()))
        inputs = np.stack([feature.chosen for feature in features])
        scale = (_lacking_for_one(inputs) / _lacking_for_one(texts)).tolist()
        weights = zip(self.positive_weights, scale, strict=True)
        return replace(self, positive_weights=tuple(weight * by for weight, by in weights))

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Tokenize into :class:`SetFeatures`; longer inputs as `long_text` says.

        Raises:
            BertineError: an unknown label, or an example with another number of texts.
        """
        plain = encode(
            examples,
            tokenizer,
            self.text_columns,
            self.max_length,
            lambda label, line: None,
            self.long_text,
        )
        sets = [self.chosen(item.label, examples.source, item.line) for item in examples.items]
        return [
            SetFeatures(
                each.input_ids,
                each.token_type_ids,
                each.row,
                num_truncated=each.num_truncated,
                chosen=sets[each.row],
            )
            for each in plain
        ]

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad; ``targets["labels"]`` fp32 [B, K] when every feature has its labels."""
        batch = pad_features(features, pad_id, self.max_length)
        sets = [feature.chosen for feature in features if feature.chosen is not None]
        if len(sets) == len(features):
            batch.targets["labels"] = torch.from_numpy(np.stack(sets))
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """Decisions: one for each label of each sequence."""
        return {self.head: batch.num_sequences * len(self.labels)}

    def outputs_of(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Logits [B, K]."""
        return self.logits(model, encoded, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Binary cross-entropy, summed over sequences and labels, in fp32. What is right counts
        at probability 0.5, whatever the threshold."""
        logits, labels = self.outputs_of(model, encoded, batch).float(), batch.targets["labels"]
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

    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[LabelSet]:
        """Logits [K] of each feature → sigmoid (in fp64) and what reaches the threshold."""
        found = []
        for output in pooled(outputs, features):
            logits = np.asarray(output, dtype=np.float64)
            table = (0.5 * (1.0 + np.tanh(0.5 * logits))).tolist()
            probabilities = dict(zip(self.labels, table, strict=True))
            chosen = tuple(name for name, p in probabilities.items() if p >= self.threshold)
            found.append(LabelSet(chosen, probabilities))
        return found

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[float]:
        """Binary cross-entropy of each example, the mean over labels and windows."""
        found = [
            NONE
            if feature.chosen is None
            else float(binary_cross_entropies(output, feature.chosen).mean())
            for output, feature in zip(outputs, features, strict=True)
        ]
        return of_examples(found, features)

    def _table(self, labels: Sequence[str], source: str = "labels") -> np.ndarray:
        """fp32 [N, K] of the labels of N examples."""
        found = [self.chosen(label, source, row) for row, label in enumerate(labels, 1)]
        return np.stack([row for row in found if row is not None])

    def _compared(
        self, predictions: Sequence[LabelSet], labels: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Truth, answers (bool [N, K]) and probabilities fp64 [N, K]."""
        given = np.array([list(prediction.probabilities.values()) for prediction in predictions])
        return self._table(labels) > 0.5, given >= self.threshold, given

    def metrics(self, predictions: Sequence[LabelSet], labels: Sequence[str]) -> dict[str, float]:
        """micro_f1, macro_f1, accuracy (all labels of an example right) and loss (mean binary
        cross-entropy in nats)."""
        return multi_label_scores(*self._compared(predictions, labels))

    def report(self, predictions: Sequence[LabelSet], labels: Sequence[str]) -> MultiLabelReport:
        """Metrics, and precision, recall and F1 of each label.

        Raises:
            BertineError: there are no examples.
        """
        if not predictions:
            raise BertineError("there are no examples to evaluate on")
        return MultiLabelReport.of(self.labels, *self._compared(predictions, labels))

    def output_columns(self, details: bool) -> list[str]:
        """``labels``, with the separator between them; with `details` also the probability of
        each."""
        each = [f"probability_{label}" for label in self.labels] if details else []
        return ["labels", *each]

    def output_values(self, prediction: LabelSet, details: bool) -> list[Any]:
        each = list(prediction.probabilities.values()) if details else []
        return [joined(prediction.labels, self.separator), *(round(p, 6) for p in each)]


def _lacking_for_one(table: np.ndarray) -> np.ndarray:
    """Of rows with and without labels, fp32 [N, K] of 1 and 0: how many lack each label for one
    that has it; 1 for a label that all have. fp32 [K]."""
    having = table.sum(0)
    lacking = np.where(having < len(table), len(table) - having, having)
    return np.asarray(lacking / np.maximum(having, 1))
