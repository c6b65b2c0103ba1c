"""Multiple choice (Devlin et al. 2018, section 4.4): which of several endings is the right one.

Each choice makes a sequence of its own, a pair of what was given and the choice. The only new
parameters are one vector (and transformers' bias) against the pooled [CLS]: its product is a
choice's score, and the softmax of the scores of an example is their probability.

Shape legend: B sequences in a batch, G examples in it, C choices of the example that has most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.objectives.base import Term
from bertine.options.names import option
from bertine.records.examples import Example, Examples
from bertine.taskinfo import TaskInfo
from bertine.tasks.answer import Answer, short
from bertine.tasks.base import Task, setting
from bertine.tasks.features import Features, by_example
from bertine.tasks.input_lengths import LEAST_LENGTH, check_room
from bertine.tasks.losses import NONE, cross_entropy
from bertine.tasks.metrics import mean_log_loss
from bertine.tasks.report import ClassificationReport, require_some
from bertine.terminal.console import counted, visible
from bertine.text.tokenizer import Tokenizer

#: The columns of SWAG: what was seen, the beginning of what comes, and how it may go on.
SWAG_PROMPT = ("sent1", "sent2")
SWAG_CHOICES = ("ending0", "ending1", "ending2", "ending3")
#: Examples given to the tokenizer at once.
_TOKENIZE = 1024


@dataclass(frozen=True, repr=False)
class ChoicePrediction(Answer):
    """The most probable choice.

    Attributes:
        choice: its number, from 0 on.
        probabilities: of each choice.
        label: the choice as the training file writes it: the name of its column, or its number.
    """

    written = ("choice", "label", "probability")
    detailed = ("probabilities",)
    noun = "choice"

    choice: int
    probabilities: tuple[float, ...]
    label: str

    @property
    def probability(self) -> float:
        """The probability of `choice`."""
        return self.probabilities[self.choice]

    def cells(self) -> tuple[str, str]:
        return visible(self.label), f"{self.probability:.1%}"

    @property
    def decision(self) -> str:
        return self.label


@dataclass(frozen=True)
class MultipleChoice(Task[ChoicePrediction]):
    """The task to choose which of two or more choices goes with a text; an example may have fewer
    than another.

    Attributes:
        prompt_columns: what is given: one column, or two, of which the second begins every choice
            (SWAG's ``sent2``).
        choice_columns: a column for each choice. Where the last ones are empty, or in JSON lines
            and Parquet null, an example has fewer choices.
        label_column: the column of the right choice, its number from 0 on or its column's name;
            None when not known.
        max_length: longest input in pieces, special tokens included; longer ones are cut.
        metric_names: the metrics by which the task is judged. dataset: the public data set it is,
        "swag"; None for one's own. named_choices: whether the columns of the choices were named,
        and not recognized by their usual names;
            then no other column of a table is a choice.
        answers_by_column: whether an answer is the name of a choice's column, as the labels of the
            training file are, and not its number.

    Raises:
        BertineError: fewer than two columns of choices, not one or two of what is given, a column
            that is named twice, or a maximum length that leaves no room for text.
    """

    name: ClassVar[str] = "choice"
    primary_metric: ClassVar[str] = "accuracy"
    answer: ClassVar[type[ChoicePrediction]] = ChoicePrediction
    has_choices: ClassVar[bool] = True
    single_output: ClassVar[bool] = True
    head = "choice"

    prompt_columns: tuple[str, ...] = SWAG_PROMPT
    choice_columns: tuple[str, ...] = SWAG_CHOICES
    label_column: str | None = None
    max_length: int = 128
    metric_names: tuple[str, ...] = ("accuracy",)
    dataset: str | None = None
    named_choices: bool = setting(False)
    answers_by_column: bool = setting(False)
    text_columns: tuple[str, ...] = field(init=False)  # what is given, then the choices

    def __post_init__(self) -> None:
        columns = (*self.prompt_columns, *self.choice_columns)
        object.__setattr__(self, "text_columns", columns)
        if len(self.prompt_columns) not in (1, 2):
            raise BertineError(
                "multiple choice takes one or two text columns besides the choices, not "
                f"{len(self.prompt_columns)}"
            )
        if len(self.choice_columns) < 2:
            raise BertineError(
                "multiple choice needs at least two columns of choices; name them with "
                f"{option('choice_columns')}"
            )
        for name in columns:
            if columns.count(name) > 1:
                raise BertineError(f"the column {name!r} is named twice")
        if self.max_length < LEAST_LENGTH[2]:
            raise BertineError(f"max_length {self.max_length} leaves no room for text")

    @classmethod
    def from_examples(
        cls, examples: Examples, *, max_length: int = 128, labels: Sequence[str] | None = None
    ) -> MultipleChoice:
        """Make the task of training examples; `labels` are the columns of the choices, which are
        the last of theirs. None: all but the first.

        Raises:
            BertineError: a label is none of its example's choices; an example has fewer than two.
        """
        columns = examples.text_columns
        choices = columns[1:] if labels is None else tuple(labels)
        prompts = columns[: len(columns) - len(choices)]
        task = cls(prompts, choices, examples.label_column, max_length)
        for example in examples.items:
            task.right_of(example, examples.source)
        names = {example.label for example in examples.items} - {None}
        return replace(task, answers_by_column=bool(names) and names <= {*choices})

    def label_of(self, choice: int) -> str:
        """Return the choice of this number as the training file writes it."""
        if self.answers_by_column and choice < len(self.choice_columns):
            return self.choice_columns[choice]
        return str(choice)

    @classmethod
    def arguments(cls, info: TaskInfo, config: Config) -> dict[str, Any]:
        """Return the arguments that a model directory has; what its file leaves open is as in
        SWAG."""
        columns = info.text_columns or (*SWAG_PROMPT, *SWAG_CHOICES)
        prompts = info.setting("prompt_columns", min(2, len(columns) - 2))
        return super().arguments(info, config) | {
            "prompt_columns": columns[:prompts],
            "choice_columns": columns[prompts:],
            "label_column": info.label_column or ("label" if not info.text_columns else None),
        }

    def settings(self) -> dict[str, Any]:
        """Return the settings of ``bertine.json``."""
        return {"prompt_columns": len(self.prompt_columns), **super().settings()}

    def choices_of(self, example: Example, source: str) -> tuple[str, ...]:
        """Return the texts of an example's choices.

        Raises:
            BertineError: fewer than two, more than there are columns, or an empty one before
                another.
        """
        where = f"{source}:{example.line}"
        choices = list(example.texts[len(self.prompt_columns) :])
        while choices and not choices[-1].strip():
            choices.pop()
        for name, text in zip(self.choice_columns, choices, strict=False):
            if not text.strip():
                raise BertineError(
                    f"{where}: the choice {name!r} is empty, but one after it is not; put the "
                    "choices of a row first"
                )
        if not 2 <= len(choices) <= len(self.choice_columns):
            raise BertineError(
                f"{where}: has {counted(len(choices), 'choice')}, but must have from 2 to "
                f"{len(self.choice_columns)} ({', '.join(self.choice_columns)})"
            )
        return tuple(choices)

    def right_of(self, example: Example, source: str) -> int | None:
        """Return the number of an example's right choice, from 0 on; None where it has no label.

        Raises:
            BertineError: the label names none of its choices; what :meth:`choices_of` raises.
        """
        choices = len(self.choices_of(example, source))
        if example.label is None:
            return None
        number = self._number(example.label)
        if number is None or number >= choices:
            raise BertineError(
                f"{source}:{example.line}: the label is {example.label!r}, but must be the number "
                f"of a choice, 0 to {choices - 1}, or its column's name"
            )
        return number

    def _number(self, label: str) -> int | None:
        """Return the number of the choice that a label names; None where there is no such
        column."""
        if label in self.choice_columns:
            return self.choice_columns.index(label)
        label = label.removesuffix(".0")  # a column with gaps is one of floats to some programs
        if not (label.isascii() and label.isdigit() and len(label) < 10):
            return None
        return int(label) if int(label) < len(self.choice_columns) else None

    def optional(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return those of `columns`, what is given and then any number of choices, that may be
        empty.

        Raises:
            BertineError: there are fewer than two choices among them.
        """
        least = len(self.prompt_columns) + 2
        if len(columns) < least:
            raise BertineError(
                f"{len(columns)} text columns are named ({', '.join(columns)}), but the model "
                f"takes {least} or more: {' and '.join(self.prompt_columns)}, then the choices"
            )
        return tuple(columns[least:])

    def over(self, columns: Sequence[str]) -> MultipleChoice:
        """Return the task for a table with these `columns` of what is given and of the choices:
        each choice is scored by itself, so there may be more or fewer than in training. As many of
        other names go by those that they had there.

        Raises:
            BertineError: there are fewer than two choices among them.
        """
        self.optional(columns)
        prompts = len(self.prompt_columns)
        renamed = not set(columns[prompts:]) & set(self.choice_columns)
        if tuple(columns) == self.text_columns or (
            renamed and len(columns) == len(self.text_columns)
        ):
            return self
        return replace(
            self,
            prompt_columns=tuple(columns[:prompts]),
            choice_columns=tuple(columns[prompts:]),
        )

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
        sizes = _sizes(batch.rows)
        shape = (len(sizes), max(sizes))
        # Where each sequence's score stands among [G, C]; worked out on the host, from the rows.
        places = [group * shape[1] + n for group, size in enumerate(sizes) for n in range(size)]
        where = torch.tensor(places, device=scores.device)
        table = scores.new_full((shape[0] * shape[1],), -torch.inf)
        table = table.index_copy(0, where, scores).view(shape)
        marks = scores.new_zeros(shape[0] * shape[1], dtype=torch.int64)
        right = marks.index_copy(0, where, batch.targets["labels"]).view(shape).argmax(1)
        total = F.cross_entropy(table, right, reduction="sum")
        correct = (table.detach().argmax(1) == right).sum()
        return {self.head: Term(total, len(sizes), correct)}

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
            answers.append(ChoicePrediction(choice, probabilities, self.label_of(choice)))
        return answers

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
        numbers = [self._number(label) for label in labels]
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
        confusion = np.zeros((len(self.choice_columns),) * 2, dtype=np.int64)
        for prediction, right in zip(predictions, self._truth(labels), strict=True):
            confusion[right, prediction.choice] += 1
        metrics = self.metrics(predictions, labels)
        labels = tuple(map(self.label_of, range(len(self.choice_columns))))
        return ClassificationReport(labels, metrics, confusion.tolist())

    def misfit(self, text: str | Sequence[str]) -> str | None:
        """Say what is wrong with the number of texts, or that a choice is empty."""
        prompts, columns = len(self.prompt_columns), self.text_columns
        if isinstance(text, str) or not prompts + 2 <= len(text) <= len(columns):
            return (
                f"give a list of {prompts + 2} to {len(columns)} texts: "
                f"{', '.join(self.prompt_columns)}, then the choices"
            )
        if not all(choice.strip() for choice in text[prompts:]):
            return "has an empty choice; leave it out"
        return None

    def group(self, strings: Sequence[str]) -> list[Any]:
        """Make all of the strings one example: what is given, then the choices.

        Raises:
            BertineError: there are fewer than two choices.
        """
        if len(strings) < len(self.prompt_columns) + 2:
            raise BertineError(
                f"{counted(len(strings), 'text')} given, but the model chooses: give "
                f"{' and '.join(map(repr, self.prompt_columns))}, then two choices or more"
            )
        return [tuple(strings)]

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Return the columns, and how many choices may be missing."""
        return self.text_columns, len(self.optional(self.text_columns))

    def columns_for(self, count: int) -> tuple[str, ...]:
        """Return columns for `count` texts: those of training, and names for further choices."""
        known = self.text_columns[: max(count, len(self.prompt_columns) + 2)]
        more = range(len(known), count)
        return (*known, *(f"choice {number - len(self.prompt_columns) + 1}" for number in more))

    def summary(self, texts: Sequence[str], answer: Any) -> tuple[str, str]:
        """Return the choice with its text, and its probability."""
        name, probability = answer.cells()
        return f"{name}: {short(texts[len(self.prompt_columns) + answer.choice])}", probability

    def chances_of(self, texts: Sequence[str], answer: Any) -> list[tuple[str, float]]:
        """Return the text of each choice with its probability."""
        return list(zip(texts[len(self.prompt_columns) :], answer.probabilities, strict=False))

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return ``choice`` (as the training file writes labels: the name of its column, or its
        number from 0 on), ``probability``; with `details` also that of each choice, 0 for one that
        an example lacks."""
        columns = super().output_columns(False)
        label = columns.pop("label")
        if self.answers_by_column:
            columns["choice"] = label
        names = self.choice_columns if details else ()
        return columns | {
            f"probability_{name}": partial(_probability, number)
            for number, name in enumerate(names)
        }


def _probability(number: int, answer: ChoicePrediction) -> float:
    return round(dict(enumerate(answer.probabilities)).get(number, 0.0), 6)


def _sizes(rows: Sequence[int]) -> list[int]:
    """Count the choices of the examples whose rows stand side by side in `rows`."""
    return [sum(1 for _ in group) for _, group in groupby(rows)]
