"""The base of fine-tuning tasks.

A task owns its heads, the way from examples to features to a batch, its loss, and the way from
the model's outputs to predictions and metrics. Training, evaluation, the command line and a
server all go through `featurize` and `decode`: nothing is tokenized or decided in two ways.

Shape legend: B sequences in a batch, T tokens of the longest.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.heads import new_head
from bertine.models.model import Model
from bertine.objectives.base import Term
from bertine.objectives.distillation.soft_targets import divergences
from bertine.records.examples import Examples
from bertine.taskinfo import TaskInfo
from bertine.tasks.calibration import Decisions
from bertine.tasks.features import Features, pad_features, truncation_note
from bertine.tasks.input_lengths import require_positions
from bertine.tasks.report import EvaluationReport
from bertine.tasks.user_side import UserSide
from bertine.text.tokenizer import Tokenizer

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


class Task(UserSide, ABC, Generic[Prediction]):
    """Base of the fine-tuning tasks, which are frozen dataclasses; see the module's text.

    Attributes, beside those of :class:`UserSide`:
        name: in :data:`bertine.tasks.TASKS` and ``bertine.json``.
        primary_metric: the metric (higher is better) by which models are chosen, where no other
            is named for the data (`metric_names`).
        label_column: the column that holds the label, None when not known.
        max_length: longest input in pieces, special tokens included.
        metric_names: the metrics by which the task is judged.
        dataset: the public data set it is, e.g. "glue/CoLA"; None for one's own.
        labels: in the order of the head's outputs; empty where it has none.
        choice_columns: those of `text_columns` that are choices.
        long_text: what is read of a longer text (:mod:`bertine.tasks.long_text`).
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
