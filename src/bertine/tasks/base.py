"""Define the base of fine-tuning tasks.

A task owns its heads, the conversion of examples to features and batches, its loss, and the
conversion of the model's outputs to predictions and metrics. Training, evaluation, the command line
and the server all use `featurize` and `decode`, so that nothing is tokenized or decided in two
ways.

Shape legend: B sequences in a batch, T tokens of the longest.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np

from bertine.core.console import aligned, plural
from bertine.core.errors import BertineError
from bertine.core.names import later
from bertine.core.scores import ranking
from bertine.core.task_info import TaskInfo
from bertine.core.text import Index, row_at
from bertine.corpora.batch import Batch
from bertine.data.examples import Example, Examples
from bertine.data.lines import LINE_COLUMN
from bertine.models.config import Config
from bertine.tasks.answer import Answer, json_value, short
from bertine.tasks.calibration import Costs, Decisions
from bertine.tasks.report import EvaluationReport
from bertine.tokenization.base import Frame
from bertine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bertine.models.encoder import Encoded
    from bertine.models.heads import Model, new_head
    from bertine.objectives.distillation import divergences
    from bertine.objectives.losses import Term
else:
    later(
        globals(),
        "torch models.heads:new_head objectives.distillation:divergences objectives.losses:Term",
    )

# Features: sequences of pieces for an example, padded into batches, and notes about those that were
# cut.
#
# Shape legend: B sequences in a batch, T tokens of the longest.


@dataclass(frozen=True, slots=True)
class Features:
    """One input sequence, ready to be padded into a batch.

    Attributes:
        input_ids: int32 [n], with the special tokens.
        token_type_ids: int8 [n].
        row: index of its example.
        label: the target: a class's id, a score, or fp32 [K] with 1 for each of several labels;
            None if unknown, or of another kind, for which a task has its own features.
        num_truncated: pieces that were cut off because of the maximum length.
        group: an identifier that sequences share which are computed together, such as the choices
            of an example, in adjacent rows. None: there are no such others.
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
    """Yield the outputs for the features of each example, and these features."""
    pairs = zip(outputs, features, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[1].row):
        computed, own = zip(*group, strict=True)
        yield list(computed), list(own)


#: Lengths of batches are multiples of this: a matrix product of a known shape is ready, one of a
#: new shape must first be compiled for the machine.
_LENGTHS = 8


def padded(features: Sequence[Features], pad_id: int, max_length: int) -> Sequence[np.ndarray]:
    """Pad features on the right to the next multiple of 8 above the longest, but to no more than
    `max_length`: ids int64, mask bool and token types int64, [B, T] each."""
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
    return input_ids, attention_mask, token_type_ids


def pad_features(features: Sequence[Features], pad_id: int, max_length: int) -> Batch:
    """Return features that are padded (:func:`padded`) as a :class:`Batch` without targets."""
    ids, mask, types = map(torch.from_numpy, padded(features, pad_id, max_length))
    return Batch(ids, mask, types, rows=[feature.row for feature in features])


def cut_at(max_length: int, lost: int, what: str = "texts", unit: str = "piece") -> str:
    """Return the text "texts were cut at 128 pieces (31 pieces lost)"."""
    return f"{what} were cut at {max_length} {unit}s ({plural(lost, unit)} lost)"


def truncation_note(features: Sequence[Features], max_length: int) -> str | None:
    """Return "17 of 2000 texts were cut at 128 pieces (…)", or how many are read in windows; None
    if every text is one uncut input. Examples are counted, not their choices."""
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
    """Return a 63-bit number that is equal for texts of the same pieces (their BLAKE2b)."""
    ids = np.ascontiguousarray(text.input_ids, dtype=np.int32)
    return int.from_bytes(blake2b(ids.tobytes(), digest_size=8).digest(), "little") >> 1


#: Texts that the tokenizer gets at once: enough to keep its threads busy.
_TOKENIZE = 4096


