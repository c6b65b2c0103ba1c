"""What a fine-tuning task is.

A task owns its heads, the way from examples to features to a batch, its loss, and the way from
the model's outputs to predictions and metrics. Training, evaluation, the command line and a
server all go through `featurize` and `decode`: nothing is tokenized or decided in two ways.

Shape legend: B sequences in a batch, T tokens of the longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.objectives.base import Term
from bertine.records.examples import Example, Examples
from bertine.tables.layout import LINE_COLUMN
from bertine.taskinfo import TaskInfo
from bertine.tasks.worst import WorstExample
from bertine.terminal.console import aligned, counted, visible
from bertine.text.tokenizer import Tokenizer

Prediction = TypeVar("Prediction")


@dataclass(frozen=True, slots=True)
class Features:
    """One input sequence, ready to be padded into a batch.

    Attributes:
        input_ids: int32 [n], with the special tokens.
        token_type_ids: int8 [n].
        row: index of the example it was made from.
        label: the target: a class's id, or a score; None when unknown, or of another kind, for
            which a task has features of its own.
        num_truncated: pieces that were cut off to keep to the maximum length.
        group: of a sequence that is computed together with others, the choices of an example,
            what all of them have in common; they stand side by side. None: it stands alone.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    row: int
    label: float | None = None
    num_truncated: int = 0
    group: int | None = None


class Report(Protocol):
    """The result of an evaluation.

    Attributes:
        source: the file of the examples.
        notes: what else a person should know, e.g. how many texts were cut.
        worst: the examples predicted worst, highest loss first, where they were asked for.
    """

    source: str
    notes: list[str]
    worst: list[WorstExample]

    @property
    def metrics(self) -> dict[str, float]: ...

    @property
    def collapsed(self) -> bool:
        """Whether the model says the same of every example, although the truth differs: nothing
        was learned, however good the score of that may look."""
        ...

    def lines(self) -> list[str]:
        """What a person reads in the terminal."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """What a program reads; only JSON types. Of a task's report ``collapsed`` is among it."""
        ...


