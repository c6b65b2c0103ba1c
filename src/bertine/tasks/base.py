"""The base of fine-tuning tasks.

A task owns its heads, the way from examples to features to a batch, its loss, and the way from
the model's outputs to predictions and metrics. Training, evaluation, the command line and a
server all go through `featurize` and `decode`: nothing is tokenized or decided in two ways.

Shape legend: B sequences in a batch, T tokens of the longest.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertine.core.console import aligned, plural
from bertine.core.errors import BertineError
from bertine.core.scores import ranking
from bertine.core.taskinfo import TaskInfo
from bertine.corpora.batch import Batch
from bertine.data.examples import Example, Examples
from bertine.data.lines import LINE_COLUMN
from bertine.models.config import Config
from bertine.models.encoder import Encoded
from bertine.models.heads import Model, new_head
from bertine.objectives.distillation import divergences
from bertine.objectives.losses import Term
from bertine.tasks.answer import Answer, json_value, short
from bertine.tasks.calibration import Decisions
from bertine.tasks.report import EvaluationReport
from bertine.tokenization.base import Frame
from bertine.tokenization.tokenizer import Tokenizer

# What is computed for an example: sequences of pieces, padded into batches, and notes about those
# that were cut.
#
# Shape legend: B sequences in a batch, T tokens of the longest.


@dataclass(frozen=True, slots=True)
class Features:
    """One input sequence, ready to be padded into a batch.

    Attributes:
        input_ids: int32 [n], with the special tokens.
        token_type_ids: int8 [n].
        row: index of the example it was made from.
        label: the target: a class's id, a score, or fp32 [K] with 1 for each label of several;
            None when unknown, or of another kind, for which a task has features of its own.
        num_truncated: pieces that were cut off to keep to the maximum length.
        group: of a sequence that is computed together with others, the choices of an example,
            what all of them have in common; they stand side by side. None: it stands alone.
        weight: of the example in the loss.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    row: int
    label: Any = None
    num_truncated: int = 0
    group: int | None = None
    weight: float = field(default=1.0, kw_only=True)