def tokenized(
    examples: Examples, columns: Sequence[str], tokenizer: Tokenizer, max_length: int | None
) -> Iterator[tuple[int, Example, np.ndarray, np.ndarray, int]]:
    """Tokenize examples of one text or two, cut at `max_length` pieces, a pair at its longer text
    first.

    Yields:
        The row, the example, the ids, the token types, and the number of pieces that were cut.

    Raises:
        BertineError: an example has another number of texts than there are `columns`.
    """
    width = len(columns)
    for start in range(0, len(examples), _TOKENIZE):
        part = examples.items[start : start + _TOKENIZE]
        for example in part:
            if len(example.texts) != width:
                raise BertineError(
                    f"{row_at(examples.source, example.line)}: "
                    f"{plural(len(example.texts), 'text')}, but "
                    f"the model takes {width} ({', '.join(columns)})"
                )
        encodings = tokenizer.encode_arrays(
            [example.texts[0] for example in part],
            [example.texts[1] for example in part] if width == 2 else None,
            max_length=max_length,
        )
        for row, (example, encoding) in enumerate(zip(part, encodings, strict=True), start):
            yield row, example, *encoding


# Lengths: checks that inputs of a length fit a model and leave room for text.

#: The shortest inputs that a task over one text or two allows; whether the special tokens of a
#: vocabulary leave room in them is checked when texts are encoded (:func:`check_room`).
LEAST_LENGTH = {1: 4, 2: 6}


def require_positions(max_length: int, config: Config) -> None:
    """Refuse a `max_length` that is more than the positions of the model.

    Raises:
        BertineError: it is more.
    """
    if max_length > config.longest_input:
        raise BertineError(
            f"max_length is {max_length}, but the model has positions for {config.longest_input}"
        )


def check_room(max_length: int, texts: int, tokenizer: Tokenizer, what: str = "text") -> None:
    """Refuse a `max_length` in which the special tokens leave no room for a piece of each text;
    `what` is the message's word for the texts.

    Raises:
        BertineError: they leave no room.
    """
    if max_length < tokenizer.template.added(texts) + texts:
        raise BertineError(f"max_length {max_length} leaves no room for {what}")


# Losses: the loss of each example from a model's outputs; the mean loss in the log is their mean.
#
# In fp64, and in nats for a cross-entropy. An example without a target (its label is unknown) has
# the loss nan.

#: The loss of an example without a target.
NONE = float("nan")


def cross_entropies(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Compute ``-log softmax(logits)[target]`` of each row: fp64 [n].

    Args:
        logits: [n, K]; -inf for impossible classes.
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
    """Compute the binary cross-entropy of each logit with its target, 0 or 1: fp64, in the shape
    of both."""
    table = np.asarray(logits, dtype=np.float64)
    wanted = np.asarray(targets, dtype=np.float64)
    return np.asarray(np.logaddexp(0.0, table) - wanted * table)


def entropy(counts: Counter[Any]) -> float | None:
    """Compute the entropy of frequencies, in nats; None if there is only one."""
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values()) or None


def counted(counts: Counter[str]) -> dict[str, Any]:
    """Return the numbers of examples by name, the most frequent first, as facts."""
    return {"labels": dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))}


def of_examples(losses: Sequence[float], features: Sequence[Features]) -> list[float]:
    """Average the losses of features for each example, over its windows."""
    return [float(np.mean(of_windows)) for of_windows, _ in by_example(losses, features)]


# Long texts: the part that is read of a text longer than the model's inputs.
#
# ``head``, ``tail`` and ``head-tail`` (a quarter from the beginning, the rest from the end: Sun
# et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1, take 128 and 382 of
# 510) cut a text, and the lost pieces are counted. ``windows`` loses nothing: the text is read in
# windows that overlap by half, each is an example with the text's label in training, and the mean
# of their outputs is the text's.

LONG_TEXT = ("head", "tail", "head-tail", "windows")


def check_long_text(mode: str, num_texts: int) -> None:
    """Refuse an unknown mode, and any but ``head`` for pairs of texts.

    Raises:
        BertineError: the mode is refused.
    """
    if mode not in LONG_TEXT:
        raise BertineError(f"long_text is {mode!r}, but must be one of {', '.join(LONG_TEXT)}")
    if mode != "head" and num_texts != 1:
        raise BertineError(
            f"long_text {mode!r} is for single texts; pairs are cut at the longer text's end"
        )


