"""Multiple choice (Devlin et al. 2018, section 4.4): which of several endings is the right one.

Each choice makes a sequence of its own, a pair of what was given and the choice. The only new
parameters are one vector (and transformers' bias) against the pooled [CLS]: its product is a
choice's score, and the softmax of the scores of an example is their probability.

Shape legend: B sequences in a batch, G examples in it, C choices of the example that has most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.objectives.base import Term
from bertine.records.examples import Examples
from bertine.tasks.answer import Answer
from bertine.tasks.calibration import Decisions, Reliability
from bertine.tasks.choice_columns import ChoiceColumns
from bertine.tasks.conformal import SEPARATOR, coverage_line, label_sets
from bertine.tasks.features import Features, by_example
from bertine.tasks.input_lengths import check_room
from bertine.tasks.losses import NONE, cross_entropy
from bertine.tasks.metrics import mean_log_loss
from bertine.tasks.report import ClassificationReport, require_some
from bertine.terminal.console import visible
from bertine.text.tokenizer import Tokenizer

#: Examples given to the tokenizer at once.
_TOKENIZE = 1024


@dataclass(frozen=True, repr=False)
class ChoicePrediction(Answer):
    """The most probable choice.

    Attributes:
        choice: its number, from 0 on.
        probabilities: of each choice.
        label: the choice as the training file writes it: the name of its column, or its number.
        label_set: the choices of a set that holds the right one with the coverage that was asked
            for, as `label`, the most probable first; None: none was.
    """

    written = ("choice", "label", "probability")
    detailed = ("probabilities",)
    left_open = ("choice", "label")
    noun = "choice"

    choice: int
    probabilities: tuple[float, ...]
    label: str
    abstains: bool = False
    label_set: tuple[str, ...] | None = None

    def to_json(self, details: bool) -> dict[str, Any]:
        values = super().to_json(details)
        if self.label_set is not None and not self.empty:
            values["label_set"] = list(self.label_set)
        return values

    @property
    def probability(self) -> float:
        """The probability of `choice`."""
        return self.probabilities[self.choice]

    def own_cells(self) -> tuple[str, str]:
        if self.abstains:
            return f"(no answer; {visible(self.label)}?)", f"{self.probability:.1%}"
        return visible(self.label), f"{self.probability:.1%}"

    @property
    def decision(self) -> str:
        return self.label


@dataclass(frozen=True)
class MultipleChoice(ChoiceColumns[ChoicePrediction]):
    """The task to choose which of two or more choices goes with a text."""

    name: ClassVar[str] = "choice"
    primary_metric: ClassVar[str] = "accuracy"
    answer: ClassVar[type[ChoicePrediction]] = ChoicePrediction
    single_output: ClassVar[bool] = True
    head = "choice"

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Tokenize: a sequence for each choice, those of an example side by side. Inputs longer
        than `max_length` are cut, the longer of the two parts first.

        Raises:
            BertineError: an example without two choices, or whose label is none of them.
        """
        check_room(self.max_length, 2, tokenizer)
        features: list[Features] = []
        for start in range(0, len(examples), _TOKENIZE):
            prompts: list[str] = []
            choices: list[str] = []
            rows: list[tuple[int, float | None]] = []
            for row, example in enumerate(examples.items[start : start + _TOKENIZE], start):
                right = self.right_of(example, examples.source)
                begun = example.texts[1] if len(self.prompt_columns) == 2 else ""
                for number, choice in enumerate(self.choices_of(example, examples.source)):
                    prompts.append(example.texts[0])
                    choices.append(f"{begun} {choice}" if begun else choice)
                    rows.append((row, None if right is None else float(number == right)))
            encodings = tokenizer.encode_batch(prompts, choices, max_length=self.max_length)
            features.extend(
                Features(
                    np.asarray(encoding.input_ids, dtype=np.int32),
                    np.asarray(encoding.token_type_ids, dtype=np.int8),
                    row=row,
                    label=label,
                    num_truncated=encoding.num_truncated,
                    group=row,
                )
                for (row, label), encoding in zip(rows, encodings, strict=True)
            )
        return features

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        """Pad; ``targets["groups"]`` int64 [B] says which sequences are choices of one example,
        and, when every feature has a label, ``targets["labels"]`` int64 [B] is 1 for the right
        ones."""
        batch = super().collate(features, pad_id)
        batch.targets["groups"] = torch.tensor(batch.rows, dtype=torch.int64)
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count examples, of which every one has one target."""
        return {self.head: len(_sizes(batch.rows))}

    def outputs_of(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Compute scores [B]."""
        return model.read(self.head, encoded).squeeze(-1)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the softmax over each example's choices, summed over the
        examples, in fp32. The batch must have all the choices of its examples."""
        scores = self.outputs_of(model, encoded, batch).float()
        table = _by_group(scores, batch, -torch.inf)
        right = _by_group(batch.targets["labels"], batch, 0).argmax(1)
        total = F.cross_entropy(table, right, reduction="sum")
        correct = (table.detach().argmax(1) == right).sum()
        return {self.head: Term(total, len(table), correct)}

    def rows_of(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return scores [B] by their examples: [G, C], -inf where an example has no such choice."""
        return _by_group(outputs, batch, -torch.inf)

    def decode(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> list[ChoicePrediction]:
        """Turn the score [] of each feature into softmax (in fp64) over those of an example."""
        answers = []
        for outputs_of_choices, _ in by_example(outputs, features):
            scores = np.array(list(map(float, outputs_of_choices)))
            exp = np.exp(scores - scores.max())
            choice = int(scores.argmax())
            probabilities = tuple((exp / exp.sum()).tolist())
            unsure = probabilities[choice] < self.abstain_below
            chosen = None
            if self.least_probability is not None:
                (numbers,) = label_sets(np.array([probabilities]), self.least_probability)
                chosen = tuple(map(self.label_of, numbers))
            answers.append(
                ChoicePrediction(choice, probabilities, self.label_of(choice), unsure, chosen)
            )
        return answers

    def decisions(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> Decisions | None:
        """Return the scores of the choices of each example, and the number of the right one."""
        logits, truth = [], []
        for scores, choices in by_example(outputs, features):
            marks = [choice.label for choice in choices]
            if 1.0 in marks:
                logits.append(np.array(list(map(float, scores))))
                truth.append(marks.index(1.0))
        return Decisions.of(logits, truth)

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Features]) -> list[float]:
        """Compute the cross-entropy of the softmax over each example's choices."""
        losses = []
        for scores, choices in by_example(outputs, features):
            marks = [choice.label for choice in choices]
            logits = np.array(list(map(float, scores)))
            losses.append(cross_entropy(logits, marks.index(1.0)) if 1.0 in marks else NONE)
        return losses

    def constant_loss(self, examples: Examples[Any], features: Sequence[Features]) -> float | None:
        """Compute the mean log of how many choices an example has."""
        sizes = _sizes([feature.row for feature in features])
        return sum(map(math.log, sizes)) / max(1, len(sizes)) or None

    def majority(self, train: Examples) -> str:
        """Name the place that is right most often."""
        places = Counter(self.right_of(item, train.source) for item in train.items)
        return self.label_of(max(range(len(self.choice_columns)), key=lambda place: places[place]))

    def _truth(self, labels: Sequence[str]) -> list[int]:
        """Return the numbers of the choices that labels name."""
        numbers = [self.number_of(label) for label in labels]
        if None in numbers:
            wrong = labels[numbers.index(None)]
            raise BertineError(f"the label {wrong!r} names none of the choices")
        return [number for number in numbers if number is not None]

    def metrics(
        self, predictions: Sequence[ChoicePrediction], labels: Sequence[str]
    ) -> dict[str, float]:
        """Compute accuracy and loss (mean cross-entropy in nats)."""
        pairs = list(zip(predictions, self._truth(labels), strict=True))
        return {
            "accuracy": sum(prediction.choice == right for prediction, right in pairs) / len(pairs),
            "loss": mean_log_loss([answer.probabilities[right] for answer, right in pairs]),
        }

    def report(
        self, predictions: Sequence[ChoicePrediction], labels: Sequence[str]
    ) -> ClassificationReport:
        """Compute metrics, and how often each place was right and chosen: a model that has learned
        nothing but the places is seen there.

        Raises:
            BertineError: there are no examples.
        """
        require_some(predictions)
        truth = self._truth(labels)
        counts = Counter(zip(truth, (answer.choice for answer in predictions), strict=True))
        metrics = self.metrics(predictions, labels)
        names = tuple(map(self.label_of, range(len(self.choice_columns))))
        right = [
            prediction.choice == number
            for prediction, number in zip(predictions, truth, strict=True)
        ]
        chances = [prediction.probability for prediction in predictions]
        report = ClassificationReport(
            names, metrics, counts, reliability=Reliability.of(chances, right)
        )
        if self.coverage is not None:
            sets = [prediction.label_set for prediction in predictions]
            metrics, line = coverage_line(self.coverage, sets, [names[number] for number in truth])
            report.metrics |= metrics
            report.notes.append(line)
        return report

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return ``choice`` (as the training file writes labels: the name of its column, or its
        number from 0 on), ``probability``; with `details` also that of each choice, 0 for one that
        an example lacks."""
        columns = super().output_columns(False)
        label = columns.pop("label")
        if self.answers_by_column:
            columns["choice"] = label
        if self.coverage is not None:
            columns["label_set"] = lambda answer: SEPARATOR.join(answer.label_set)
        names = self.choice_columns if details else ()
        return columns | {
            f"probability_{name}": partial(_probability, number)
            for number, name in enumerate(names)
        }


def _probability(number: int, answer: ChoicePrediction) -> float:
    known = answer.probabilities
    return round(known[number], 6) if number < len(known) else 0.0


def _by_group(values: Tensor, batch: Batch, otherwise: float) -> Tensor:
    """Put one value for each sequence [B] into a row for each example [G, C], and `otherwise` where
    an example has no such choice."""
    sizes = _sizes(batch.rows)
    shape = (len(sizes), max(sizes))
    # Where each sequence's value stands among [G, C]; worked out on the host, from the rows.
    places = [group * shape[1] + n for group, size in enumerate(sizes) for n in range(size)]
    where = torch.tensor(places, device=values.device)
    table = values.new_full((shape[0] * shape[1],), otherwise)
    return table.index_copy(0, where, values).view(shape)


def _sizes(rows: Sequence[int]) -> list[int]:
    """Count the choices of the examples whose rows stand side by side in `rows`."""
    return [sum(1 for _ in group) for _, group in groupby(rows)]