class Task(Protocol[Prediction]):
    """A fine-tuning task; see the module's text.

    Attributes:
        name: in :data:`bertine.tasks.TASKS` and ``bertine.json``.
        primary_metric: the metric (higher is better) by which models are chosen, where no other
            is named for the data (`metric_names`).
        text_columns: the columns that hold an example's texts.
        label_column: the column that holds the label, None when not known.
        max_length: longest input in pieces, special tokens included.
        reads_words: whether its files hold words with a tag each.
        reads_questions: whether its texts are a question and a context.
        has_choices: whether any number of its columns are choices.
        single_output: whether the output for a sequence is one number.
        takes_pairs: whether it is over two texts as one input, or encoded apart.
        reads_apart: whether the texts of a pair are encoded apart.
    """

    name: ClassVar[str]
    primary_metric: ClassVar[str]
    reads_words: ClassVar[bool]
    reads_questions: ClassVar[bool]
    has_choices: ClassVar[bool]
    single_output: ClassVar[bool]

    @property
    def takes_pairs(self) -> bool: ...
    @property
    def reads_apart(self) -> bool: ...
    @property
    def text_columns(self) -> tuple[str, ...]: ...
    @property
    def label_column(self) -> str | None: ...
    @property
    def max_length(self) -> int: ...

    @classmethod
    def from_examples(
        cls, examples: Examples, *, max_length: int = 128, labels: Sequence[str] | None = None
    ) -> Task[Prediction]:
        """The task that the training examples describe."""
        ...

    @classmethod
    def from_info(cls, info: TaskInfo, config: Config) -> Task[Prediction]:
        """The task of a model directory."""
        ...

    def task_info(self, training: dict[str, Any] | None = None) -> TaskInfo:
        """What a model directory says about the task; `training` are facts for the reader."""
        ...

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """Fresh heads by name for a backbone of `config`."""
        ...

    def featurize(self, examples: Examples, tokenizer: Tokenizer) -> Sequence[Features]:
        """Examples → features, one or more of each, in their order. Truncation is counted in each
        feature."""
        ...

    def notes(self, features: Sequence[Any]) -> list[str]:
        """What a person should know of the features of a data set, e.g. how many texts were cut."""
        ...

    def weighted_for(self, features: Sequence[Any]) -> Task[Prediction]:
        """The task to train on `features`: class weights, if it has any, are of examples, and long
        ones may be read in several windows."""
        ...

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Features → one padded batch, with targets when all features have one."""
        ...

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of targets of each term that `terms` will return."""
        ...

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model` on `batch`."""
        ...

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the parts of the loss, by name, of what :meth:`encode` returned."""
        ...

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Compute the parts of the loss, by name."""
        ...

    def outputs_of(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Compute what `decode` needs, of what :meth:`encode` returned: [B, ...], one entry a
        sequence."""
        ...

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """Compute what `decode` needs of the model: [B, ...], one entry a sequence."""
        ...

    def decode(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[Prediction]:
        """One fp32 output for each feature → predictions, one an example, in their order."""
        ...

    def losses(self, outputs: Sequence[np.ndarray], features: Sequence[Any]) -> list[float]:
        """One fp32 output for each feature → the loss of each example, in their order: what
        `terms` has without dropout and weights, the mean over the example's targets. nan where
        its label is not known."""
        ...

    def metrics(self, predictions: Sequence[Prediction], labels: Sequence[Any]) -> dict[str, float]:
        """Scores by name; `primary_metric` is among them. `labels` are those of the examples."""
        ...

    def report(self, predictions: Sequence[Prediction], labels: Sequence[Any]) -> Report:
        """The metrics and what helps to understand them."""
        ...

    def reuses(self, info: TaskInfo) -> bool:
        """Whether a head that was trained for `info` answers what this task asks; else it is made
        anew, even where it has the right shape."""
        ...

    def extra_files(
        self, sets: Sequence[tuple[Examples[Any], Sequence[Any]]]
    ) -> dict[str, list[dict[str, Any]]]:
        """What a run's folder is to hold besides of `sets`, the training and the validation
        examples with their features: JSON values by the name of the file; empty ones are left
        out."""
        ...

    @property
    def unsaved(self) -> bool:
        """Whether it holds numbers that :meth:`finished` moves into the head."""
        ...

    def finished(self, model: Model, report: Report | None) -> Task[Prediction]:
        """The task as it is saved with the trained `model`, of which `report` is the evaluation
        (None: it was not judged); may change the weights of its heads."""
        ...

    def examples_of(
        self, texts: Sequence[Any], source: str = "input", lines: Sequence[int] | None = None
    ) -> Examples:
        """Make examples without labels of texts.

        Args:
            texts: N strings, or several that belong together.
            source: of them, for messages.
            lines: of the source, one for each text; None: 1, 2, ….
        """
        ...

    def answers(self, examples: Examples, predictions: Sequence[Prediction]) -> list[Any]:
        """Make what a user gets of the `predictions` for what :meth:`examples_of` returned."""
        ...

    def misfit(self, text: str | Sequence[str]) -> str | None:
        """Say why a text, or several, is not what the task takes; None: it is."""
        ...

    def group(self, strings: Sequence[str]) -> list[Any]:
        """Deal strings out to examples.

        Raises:
            BertineError: their number does not fit.
        """
        ...

    def columns_in(self, names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Choose the columns of texts that come by `names`, and how many of the last ones may be
        missing."""
        ...

    def columns_for(self, count: int) -> tuple[str, ...]:
        """Return the columns for `count` texts of an example."""
        ...

    def over(self, columns: Sequence[str]) -> Task[Prediction]:
        """Return the task for a table with these text columns."""
        ...

    def sample_inputs(self, texts: Sequence[str]) -> list[Any]:
        """Make an input of the task's kind for each of `texts`."""
        ...

    def summary(self, texts: Sequence[str], answer: Any) -> tuple[str, str]:
        """Return an answer to `texts` and its probability, or nothing, for a person."""
        ...

    def chances_of(self, texts: Sequence[str], answer: Any) -> list[tuple[str, float]]:
        """Return what might be answered to `texts`, with its probability."""
        ...

    def lines_below(self, texts: Sequence[str], answer: Any, details: bool) -> list[str]:
        """Return what a person reads below an answer."""
        ...

    def row_of(self, texts: Sequence[str], answer: Any, details: bool) -> dict[str, Any]:
        """Return `texts` and their answer as the row of a table."""
        ...

    def output_columns(self, details: bool) -> list[str]:
        """Names of the columns that a file of predictions gets; more of them with `details`."""
        ...

    def output_values(self, prediction: Prediction, details: bool) -> list[Any]:
        """The values of `output_columns` for one prediction."""
        ...


class TaskDefaults:
    """Default implementations shared by most tasks."""

    def encode(self: Task[Any], model: Model, batch: Batch) -> Encoded:
        """Encode each input."""
        return model.encode(batch)

    def terms(self: Task[Any], model: Model, batch: Batch) -> dict[str, Term]:
        """Encode, and compute the parts of the loss."""
        return self.terms_of(model, self.encode(model, batch), batch)

    def outputs(self: Task[Any], model: Model, batch: Batch) -> Tensor:
        """Encode, and compute what `decode` needs."""
        return self.outputs_of(model, self.encode(model, batch), batch)

    def reuses(self: Task[Any], info: TaskInfo) -> bool:
        """A head for the same task with the same labels."""
        wanted = self.task_info()
        return (info.name, info.labels) == (wanted.name, wanted.labels)

    def notes(self: Task[Any], features: Sequence[Any]) -> list[str]:
        """How many texts were cut, or are read in windows, if any is."""
        note = truncation_note(features, self.max_length)
        return [note] if note else []

    def weighted_for(self: Task[Prediction], features: Sequence[Any]) -> Task[Prediction]:
        """Return the task unchanged; it has no class weights."""
        return self

    def extra_files(
        self, sets: Sequence[tuple[Examples[Any], Sequence[Any]]]
    ) -> dict[str, list[dict[str, Any]]]:
        """Return no extra files."""
        return {}

    def finished(self: Task[Prediction], model: Model, report: Report | None) -> Task[Prediction]:
        """Return the task unchanged."""
        return self

    reads_words: ClassVar[bool] = False
    reads_questions: ClassVar[bool] = False
    has_choices: ClassVar[bool] = False
    single_output: ClassVar[bool] = False

    @property
    def unsaved(self) -> bool:
        """Whether :meth:`finished` has something to move into the head: no."""
        return False

    @property
    def takes_pairs(self) -> bool:
        """Whether it is over two texts: no."""
        return False

    @property
    def reads_apart(self) -> bool:
        """Whether the texts of a pair are encoded apart: no."""
        return False

    def examples_of(
        self: Task[Any],
        texts: Sequence[Any],
        source: str = "input",
        lines: Sequence[int] | None = None,
    ) -> Examples:
        """Make an example of each text, or of the several that belong together."""
        numbers = range(1, len(texts) + 1) if lines is None else lines
        items = [
            Example((text,) if isinstance(text, str) else tuple(text), line=line)
            for text, line in zip(texts, numbers, strict=True)
        ]
        return Examples(source, self.text_columns, None, items)

    def answers(self, examples: Examples, predictions: Sequence[Any]) -> list[Any]:
        """Return the predictions."""
        return list(predictions)

    def misfit(self: Task[Any], text: str | Sequence[str]) -> str | None:
        """Say so where there are more or fewer texts than columns."""
        columns, parts = self.text_columns, 1 if isinstance(text, str) else len(text)
        if parts == len(columns):
            return None
        wanted = "one text" if len(columns) == 1 else f"a list of {len(columns)} texts"
        return f"has {parts} parts; give {wanted} ({', '.join(columns)})"

    def group(self: Task[Any], strings: Sequence[str]) -> list[Any]:
        """Deal out as many strings to each example as there are columns."""
        columns, step = self.text_columns, len(self.text_columns)
        if step == 1:
            return list(strings)
        if len(strings) % step:
            raise BertineError(
                f"{counted(len(strings), 'text')} given, but the model takes "
                f"{step} for each answer: {' and '.join(map(repr, columns))}"
            )
        return [tuple(strings[at : at + step]) for at in range(0, len(strings), step)]

    def columns_in(self: Task[Any], names: Container[str]) -> tuple[tuple[str, ...], int]:
        """Return the columns, all of which are needed."""
        return self.text_columns, 0

    def columns_for(self: Task[Any], count: int) -> tuple[str, ...]:
        """Return the columns."""
        return self.text_columns

    def over(self: Task[Prediction], columns: Sequence[str]) -> Task[Prediction]:
        """Return the task unchanged."""
        return self

    def sample_inputs(self: Task[Any], texts: Sequence[str]) -> list[Any]:
        """Return the texts, or pair each with the next."""
        if len(self.text_columns) == 1:
            return list(texts)
        return joined_with_next(texts, 2)

    def summary(self, texts: Sequence[str], answer: Any) -> tuple[str, str]:
        """Return the answer as it shows itself."""
        cells: tuple[str, str] = answer.cells()
        return cells

    def chances_of(self, texts: Sequence[str], answer: Any) -> list[tuple[str, float]]:
        """Return the chances that the answer has."""
        chances: list[tuple[str, float]] = answer.chances()
        return chances

    def lines_below(self: Task[Any], texts: Sequence[str], answer: Any, details: bool) -> list[str]:
        """Return the chances with `details`, the best first."""
        chances = self.chances_of(texts, answer) if details else []
        chances.sort(key=lambda pair: -pair[1])
        return aligned([(short(name), f"{chance:.1%}") for name, chance in chances])

    def row_of(self: Task[Any], texts: Sequence[str], answer: Any, details: bool) -> dict[str, Any]:
        """Return the texts by their columns, a single one as that of a line, and the values."""
        columns = self.text_columns if len(self.text_columns) > 1 else (LINE_COLUMN,)
        names = [*columns, *self.output_columns(details)]
        return dict(zip(names, [*texts, *self.output_values(answer, details)], strict=True))


#: Characters of a text, or of a label, that a line of the terminal shows.
_SHOWN = 60


def short(text: str) -> str:
    """Return the beginning of a text in one line."""
    text = visible(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def joined_with_next(texts: Sequence[str], width: int) -> list[tuple[str, ...]]:
    """Join each of `texts` with those after it, `width` in all."""
    return [
        tuple(texts[(at + shift) % len(texts)] for shift in range(width))
        for at in range(len(texts))
    ]


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
    for at, feature in enumerate(features):
        length = len(feature.input_ids)
        input_ids[at, :length] = feature.input_ids
        token_type_ids[at, :length] = feature.token_type_ids
        attention_mask[at, :length] = True
    return Batch(
        torch.from_numpy(input_ids),
        torch.from_numpy(attention_mask),
        torch.from_numpy(token_type_ids),
        rows=[feature.row for feature in features],
    )


def cut_line(cut: int, total: int, max_length: int, lost: int, what: str = "texts") -> str:
    """ "17 of 2000 texts were cut at 128 pieces (31 pieces lost)"."""
    return (
        f"{cut} of {total} {what} were cut at {max_length} pieces ({counted(lost, 'piece')} lost)"
    )


def truncation_note(features: Sequence[Features], max_length: int) -> str | None:
    """ "17 of 2000 texts were cut at 128 pieces (…)", or how many are read in windows; None when
    every text is one input, uncut. What counts are examples: choices of one are not told apart."""
    cut = {feature.row for feature in features if feature.num_truncated}
    if cut:
        total = len({feature.row for feature in features})
        lost = sum(feature.num_truncated for feature in features)
        return cut_line(len(cut), total, max_length, lost)
    windows = Counter(feature.row for feature in features if feature.group is None)
    long = [number for number in windows.values() if number > 1]
    if not long:
        return None
    return (
        f"{len(long)} of {len(windows)} texts are longer than {max_length} pieces and are read in "
        f"{sum(long)} windows"
    )