def parts_of(ids: np.ndarray, max_length: int, mode: str, frame: Frame) -> list[np.ndarray]:
    """Return the parts of one text that are read.

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
        final = len(body) - room  # the start of the last window, which ends with the text
        starts = [*range(0, final, max(1, room // 2)), final]
        kept = [body[start : start + room] for start in starts]
    return [np.concatenate([first, part, last]) for part in kept]


def pooled(outputs: Sequence[np.ndarray], features: Sequence[Features]) -> Sequence[np.ndarray]:
    """Average the outputs of features for each text, over its windows, in fp64. If no text has more
    than one, they are returned unchanged."""
    if len({feature.row for feature in features}) == len(features):
        return outputs
    return [
        np.asarray(np.mean(of_windows, axis=0, dtype=np.float64))
        for of_windows, _ in by_example(outputs, features)
    ]


# The user's side: answers as rows and lines.


def inputs_of(texts: Sequence[str], width: int) -> list[Any]:
    """Return an input of `width` texts for each of `texts`: the text itself, or it with those after
    it."""
    if width == 1:
        return list(texts)
    shifted = [[*texts[shift:], *texts[:shift]] for shift in range(width)]
    return list(zip(*shifted, strict=True))


def chance_lines(chances: Sequence[tuple[str, float]]) -> list[str]:
    """Return a line for each of the possible answers with its probability, the best first."""
    order = ranking([chance for _, chance in chances])
    return aligned([(short(chances[at][0]), f"{chances[at][1]:.1%}") for at in order])


def values_of(columns: Mapping[str, Callable[[Any], Any]], answer: Answer) -> dict[str, Any]:
    """Return the values of an answer in the `columns` of a file of answers, and its marks."""
    values = {name: None if answer.empty else value(answer) for name, value in columns.items()}
    return values | answer.flags()


def _value_under(name: str) -> Callable[[Any], Any]:
    def value(answer: Any) -> Any:
        # Some tasks decode only the inner part of an answer.
        whole = isinstance(answer, Answer)
        return answer.value_of(name) if whole else json_value(getattr(answer, name))

    return value


Prediction = TypeVar("Prediction")

#: Key of a field's metadata: whether ``bertine.json`` has the field even with its default.
_ALWAYS = "always"


def setting(default: Any, *, always: bool = False) -> Any:
    """Declare a field of a task that ``bertine.json`` keeps under ``settings``.

    Args:
        default: value of the field if the file has none.
        always: write the field even with this value.
    """
    return dataclasses.field(default=default, metadata={_ALWAYS: always})


class Task(ABC, Generic[Prediction]):
    """Base of the fine-tuning tasks, which are frozen dataclasses; see the module's text.

    In the order below a task is made and saved, turns examples into features and batches, computes
    its loss (that of labels and that of a teacher), decodes outputs, scores answers, and shows
    them.

    Attributes:
        name: in :data:`bertine.tasks.TASKS` and ``bertine.json``.
        primary_metric: the metric (higher is better) by which models are chosen, if no other is
            named for the data (`metric_names`).
        answer: the class of its answers.
        reader: the kind of its files, by which `predict` and `explain` look up how they are read.
            Labelled files are read by its name (:mod:`bertine.datasets.readers`).
        rules: the rules of decision that it can be given, which are fields of it.
        numeric: whether its labels are numbers on a scale.
        fp32_head: whether the head computes in fp32 independently of the model's number type.
        label_noun: the word for a label if each is learned from its examples, which may be too
            few; "" if its frequency has no meaning.
        advice: the end of the message for other texts than it takes; "": none.
        example: arguments of the command line in the form that it takes; "": texts.
        head: the name of its head in ``Model.heads``.
        text_columns: the columns that hold an example's texts.
        label_column: the column that holds the label, None if unknown.
        max_length: longest input in pieces, special tokens included.
        metric_names: the metrics by which the task is judged (higher is better, as their mean is
            its score); its report may have others.
        dataset: the public data set, e.g. "glue/CoLA"; None for a user's own.
        labels: in the order of the head's outputs; empty if it has none.
        choice_columns: those of `text_columns` that are choices.
        long_text: which part of a longer text is read (:data:`LONG_TEXT`).
        focal_gamma: of the focal loss (:func:`~bertine.models.losses.focal`); 0: cross-entropy.
        abstain_below, abstain_unfamiliar, costs, least_probability: the `rules` in force; see the
            classes.
        num_classes: how many classes share the training examples; 0: there are none.
        vector_head: the name of the head for it that reads vectors of texts; "": there is none.
        unsaved: whether it holds numbers that :meth:`finished` moves into the head.
    """

    name: ClassVar[str]
    primary_metric: ClassVar[str]
    answer: ClassVar[type[Answer]]
    reader: ClassVar[Literal["texts", "choices", "words", "questions"]] = "texts"
    rules: ClassVar[tuple[str, ...]] = ()
    numeric: ClassVar[bool] = False
    fp32_head: ClassVar[bool] = False
    vector_head: ClassVar[str] = ""
    label_noun: ClassVar[str] = ""
    advice: ClassVar[str] = ""
    example: ClassVar[str] = ""

    text_columns: tuple[str, ...]
    label_column: str | None
    max_length: int
    metric_names: tuple[str, ...]
    dataset: str | None = None
    labels: tuple[str, ...] = ()
    choice_columns: tuple[str, ...] = ()
    long_text: str = "head"
    focal_gamma: float = 0.0
    abstain_below: float = 0.0
    abstain_unfamiliar: float = 0.0
    costs: Costs | None = None
    least_probability: float | None = None

    @property
    @abstractmethod
    def head(self) -> str: ...

    @property
    def num_classes(self) -> int:
        return 0

    @property
    def unsaved(self) -> bool:
        return False

    @cached_property
    def ids(self) -> dict[str, int]:
        """The numbers of its labels."""
        return {label: number for number, label in enumerate(self.labels)}

    # How it is made and saved

    @classmethod
    @abstractmethod
    def from_examples(
        cls,
        examples: Examples,
        *,
        max_length: int = 128,
        labels: Sequence[str] | None = None,
        **settings: Any,
    ) -> Self:
        """Create the task for training examples; `settings` are further fields of it."""

    @classmethod
    def vector_settings(
        cls,
        train: Examples,
        labels: Sequence[str] | None,
        pooling: str,
        is_linear: Callable[[int], bool],
    ) -> dict[str, Any]:
        """Return the arguments of :meth:`from_examples` for a head that can be fitted alone, on
        vectors that `pooling` makes of the texts; `is_linear`: whether the published head can be,
        by its number of outputs. Empty if none are needed."""
        return {}

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config, **known: Any) -> Self:
        """Create the task of a model directory; `config` is that of its model, `known` are
        arguments that the task reads in a way of its own. Missing ones have their defaults; the
        longest input is then the model's.

        Raises:
            BertineError: a setting has the wrong type; or the task refuses the settings.
        """
        fields = {field.name: field for field in dataclasses.fields(cast(Any, cls)) if field.init}
        values = {
            "labels": info.labels,
            "label_column": info.label_column,
            "max_length": info.input_length(config.longest_input),
            "dataset": info.dataset,
            **({"text_columns": info.text_columns} if info.text_columns else {}),
            **({"metric_names": info.metrics} if info.metrics else {}),
        }
        values |= {
            name: info.setting(name, cast(Any, field.default))
            for name, field in fields.items()
            if _ALWAYS in field.metadata
        }
        return cls(**{name: value for name, value in values.items() if name in fields} | known)

    def task_info(self, training: dict[str, Any] | None = None) -> TaskInfo:
        """Return the task's entry for a model directory: its settings are the fields declared by
        :func:`setting` that have to be written, `training` are facts for readers."""
        return TaskInfo(
            name=self.name,
            labels=self.labels,
            text_columns=self.text_columns,
            label_column=self.label_column,
            max_length=self.max_length,
            metrics=self.metric_names,
            dataset=self.dataset,
            settings={
                field.name: getattr(self, field.name)
                for field in dataclasses.fields(cast(Any, self))
                if _ALWAYS in field.metadata
                and (field.metadata[_ALWAYS] or getattr(self, field.name) != field.default)
            },
            training=training or {},
        )

    def reuses(self, info: TaskInfo | None) -> bool:
        """Return whether a head that was trained for `info` (None: in pre-training) fits this task:
        the same task with the same labels. Otherwise it is created anew, even if it has the right
        shape."""
        wanted = self.task_info()
        return info is not None and (info.name, info.labels) == (wanted.name, wanted.labels)

    def over(self, columns: Sequence[str] | int) -> Self:
        """Return the task for a table with these text columns, or for examples of so many texts."""
        return self

    def as_student(
        self, train: Examples[Any], max_length: int, outputs: Sequence[Any] = ()
    ) -> Self:
        """Return the task of a teacher in the form of its student, which learns from `train` and,
        when they are known, from the teacher's `outputs`."""
        changes: dict[str, Any] = {"text_columns": train.text_columns, "max_length": max_length}
        if train.label_column is not None:
            changes["label_column"] = train.label_column
        return dataclasses.replace(cast(Any, self), **changes)

    def finished(self, model: Model, report: EvaluationReport | None) -> Self:
        """Return the task as saved with the trained `model`, whose evaluation is `report` (None: it
        was not judged); may change the weights of its heads.

        A task that moves numbers into a head also says so (:attr:`unsaved`), does not take over a
        head that holds such numbers (:meth:`reuses`), and finds them anew for a student
        (:meth:`as_student`).
        """
        return self

    # From examples to features and batches

    @classmethod
    def names_in(cls, label: Any) -> list[str]:
        """Return the names under which an example with this label counts."""
        return [str(label)]

    @classmethod
    def label_facts(cls, labels: Iterable[Any]) -> dict[str, Any]:
        """Return the statistics of the labels of examples for ``data.json``: the number of those of
        each name, the most frequent first."""
        return counted(Counter(name for label in labels for name in cls.names_in(label)))

    @abstractmethod
    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> Sequence[Features]:
        """Turn examples into features, one or more for each, in order. Truncation is counted in
        each feature."""

    def notes(self, features: Sequence[Any]) -> list[str]:
        """Return notes for the user on the features of a data set: how many texts were cut, or are
        read in windows, if any."""
        note = truncation_note(features, self.max_length)
        return [note] if note else []

    def weighted_for(self, features: Sequence[Any]) -> Self:
        """Return the task for training on `features`: class weights, if it has any, are those of
        examples, and long ones may be read in several windows."""
        return self

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad features into one batch; with ``targets["labels"]`` if every feature has a
        label."""
        batch = pad_features(features, pad_id, self.max_length)
        labels = [feature.label for feature in features if feature.label is not None]
        if len(labels) == len(features):
            batch.targets["labels"] = self.targets(labels)
        return batch

    def targets(self, labels: Sequence[Any]) -> Tensor:
        """Return the targets of a batch for the labels of its B features: int64 [B]."""
        return torch.tensor(labels).long()

    # The model and its loss

    def heads(self, config: Config, **options: Any) -> dict[str, nn.Module]:
        """Return new heads by name for a backbone of `config`; `options` are those of the head.

        Raises:
            BertineError: the model has fewer positions than `max_length`.
        """
        require_positions(self.max_length, config)
        return new_head(config, self.head, len(self.labels) or 1, **options)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term of the loss."""
        return {self.head: batch.num_sequences}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model` on `batch`."""
        return model.encode(batch)

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Encode `batch` and compute the terms."""
        return self.terms_of(model, self.encode(model, batch), batch)

    @abstractmethod
    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the terms of the loss, by name, from the result of :meth:`encode`; the training
        loop gets them from :meth:`terms`, which encodes the batch."""

    def outputs(self, model: Model, batch: Batch, encoded: Encoded | None = None) -> Tensor:
        """Compute the input of `decode` from the model, or from the result of :meth:`encode` if
        that is there: [B, ...], one entry per sequence."""
        encoded = self.encode(model, batch) if encoded is None else encoded
        return model.read(self.head, encoded, fp32=self.fp32_head)

    # Another model's answers as targets

    def with_some_target(self, feature: Any) -> Any:
        """Return `feature`, with a placeholder as target if it has none, since a batch has targets
        for all features or for none."""
        return feature if feature.label is not None else dataclasses.replace(feature, label=0)

    def soft_term(
        self, outputs: Tensor, teacher_outputs: Tensor, batch: Batch, temperature: float
    ) -> Term:
        """Compute the distance of outputs from those of a teacher, over as many targets as
        :meth:`counts` returns.

        Args:
            outputs: of the model for `batch`, [B, ...].
            teacher_outputs: of the teacher for it, fp32, as long as `outputs` or longer.
            temperature: the divisor of both, if they are the logits of a choice.

        Returns:
            The term; a target is right if both have the same best prediction.
        """
        ours, theirs = self._rows(outputs.float(), batch), self._rows(teacher_outputs, batch)
        total = divergences(ours, theirs, temperature).sum()
        agreed = (ours.argmax(-1) == theirs.argmax(-1)).sum()
        return Term(total, self.counts(batch)[self.head], agreed)

    def _rows(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return outputs of a batch as rows [R, C], in each of which one of C is the answer; -inf
        for impossible ones."""
        return outputs

    @property
    def answering(self) -> Any:
        """What computes the outputs for `decode`: the task, or one that adds to its outputs."""
        return self

    # From outputs to answers and scores

    @abstractmethod
    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[Prediction]:
        """Turn one fp32 output for each feature into predictions, one per example, in order."""

    @abstractmethod
    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[float]:
        """Compute the loss of each example, in order, from one fp32 output for each feature: as in
        `terms`, but without dropout and weights, the mean over the example's targets. nan if its
        label is unknown."""

    def decisions(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> Decisions | None:
        """Return the data for fitting a temperature: the logits of labelled examples, and the right
        choices; None if the task's answers have no such probabilities."""
        return None

    def constant(
        self, examples: Examples[Any], features: Sequence[Any]
    ) -> tuple[str | None, float | None]:
        """Return the best answer that ignores the text, and its training loss.

        Returns:
            The most frequent label, for ties the first in the task's order, as in the baseline
            "majority"; None if an answer is not one of several labels. And the loss in the unit of
            the training log: a model whose loss stays there has learned only the label frequencies;
            None: it is unknown, as with the focal loss.
        """
        return None, None

    @abstractmethod
    def report(self, predictions: Sequence[Prediction], labels: Sequence[Any]) -> EvaluationReport:
        """Compute the scores of predictions by name, including `primary_metric`, with further facts
        to interpret them. `labels` are those of the examples.

        Raises:
            BertineError: there are no examples.
        """

    def judge(self, predictions: Sequence[Prediction], examples: Examples[Any]) -> EvaluationReport:
        """Compute the report of the predictions for labelled `examples`, in order.

        Raises:
            BertineError: there are no examples.
        """
        labels = [item.label for item in examples.items if item.label is not None]
        return self.report(predictions, labels)

    # The user's texts and answers

    def misfit(self, text: str | Sequence[str]) -> str | None:
        """Return why the task does not take a text, or several; None: it does."""
        columns, parts = self.text_columns, 1 if isinstance(text, str) else len(text)
        if parts == len(columns):
            return None
        wanted = "one text" if len(columns) == 1 else f"a list of {len(columns)} texts"
        return f"has {parts} parts; give {wanted} ({', '.join(columns)})"

    def group(self, strings: Sequence[str]) -> list[Any]:
        """Distribute strings to examples, as many to each as there are columns.

        Raises:
            BertineError: their number does not fit.
        """
        columns, step = self.text_columns, len(self.text_columns)
        if step == 1:
            return list(strings)
        if len(strings) % step:
            raise BertineError(
                f"{plural(len(strings), 'text')} given, but the model takes "
                f"{step} for each answer: {' and '.join(map(repr, columns))}{self.advice}"
            )
        return [tuple(strings[start : start + step]) for start in range(0, len(strings), step)]

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Return the columns of texts among `names`, and how many of the last ones may be
        missing."""
        return self.text_columns, 0

    def examples_of(
        self, texts: Sequence[Any], source: str = "texts", lines: Sequence[int] | None = None
    ) -> Examples:
        """Return examples without labels from texts.

        Args:
            texts: N strings, or the strings of each example.
            source: their name, for messages.
            lines: of the source, one for each text; None: their indices.
        """
        numbers = map(Index, range(len(texts))) if lines is None else lines
        items = [
            Example((text,) if isinstance(text, str) else tuple(text), line=line)
            for text, line in zip(texts, numbers, strict=True)
        ]
        return Examples(source, self.text_columns, None, items)

    def shown(
        self, texts: Sequence[str], answer: Any, details: bool
    ) -> tuple[tuple[str, str], list[str]]:
        """Return an answer to `texts` and its probability, or "", as text; and the lines below it:
        with `details` the possible answers, the best first."""
        chances = answer.chances() if details and not answer.empty else []
        return answer.cells(), chance_lines(chances)

    def row_of(self, texts: Sequence[str], answer: Any, details: bool) -> dict[str, Any]:
        """Return `texts` by their columns, a single one under the name for lines, and their answer
        as the row of a table."""
        columns = self.text_columns if len(self.text_columns) > 1 else (LINE_COLUMN,)
        return dict(zip(columns, texts, strict=True)) | values_of(
            self.output_columns(details), answer
        )

    def output_columns(self, details: bool) -> dict[str, Callable[[Any], Any]]:
        """Return the columns of a file of answers, more of them with `details`: name → function
        from an answer to its JSON value. By default those of :attr:`Answer.written`."""
        return {name: _value_under(name) for name in self.answer.names(details)}