def by_example(
    outputs: Iterable[Any], features: Iterable[Any]
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield what was computed for the features of each example, and these features."""
    pairs = zip(outputs, features, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[1].row):
        computed, own = zip(*group, strict=True)
        yield list(computed), list(own)


#: Lengths of batches are multiples of it: a matrix product of a shape that was seen before is
#: ready, one of a new shape is first compiled for the machine.
_LENGTHS = 8


def pad_features(features: Sequence[Features], pad_id: int, max_length: int) -> Batch:
    """Pad features on the right to the next multiple of 8 from the longest on, but to no more
    than `max_length`: a :class:`Batch` without targets."""
    longest = max(len(feature.input_ids) for feature in features)
    rounded = -(-longest // _LENGTHS) * _LENGTHS
    shape = (len(features), max(longest, min(rounded, max_length)))
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    token_type_ids = np.zeros(shape, dtype=np.int64)
    attention_mask = np.zeros(shape, dtype=bool)
    for row, feature in enumerate(features):
        length = len(feature.input_ids)
        input_ids[row, :length] = feature.input_ids
        token_type_ids[row, :length] = feature.token_type_ids
        attention_mask[row, :length] = True
    return Batch(
        torch.from_numpy(input_ids),
        torch.from_numpy(attention_mask),
        torch.from_numpy(token_type_ids),
        rows=[feature.row for feature in features],
    )


def cut_at(max_length: int, lost: int, what: str = "texts", unit: str = "piece") -> str:
    """Write "texts were cut at 128 pieces (31 pieces lost)"."""
    return f"{what} were cut at {max_length} {unit}s ({plural(lost, unit)} lost)"


def truncation_note(features: Sequence[Features], max_length: int) -> str | None:
    """Write "17 of 2000 texts were cut at 128 pieces (…)", or how many are read in windows; None
    when every text is one input, uncut. Examples count, not the choices of one."""
    cut = {feature.row for feature in features if feature.num_truncated}
    if cut:
        total = len({feature.row for feature in features})
        lost = sum(feature.num_truncated for feature in features)
        return f"{len(cut)} of {total} {cut_at(max_length, lost)}"
    windows = Counter(feature.row for feature in features if feature.group is None)
    long = [number for number in windows.values() if number > 1]
    if not long:
        return None
    return (
        f"{len(long)} of {len(windows)} texts are longer than {max_length} pieces and are read in "
        f"{sum(long)} windows"
    )


def text_number(text: Features) -> int:
    """Return a number of 63 bits that is equal for texts of the same pieces (BLAKE2b of them)."""
    ids = np.ascontiguousarray(text.input_ids, dtype=np.int32)
    return int.from_bytes(blake2b(ids.tobytes(), digest_size=8).digest(), "little") >> 1


# Check that inputs of a length fit a model and leave room for text.

#: The shortest inputs that a task over one text or two is made for; whether the special tokens of
#: a vocabulary leave room in them is seen when texts are encoded (:func:`check_room`).
LEAST_LENGTH = {1: 4, 2: 6}


def require_positions(max_length: int, config: Config) -> None:
    """Refuse a `max_length` that is more than the positions of the model.

    Raises:
        BertineError: it is.
    """
    if max_length > config.longest_input:
        raise BertineError(
            f"max_length is {max_length}, but the model has positions for {config.longest_input}"
        )


def check_room(max_length: int, texts: int, tokenizer: Tokenizer, what: str = "text") -> None:
    """Refuse a `max_length` in which the special tokens leave no room for a piece of each text;
    `what` is the message's word for what stands there.

    Raises:
        BertineError: they leave none.
    """
    if max_length < tokenizer.template.added(texts) + texts:
        raise BertineError(f"max_length {max_length} leaves no room for {what}")


# Compute the loss of each example from a model's outputs; a log's mean loss is their mean.
#
# In fp64, and in nats where it is a cross-entropy. An example without a target (its label is not
# known) has none: nan.

#: What an example without a target has for a loss.
NONE = float("nan")


def cross_entropies(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Compute ``-log softmax(logits)[target]`` of each row: fp64 [n].

    Args:
        logits: [n, K]; -inf for what cannot be.
        targets: int [n].
    """
    table = np.asarray(logits, dtype=np.float64)
    top = table.max(-1, keepdims=True)
    whole = top[:, 0] + np.log(np.exp(table - top).sum(-1))
    rows = np.arange(len(table))
    return np.asarray(whole - table[rows, np.asarray(targets, dtype=np.int64)])


def cross_entropy(logits: np.ndarray, target: int) -> float:
    """Compute the cross-entropy of one row of logits [K]."""
    return float(cross_entropies(logits[None], np.array([target]))[0])


def binary_cross_entropies(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Compute the loss of the sigmoid of each logit against its target, 0 or 1: fp64, in the shape
    of both."""
    table = np.asarray(logits, dtype=np.float64)
    wanted = np.asarray(targets, dtype=np.float64)
    return np.asarray(np.logaddexp(0.0, table) - wanted * table)


def label_entropy(labels: Iterable[str | None]) -> float | None:
    """Compute the entropy of the frequencies of `labels`, in nats; None where all are alike."""
    counts = Counter(labels)
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values()) or None


def of_examples(losses: Sequence[float], features: Sequence[Features]) -> list[float]:
    """Turn the losses of features into one for each example: the mean over its windows."""
    return [float(np.mean(of_windows)) for of_windows, _ in by_example(losses, features)]


# Choose which part of a text is read that is longer than the model.
#
# ``head``, ``tail`` and ``head-tail`` (a quarter from the beginning, the rest from the end: Sun
# et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1, take 128 and 382
# of 510) cut a text, and what is lost is counted. ``windows`` loses nothing: the text is read in
# windows that overlap by half, each is an example with the text's label in training, and the mean
# of their outputs is the text's.

LONG_TEXT = ("head", "tail", "head-tail", "windows")


def check_long_text(mode: str, num_texts: int) -> None:
    """Refuse a way that is not known, and any but ``head`` for pairs of texts.

    Raises:
        BertineError: it is.
    """
    if mode not in LONG_TEXT:
        raise BertineError(f"long_text is {mode!r}, but must be one of {', '.join(LONG_TEXT)}")
    if mode != "head" and num_texts != 1:
        raise BertineError(
            f"long_text {mode!r} is for single texts; pairs are cut at the longer text's end"
        )


def parts_of(ids: np.ndarray, max_length: int, mode: str, frame: Frame) -> list[np.ndarray]:
    """Choose what is read of one text.

    Args:
        ids: int32 [n], its pieces with the special tokens around.
        max_length: pieces of an input, special tokens included.
        mode: one of :data:`LONG_TEXT`.
        frame: the special tokens around one text.

    Returns:
        One input, or with ``windows`` one or more: int32 [at most max_length] each, with all
        special tokens.
    """
    if len(ids) <= max_length:
        return [ids]
    begin, end = len(frame.before), len(ids) - len(frame.after)
    first, body, last = ids[:begin], ids[begin:end], ids[end:]
    room = max_length - frame.added()
    if mode == "head":
        kept = [body[:room]]
    elif mode == "tail":
        kept = [body[-room:]]
    elif mode == "head-tail":
        head = room // 4
        kept = [np.concatenate([body[:head], body[len(body) - (room - head) :]])]
    else:
        final = len(body) - room  # where the last window starts, which ends with the text
        starts = [*range(0, final, max(1, room // 2)), final]
        kept = [body[start : start + room] for start in starts]
    return [np.concatenate([first, part, last]) for part in kept]


def pooled(outputs: Sequence[np.ndarray], features: Sequence[Features]) -> Sequence[np.ndarray]:
    """Turn the outputs of features into one for each text: the mean over its windows, in fp64.
    Where no text has more than one, they are returned as they are."""
    if len({feature.row for feature in features}) == len(features):
        return outputs
    return [
        np.asarray(np.mean(of_windows, axis=0, dtype=np.float64))
        for of_windows, _ in by_example(outputs, features)
    ]


# What users give a task and what they get: examples of texts, answers as rows and lines.


class TaskIO:
    """The side of a task that users meet: what texts it takes, and how its answers are shown.

    Attributes:
        answer: the class of its answers.
        text_columns: the columns that hold an example's texts.
    """

    answer: ClassVar[type[Answer]]
    text_columns: tuple[str, ...]

    def examples_of(
        self, texts: Sequence[Any], source: str = "input", lines: Sequence[int] | None = None
    ) -> Examples:
        """Make examples without labels of texts.

        Args:
            texts: N strings, or several that belong together.
            source: of them, for messages.
            lines: of the source, one for each text; None: 1, 2, ….
        """
        numbers = range(1, len(texts) + 1) if lines is None else lines
        items = [
            Example((text,) if isinstance(text, str) else tuple(text), line=line)
            for text, line in zip(texts, numbers, strict=True)
        ]
        return Examples(source, self.text_columns, None, items)

    def answers(self, examples: Examples, predictions: Sequence[Any]) -> list[Any]:
        """Make what a user gets of the `predictions` for what :meth:`examples_of` returned."""
        return list(predictions)

    def misfit(self, text: str | Sequence[str]) -> str | None:
        """Say why a text, or several, is not what the task takes; None: it is."""
        columns, parts = self.text_columns, 1 if isinstance(text, str) else len(text)
        if parts == len(columns):
            return None
        wanted = "one text" if len(columns) == 1 else f"a list of {len(columns)} texts"
        return f"has {parts} parts; give {wanted} ({', '.join(columns)})"

    def group(self, strings: Sequence[str]) -> list[Any]:
        """Deal strings out to examples, as many to each as there are columns.

        Raises:
            BertineError: their number does not fit.
        """
        columns, step = self.text_columns, len(self.text_columns)
        if step == 1:
            return list(strings)
        if len(strings) % step:
            raise BertineError(
                f"{plural(len(strings), 'text')} given, but the model takes "
                f"{step} for each answer: {' and '.join(map(repr, columns))}"
            )
        return [tuple(strings[start : start + step]) for start in range(0, len(strings), step)]

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Choose the columns of texts that come by `names`, and how many of the last ones may be
        missing."""
        return self.text_columns, 0

    def columns_for(self, count: int) -> tuple[str, ...]:
        """Return the columns for `count` texts of an example."""
        return self.text_columns

    def over(self, columns: Sequence[str]) -> Self:
        """Return the task for a table with these text columns."""
        return self

    def sample_inputs(self, texts: Sequence[str]) -> list[Any]:
        """Make an input of the task's kind for each of `texts`: the text, or, where an input has
        several, the text and those after it."""
        width = len(self.text_columns)
        if width == 1:
            return list(texts)
        return [
            tuple(texts[(start + shift) % len(texts)] for shift in range(width))
            for start in range(len(texts))
        ]

    def summary(self, texts: Sequence[str], answer: Answer) -> tuple[str, str]:
        """Return an answer to `texts` and its probability, or nothing, for a person."""
        return answer.cells()

    def chances_of(self, texts: Sequence[str], answer: Answer) -> list[tuple[str, float]]:
        """Return what might be answered to `texts`, with its probability."""
        return [] if answer.empty else answer.chances()

    def lines_below(self, texts: Sequence[str], answer: Any, details: bool) -> list[str]:
        """Return what a person reads below an answer: with `details` its chances, the best
        first."""
        chances = self.chances_of(texts, answer) if details else []
        order = ranking([chance for _, chance in chances])
        return aligned([(short(chances[at][0]), f"{chances[at][1]:.1%}") for at in order])

    def row_of(self, texts: Sequence[str], answer: Any, details: bool) -> dict[str, Any]:
        """Return `texts` by their columns, a single one as that of a line, and their answer as the
        row of a table."""
        columns = self.text_columns if len(self.text_columns) > 1 else (LINE_COLUMN,)
        return dict(zip(columns, texts, strict=True)) | self.values_of(answer, details)

    def values_of(self, answer: Any, details: bool) -> dict[str, Any]:
        """Return what a file of answers holds of one, by the name of the column, and what marks
        it."""
        columns = self.output_columns(details)
        if not isinstance(answer, Answer):
            return {name: value(answer) for name, value in columns.items()}
        values = {name: None if answer.empty else value(answer) for name, value in columns.items()}
        return values | answer.flags()

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return the columns that a file of answers gets, more of them with `details`: by name,
        what makes the value of one, in JSON, of an answer. Usually those that
        :attr:`Answer.written` names."""
        return {name: _value_under(name) for name in self.answer.names(details)}


def _value_under(name: str) -> Callable[[Any], Any]:
    def value(answer: Any) -> Any:
        # What a task decodes may be the inner part of an answer.
        whole = isinstance(answer, Answer)
        return answer.value_of(name) if whole else json_value(getattr(answer, name))

    return value


Prediction = TypeVar("Prediction")

#: Key of a field's metadata: whether ``bertine.json`` has the field also where it is the default.
_ALWAYS = "always"


def setting(default: Any, *, always: bool = False) -> Any:
    """Declare a field of a task that ``bertine.json`` keeps under ``settings``.

    Args:
        default: value of the field where the file has none.
        always: write the field also where it has this value.
    """
    return dataclasses.field(default=default, metadata={_ALWAYS: always})


class Task(TaskIO, ABC, Generic[Prediction]):
    """Base of the fine-tuning tasks, which are frozen dataclasses; see the module's text.

    Attributes, beside those of :class:`TaskIO`:
        name: in :data:`bertine.tasks.TASKS` and ``bertine.json``.
        primary_metric: the metric (higher is better) by which models are chosen, where no other
            is named for the data (`metric_names`).
        label_column: the column that holds the label, None when not known.
        max_length: longest input in pieces, special tokens included.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set it is, e.g. "glue/CoLA"; None for one's own.
        labels: in the order of the head's outputs; empty where it has none.
        choice_columns: those of `text_columns` that are choices.
        long_text: what is read of a longer text (:mod:`bertine.tasks.base`).
        reads_words: whether its files hold words with a tag each.
        reads_questions: whether its texts are a question and a context.
        has_choices: whether any number of its columns are choices.
        writes: whether its answers are texts that the model writes.
        keeps_head: whether its head is one of pre-training, which goes on whatever the model was
            trained for.
        single_output: whether the output for a sequence is one number.
        label_noun: what a label is called where each is learned from its examples, of which there
            may be too few; "" where how often it occurs says nothing.
        one_label: whether an answer is just one of its labels.
        numeric: whether its labels are numbers on a scale.
    """

    name: ClassVar[str]
    primary_metric: ClassVar[str]
    reads_words: ClassVar[bool] = False
    reads_questions: ClassVar[bool] = False
    has_choices: ClassVar[bool] = False
    writes: ClassVar[bool] = False
    keeps_head: ClassVar[bool] = False
    single_output: ClassVar[bool] = False
    label_noun: ClassVar[str] = ""
    one_label: ClassVar[bool] = False
    numeric: ClassVar[bool] = False

    label_column: str | None
    max_length: int
    metric_names: tuple[str, ...]
    dataset: str | None = None
    labels: tuple[str, ...] = ()
    choice_columns: tuple[str, ...] = ()
    long_text: str = "head"

    @property
    @abstractmethod
    def head(self) -> str:
        """Name of its head in ``Model.heads``."""

    @property
    def takes_pairs(self) -> bool:
        """Whether it is over two texts as one input, or encoded apart."""
        return False

    @property
    def reads_whole_texts(self) -> bool:
        """Whether its head reads one vector of a text or of a pair of texts."""
        return False

    @property
    def reads_apart(self) -> bool:
        """Whether the texts of a pair are encoded apart."""
        return False

    @property
    def unsaved(self) -> bool:
        """Whether it holds numbers that :meth:`finished` moves into the head."""
        return False

    @cached_property
    def ids(self) -> dict[str, int]:
        """The numbers of its labels."""
        return {label: number for number, label in enumerate(self.labels)}

    @classmethod
    def names_in(cls, label: Any) -> list[str]:
        """Return the names under which an example with this label is counted."""
        return [str(label)]

    @classmethod
    def count_names(cls, labels: Iterable[Any]) -> Counter[str]:
        """Count the examples, or the parts of them, with these labels by name."""
        return Counter(name for label in labels for name in cls.names_in(label))

    # What a model directory says of it

    @classmethod
    @abstractmethod
    def from_examples(
        cls, examples: Examples, *, max_length: int = 128, labels: Sequence[str] | None = None
    ) -> Self:
        """Make the task that the training examples describe."""

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config) -> Self:
        """Make the task of a model directory; `config` is that of its model.

        Raises:
            BertineError: a setting is of the wrong kind; what making the task raises.
        """
        return cls(**cls.arguments(info, config))

    @classmethod
    def arguments(cls, info: TaskInfo, config: Config) -> dict[str, Any]:
        """Return the arguments that a model directory has for the task. What its file leaves open
        has its default; the longest input is then what the model takes."""
        fields = {field.name: field for field in dataclasses.fields(cast(Any, cls)) if field.init}
        known = {
            "labels": info.labels,
            "label_column": info.label_column,
            "max_length": info.input_length(config.longest_input),
            "dataset": info.dataset,
            **({"text_columns": info.text_columns} if info.text_columns else {}),
            **({"metric_names": info.metrics} if info.metrics else {}),
        }
        return {name: value for name, value in known.items() if name in fields} | {
            name: info.setting(name, cast(Any, field.default))
            for name, field in fields.items()
            if _ALWAYS in field.metadata
        }

    def task_info(self, training: dict[str, Any] | None = None) -> TaskInfo:
        """Return what a model directory says about the task; `training` are facts for the
        reader."""
        return TaskInfo(
            name=self.name,
            labels=self.labels,
            text_columns=self.text_columns,
            label_column=self.label_column,
            max_length=self.max_length,
            metrics=self.metric_names,
            dataset=self.dataset,
            settings=self.settings(),
            training=training or {},
        )

    def settings(self) -> dict[str, Any]:
        """Return the fields that :func:`setting` declares, those alone that are to be written."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(cast(Any, self))
            if _ALWAYS in field.metadata
            and (field.metadata[_ALWAYS] or getattr(self, field.name) != field.default)
        }

    def reuses(self, info: TaskInfo) -> bool:
        """Tell whether a head that was trained for `info` answers what this task asks: the same
        task with the same labels. Else it is made anew, even where it has the right shape."""
        wanted = self.task_info()
        return (info.name, info.labels) == (wanted.name, wanted.labels)

    def finished(self, model: Model, report: EvaluationReport | None) -> Self:
        """Return the task as it is saved with the trained `model`, of which `report` is the
        evaluation (None: it was not judged); may change the weights of its heads."""
        return self

    def decisions(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> Decisions | None:
        """Return what a temperature is fitted to: the logits of labelled examples, and what is
        right; None where the answers of the task have no such probabilities."""
        return None

    def divide_outputs(self, model: Model, divisor: float) -> None:
        """Divide the weights of the head of `model`, in place, so that its outputs are divided."""
        out = model.heads[self.head].out
        assert isinstance(out, nn.Linear)
        with torch.no_grad():
            for weights in out.parameters():
                weights.div_(divisor)

    def extra_files(
        self, sets: Sequence[tuple[Examples[Any], Sequence[Any]]]
    ) -> dict[str, list[dict[str, Any]]]:
        """Return what a run's folder is to hold besides of `sets`, the training and the
        validation examples with their features: JSON values by the name of the file; empty ones
        are left out."""
        return {}

    # From examples to batches

    @abstractmethod
    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> Sequence[Features]:
        """Turn examples into features, one or more of each, in their order. Truncation is counted
        in each feature."""

    def notes(self, features: Sequence[Any]) -> list[str]:
        """Say what a person should know of the features of a data set: how many texts were cut,
        or are read in windows, if any is."""
        note = truncation_note(features, self.max_length)
        return [note] if note else []

    def weighted_for(self, features: Sequence[Any]) -> Self:
        """Return the task to train on `features`: class weights, if it has any, are of examples,
        and long ones may be read in several windows."""
        return self

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad features into one batch; with ``targets["labels"]`` when every feature has a
        label."""
        batch = pad_features(features, pad_id, self.max_length)
        labels = [feature.label for feature in features if feature.label is not None]
        if len(labels) == len(features):
            batch.targets["labels"] = self.targets(labels)
        return batch

    def targets(self, labels: Sequence[Any]) -> Tensor:
        """Make the targets of a batch of the labels of its B features: int64 [B]."""
        return torch.tensor(labels).long()

    # The model and its loss

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """Make fresh heads by name for a backbone of `config`.

        Raises:
            BertineError: the model has fewer positions than `max_length`.
        """
        require_positions(self.max_length, config)
        outputs = 1 if self.single_output else len(self.labels)
        return new_head(config, self.head, outputs, **self.head_options(config))

    def head_options(self, config: Config) -> dict[str, Any]:
        """Return what :meth:`heads` tells the kind of head besides the number of outputs."""
        return {}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term that :meth:`terms` will return."""
        return {self.head: batch.num_sequences}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model` on `batch`."""
        return model.encode(batch)

    @abstractmethod
    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the parts of the loss, by name, of what :meth:`encode` returned."""

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Compute the parts of the loss, by name."""
        return self.terms_of(model, self.encode(model, batch), batch)

    @abstractmethod
    def outputs_of(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Compute what `decode` needs, of what :meth:`encode` returned: [B, ...], one entry a
        sequence."""

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """Compute what `decode` needs of the model: [B, ...], one entry a sequence."""
        return self.outputs_of(model, self.encode(model, batch), batch)

    # What another model answered, as a target

    def with_some_target(self, feature: Any) -> Any:
        """Return `feature` with a target that means nothing where it has none, since a batch has
        one for every feature or none at all."""
        return feature if feature.label is not None else dataclasses.replace(feature, label=0)

    def soft_targets(self, outputs: Sequence[np.ndarray], width: int) -> Tensor:
        """Make the targets of a batch of what a teacher put out for its B features: fp32 [B, ...],
        like the outputs of the model; those of tokens are padded to `width` of them."""
        shape = outputs[0].shape
        if len(shape) < 2:
            return torch.from_numpy(np.stack(outputs).astype(np.float32))
        table = np.zeros((len(outputs), width, *shape[1:]), dtype=np.float32)
        for row, output in enumerate(outputs):
            table[row, : len(output)] = output
        return torch.from_numpy(table)

    def rows_of(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return outputs of a batch as rows [R, C], in each of which one of C is the answer; -inf
        for what cannot be."""
        return outputs

    def soft_term(
        self, outputs: Tensor, teacher_outputs: Tensor, batch: Batch, temperature: float
    ) -> Term:
        """Compute how far outputs are from those of a teacher, over as many targets as
        :meth:`counts` has.

        Args:
            outputs: of the model for `batch`, [B, ...].
            teacher_outputs: what :meth:`soft_targets` made, as long as `outputs` or longer.
            temperature: that both are divided by, where they are the logits of a choice.

        Returns:
            The term; right is where both have the same best guess.
        """
        ours = self.rows_of(outputs.float(), batch)
        theirs = self.rows_of(teacher_outputs, batch)
        total = divergences(ours, theirs, temperature).sum()
        agreed = (ours.argmax(-1) == theirs.argmax(-1)).sum()
        return Term(total, self.counts(batch)[self.head], agreed)

    def as_label(self, answer: Any) -> Any:
        """Return an answer as the label of an example that has it."""
        return answer.decision

    # From outputs to answers and scores

    @abstractmethod
    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[Prediction]:
        """Turn one fp32 output for each feature into predictions, one an example, in their
        order."""

    @abstractmethod
    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[float]:
        """Compute the loss of each example, in their order, of one fp32 output for each feature:
        what `terms` has without dropout and weights, the mean over the example's targets. nan
        where its label is not known."""

    def constant_loss(self, examples: Examples[Any], features: Sequence[Any]) -> float | None:
        """Compute the training loss of the best answer that does not look at the text, in the unit
        of the training log: a model whose loss stays there has learned the label frequencies and
        nothing else. None: it is not known, as with the focal loss."""
        return None

    def majority(self, train: Examples[Any]) -> str | None:
        """Name the most frequent label of `train`, of equals the first in the task's order, as the
        baseline "majority" does; None where an answer is not one of several labels."""
        return None

    @abstractmethod
    def metrics(self, predictions: Sequence[Prediction], labels: Sequence[Any]) -> dict[str, float]:
        """Compute scores by name; `primary_metric` is among them. `labels` are those of the
        examples."""

    @abstractmethod
    def report(self, predictions: Sequence[Prediction], labels: Sequence[Any]) -> EvaluationReport:
        """Compute the metrics and what helps to understand them.

        Raises:
            BertineError: there are no examples.
        """

    def judge(self, predictions: Sequence[Prediction], examples: Examples[Any]) -> EvaluationReport:
        """Compute the report of the predictions for labelled `examples`, in their order.

        Raises:
            BertineError: there are no examples.
        """
        labels = [item.label for item in examples.items if item.label is not None]
        return self.report(predictions, labels)
