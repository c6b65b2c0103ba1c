"""Define the task of multiple choice, with the columns of its tables."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import later, option
from bertine.core.task_info import TaskInfo
from bertine.core.text import row_at, visible
from bertine.corpora.batch import Batch
from bertine.data.examples import Example, Examples
from bertine.data.lines import first_numbers
from bertine.models.config import Config
from bertine.tasks.answer import OneLabel, short
from bertine.tasks.base import (
    LEAST_LENGTH,
    NONE,
    Features,
    Prediction,
    Task,
    by_example,
    chance_lines,
    check_room,
    cross_entropy,
    setting,
)
from bertine.tasks.calibration import SEPARATOR, Decisions, Reliability, label_sets
from bertine.tasks.metrics import mean_log_loss
from bertine.tasks.report import ClassificationReport, require_some
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    from bertine.models.encoder import Encoded
    from bertine.models.heads import Model
    from bertine.objectives.losses import Term
else:
    later(globals(), "torch objectives.losses:Term F=torch.nn.functional")

#: The columns of SWAG: the context, the beginning of the next sentence, and its possible endings.
SWAG_PROMPT = ("sent1", "sent2")
SWAG_CHOICES = ("ending0", "ending1", "ending2", "ending3")

#: A single letter, and one at the end of a column's name.
_LETTER = re.compile(r"\(?([A-Za-z])[).]?")
_LAST = re.compile(r"(?:.*[^A-Za-z])?([A-Za-z])")
#: The probability by chance below which it is reported that no label is 0.
_CHANCE = 1e-3


@dataclass(frozen=True)
class ChoiceColumns(Task[Prediction]):
    """The base of multiple choice: one or two prompt columns, and one for each choice; examples may
    differ in the number of choices.

    Attributes:
        prompt_columns: the columns of the prompt: one, or two, of which the second begins every
            choice (SWAG's ``sent2``).
        choice_columns: a column for each choice. If the last ones are empty, or in JSON lines and
            Parquet null, an example has fewer choices.
        label_column: the column of the right choice, its number or its column's name; None if
            unknown.
        max_length: longest input in pieces, special tokens included; longer ones are cut.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set, "swag"; None for a user's own.
        named_choices: whether the user named the columns of the choices, rather than that they were
            recognized by their usual names; then no other column of a table is a choice.
        answers_by_column: whether an answer is the name of a choice's column, as the labels of the
            training file are, or letters, and not its number.
        first_number: of the first choice in the labels of the training file: 0 or 1.
        abstain_below: an answer with a lower probability abstains.
        coverage, least_probability: of the sets of choices that are also returned, and the
            probability from which a choice is in one; None: no sets.

    Raises:
        BertineError: there are fewer than two columns of choices, not one or two of the prompt, a
            repeated column, or a maximum length without room for text.
    """

    reader = "choices"
    rules: ClassVar[tuple[str, ...]] = ("abstain_below", "coverage")
    example: ClassVar[str] = '"a question" "a choice" "another choice"'

    prompt_columns: tuple[str, ...] = SWAG_PROMPT
    choice_columns: tuple[str, ...] = SWAG_CHOICES
    label_column: str | None = None
    max_length: int = 128
    metric_names: tuple[str, ...] = ("accuracy",)
    dataset: str | None = None
    named_choices: bool = setting(False)
    answers_by_column: bool = setting(False)
    first_number: int = setting(0)
    abstain_below: float = 0.0
    coverage: float | None = None
    least_probability: float | None = None
    text_columns: tuple[str, ...] = field(init=False)  # the prompt, then the choices

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
        cls,
        examples: Examples,
        *,
        max_length: int = 128,
        labels: Sequence[str] | None = None,
        **settings: Any,
    ) -> Self:
        """Create the task from training examples; `labels` are the columns of the choices, which
        are the last ones of the examples. None: all but the first.

        Raises:
            BertineError: a label is not one of its example's choices, or an example has fewer than
                two of them.
        """
        columns = examples.text_columns
        choices = columns[1:] if labels is None else tuple(labels)
        prompts = columns[: len(columns) - len(choices)]
        task = cls(prompts, choices, examples.label_column, max_length, **settings)
        task = replace(task, first_number=task._first_number(examples))
        for example in examples.items:
            task.right_of(example, examples.source)
        names = {example.label for example in examples.items} - {None}
        letters = sorted(names - {*choices}) if names else []
        by_column = bool(names) and all(map(_letter, letters))
        if by_column and letters and not _letters_of(choices):
            examples.note(
                f"{examples.source}: the label {letters[0]} is a letter, by which choices are "
                f"counted in the order of their columns: A is {choices[0]!r}"
            )
        return replace(task, answers_by_column=by_column)

    def _first_number(self, examples: Examples) -> int:
        """Return the number of the first choice in the labels of examples: 1 if none is 0 and one
        is the number of choices, which is noted. Otherwise it is 0; a note says that none is 0 if
        that is unlikely by chance.

        Raises:
            BertineError: an error of :meth:`choices_of`.
        """
        numbers: list[int] = []
        last: list[int] = []
        chance = 1.0
        for example in examples.items:
            count = len(self.choices_of(example, examples.source))
            if example.label is None:
                continue
            number = whole_number(example.label)
            if number is None or not 1 <= number <= count or example.label in self.choice_columns:
                return 0
            numbers.append(number)
            last += [example.line] if number == count else []
            chance *= 1 - 1 / count
        if last:
            examples.note(
                f"{examples.source}: the choices are numbered from 1 on: no label is 0, and "
                f"{plural(len(last), 'row')} "
                f"({first_numbers(last, what='line' if len(last) == 1 else 'lines')}) "
                f"{'has' if len(last) == 1 else 'have'} the number of choices there are"
            )
            return 1
        if numbers and not last and chance < _CHANCE:
            examples.note(
                f"{examples.source}: no row has the first choice, number 0, for its label; if "
                "numbers begin at 1 there, write numbers from 0 on"
            )
        return 0

    def label_of(self, choice: int) -> str:
        """Return the choice with this number, from 0 on, in the form of the training file."""
        if self.answers_by_column and choice < len(self.choice_columns):
            return self.choice_columns[choice]
        return str(choice + self.first_number)

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config, **known: Any) -> Self:
        """Create the task of a model directory; missing settings are as in SWAG."""
        columns = info.text_columns or (*SWAG_PROMPT, *SWAG_CHOICES)
        prompts = info.setting("prompt_columns", min(2, len(columns) - 2))
        return super().from_info(
            info,
            config,
            prompt_columns=columns[:prompts],
            choice_columns=columns[prompts:],
            label_column=info.label_column or ("label" if not info.text_columns else None),
        )

    def task_info(self, training: dict[str, Any] | None = None) -> TaskInfo:
        """Return the task's entry for a model directory, with the number of prompt columns."""
        info = super().task_info(training)
        return replace(info, settings={"prompt_columns": len(self.prompt_columns), **info.settings})

    def choices_of(self, example: Example, source: str) -> tuple[str, ...]:
        """Return the texts of an example's choices.

        Raises:
            BertineError: there are fewer than two, more than there are columns, or an empty one
                before another.
        """
        where = row_at(source, example.line)
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
                f"{where}: has {plural(len(choices), 'choice')}, but must have from 2 to "
                f"{len(self.choice_columns)} ({', '.join(self.choice_columns)})"
            )
        return tuple(choices)

    def right_of(self, example: Example, source: str) -> int | None:
        """Return the number of an example's right choice, from 0 on; None if it has no label.

        Raises:
            BertineError: the label names none of its choices; an error of :meth:`choices_of`.
        """
        choices = len(self.choices_of(example, source))
        if example.label is None:
            return None
        number = self.number_of(example.label)
        if number is None or number >= choices:
            raise BertineError(
                f"{row_at(source, example.line)}: the label is {example.label!r}, but must be the "
                "number "
                f"of a choice, {self.first_number} to {choices - 1 + self.first_number}, its "
                f"letter or its column's name (such as {self.choice_columns[0]!r})"
            )
        return number

    def number_of(self, label: str) -> int | None:
        """Return the number, from 0 on, of the choice that a label names; None if there is no such
        column."""
        if label in self.choice_columns:
            return self.choice_columns.index(label)
        number = whole_number(label)
        if number is None:
            return self._place(_letter(label))
        place = number - self.first_number
        return place if 0 <= place < len(self.choice_columns) else None

    def _place(self, letter: str) -> int | None:
        """Return the number of the choice that a letter names: the one whose column ends in it, if
        all end in letters; else A is the first one."""
        letters = _letters_of(self.choice_columns) or "ABCDEFGHIJ"[: len(self.choice_columns)]
        place = letters.find(letter) if letter else -1
        return place if place >= 0 else None

    def optional(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return those of `columns`, the prompt and then any number of choices, that may be
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

    def over(self, columns: Sequence[str] | int) -> Self:
        """Return the task for a table with these `columns` of the prompt and of the choices, or for
        so many texts: columns beyond those of training get names. Each choice is scored separately,
        so there may be more or fewer than in training. If there are equally many with other names,
        answers use the names of training.

        Raises:
            BertineError: there are fewer than two choices among them.
        """
        count = len(self.prompt_columns)
        if isinstance(columns, int):
            known = self.text_columns[: max(columns, count + 2)]
            more = range(len(known), columns)
            columns = (*known, *(f"choice {number - count + 1}" for number in more))
        self.optional(columns)
        prompts, choices = tuple(columns[:count]), tuple(columns[count:])
        renamed = not set(choices) & set(self.choice_columns)
        if (*prompts, *choices) == self.text_columns or (
            renamed and len(choices) == len(self.choice_columns)
        ):
            return self
        return replace(self, prompt_columns=prompts, choice_columns=choices)

    def misfit(self, text: str | Sequence[str]) -> str | None:
        """Describe a wrong number of texts, or an empty choice; return None if all is right."""
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
        """Return the strings as one example: the prompt, then the choices.

        Raises:
            BertineError: there are fewer than two choices.
        """
        if len(strings) < len(self.prompt_columns) + 2:
            raise BertineError(
                f"{plural(len(strings), 'text')} given, but the model chooses: give "
                f"{' and '.join(map(repr, self.prompt_columns))}, then two choices or more"
            )
        return [tuple(strings)]

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Return the columns, and how many choices may be missing."""
        return self.text_columns, len(self.optional(self.text_columns))

    def as_student(
        self, train: Examples[Any], max_length: int, outputs: Sequence[Any] = ()
    ) -> Self:
        column = train.label_column or self.label_column
        return replace(self.over(train.text_columns), max_length=max_length, label_column=column)

    def shown(
        self, texts: Sequence[str], answer: Any, details: bool
    ) -> tuple[tuple[str, str], list[str]]:
        """Return the choice with its text, and its probability; with `details` those of all."""
        (name, probability), choices = answer.cells(), texts[len(self.prompt_columns) :]
        chances = list(zip(choices, answer.probabilities, strict=False)) if details else []
        return (f"{name}: {short(choices[answer.choice])}", probability), chance_lines(chances)


def _letter(label: str) -> str:
    """Return the capital letter for a label such as ``B`` or ``(b)``; "" for other labels."""
    match = _LETTER.fullmatch(label)
    return match[1].upper() if match else ""


def _letters_of(columns: Sequence[str]) -> str:
    """Return the capital letters at the ends of choices' names; "" if they do not all end in
    different letters."""
    ends = [match[1].upper() if (match := _LAST.fullmatch(name)) else "" for name in columns]
    return "".join(ends) if all(ends) and len({*ends}) == len(ends) else ""


def whole_number(label: str) -> int | None:
    """Return the integer in a label; None for other texts."""
    label = label.removesuffix(".0")  # some programs read a column with gaps as floats
    return int(label) if label.isascii() and label.isdigit() and len(label) < 10 else None


# Multiple choice: which of several endings is the right one (Devlin et al. 2018, section 4.4).
#
# Each choice makes a separate sequence, a pair of the prompt and the choice. The only new
# parameters are one vector (and transformers' bias): its product with the pooled [CLS] is a
# choice's score, and the softmax of the scores of an example gives the probabilities.
#
# Shape legend: B sequences in a batch, G examples in it, C choices of the example that has most.

#: Examples that the tokenizer gets at once.
_TOKENIZE = 1024


@dataclass(frozen=True, repr=False)
class ChoicePrediction(OneLabel):
    """The most probable choice.

    Attributes:
        choice: its number, from 0 on.
        probabilities: of each choice.
        label: the choice in the form of the training file: the name of its column, or its number.
        label_set: the choices of a set that contains the right one with the requested coverage, in
            the form of `label`, the most probable first; None: no sets were requested.
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

    @property
    def probability(self) -> float:
        """The probability of `choice`."""
        return self.probabilities[self.choice]

    def own_cells(self) -> tuple[str, str]:
        if self.abstains:
            return f"(no answer; {visible(self.label)}?)", f"{self.probability:.1%}"
        return visible(self.label), f"{self.probability:.1%}"


@dataclass(frozen=True)
class MultipleChoice(ChoiceColumns[ChoicePrediction]):
    """The task of choosing which of two or more choices fits a text."""

    name: ClassVar[str] = "choice"
    primary_metric: ClassVar[str] = "accuracy"
    answer: ClassVar[type[ChoicePrediction]] = ChoicePrediction
    head = "choice"

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> list[Features]:
        """Tokenize: a sequence for each choice, those of an example in adjacent rows. Inputs longer
        than `max_length` are cut, the longer of the two parts first.

        Raises:
            BertineError: an example has fewer than two choices, or a label that is not one of them.
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
        """Pad; ``targets["groups"]`` int64 [B] marks the sequences of one example and, if every
        feature has a label, ``targets["labels"]`` int64 [B] is 1 for the right choices."""
        batch = super().collate(features, pad_id)
        batch.targets["groups"] = torch.tensor(batch.rows, dtype=torch.int64)
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count examples, each with one target."""
        return {self.head: len(_sizes(batch.rows))}

    def outputs(self, model: Model, batch: Batch, encoded: Encoded | None = None) -> Tensor:
        """Compute scores [B]."""
        return super().outputs(model, batch, encoded).squeeze(-1)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the softmax over each example's choices, summed over the
        examples, in fp32. The batch must have all the choices of its examples."""
        scores = self.outputs(model, batch, encoded).float()
        table = _by_group(scores, batch, -torch.inf)
        right = _by_group(batch.targets["labels"], batch, 0).argmax(1)
        total = F.cross_entropy(table, right, reduction="sum")
        correct = (table.detach().argmax(1) == right).sum()
        return {self.head: Term(total, len(table), correct)}

    def _rows(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return scores [B] by example: [G, C], -inf where an example has no such choice."""
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

    def constant(
        self, examples: Examples[Any], features: Sequence[Features]
    ) -> tuple[str, float | None]:
        """Return the position that is right most often, and the mean log of the number of choices
        of an example."""
        places = Counter(self.right_of(item, examples.source) for item in examples.items)
        sizes = _sizes([feature.row for feature in features])
        most = max(range(len(self.choice_columns)), key=lambda place: places[place])
        return self.label_of(most), sum(map(math.log, sizes)) / max(1, len(sizes)) or None

    def _truth(self, labels: Sequence[str]) -> list[int]:
        """Return the numbers of the choices that labels name."""
        numbers = [self.number_of(label) for label in labels]
        if None in numbers:
            wrong = labels[numbers.index(None)]
            raise BertineError(f"the label {wrong!r} names none of the choices")
        return [number for number in numbers if number is not None]

    def report(
        self, predictions: Sequence[ChoicePrediction], labels: Sequence[str]
    ) -> ClassificationReport:
        """Compute accuracy and loss (mean cross-entropy in nats), and how often each position was
        right and chosen: that reveals a model that has learned only the positions.

        Raises:
            BertineError: there are no examples.
        """
        require_some(predictions)
        truth = self._truth(labels)
        pairs = list(zip(truth, predictions, strict=True))
        counts = Counter((number, answer.choice) for number, answer in pairs)
        names = tuple(map(self.label_of, range(len(self.choice_columns))))
        right = [answer.choice == number for number, answer in pairs]
        metrics = {
            "accuracy": sum(right) / len(right),
            "loss": mean_log_loss([answer.probabilities[number] for number, answer in pairs]),
        }
        chances = [prediction.probability for prediction in predictions]
        report = ClassificationReport(
            names, metrics, counts, reliability=Reliability.of(chances, right)
        )
        if self.coverage is not None:
            report.add_coverage(self.coverage, predictions, [names[number] for number in truth])
        return report

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return ``choice`` (as in the training file's labels: the name of its column, or its
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
    # The place of each sequence's value in [G, C], computed on the host from the rows.
    places = [group * shape[1] + n for group, size in enumerate(sizes) for n in range(size)]
    where = torch.tensor(places, device=values.device)
    table = values.new_full((shape[0] * shape[1],), otherwise)
    return table.index_copy(0, where, values).view(shape)


def _sizes(rows: Sequence[int]) -> list[int]:
    """Count the choices of the examples, whose rows are adjacent in `rows`."""
    return [sum(1 for _ in group) for _, group in groupby(rows)]
