"""Read the teachers of tasks: a fine-tuned model, or a file of another model's answers."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bertine.core.console import human_count, logger, plural, progress
from bertine.core.errors import BertineError
from bertine.core.names import Precision, option
from bertine.core.text import row_at
from bertine.data.examples import Examples
from bertine.data.soft_labels import Probabilities
from bertine.datasets.transfer_set import TransferSet
from bertine.families.fitted_heads import has_mean_layer
from bertine.hub.model_directory import LoadedModel
from bertine.inference.predictor import Pipeline, Predictor
from bertine.inference.train_overlap import rows_known
from bertine.models.config import Config
from bertine.models.heads import Model
from bertine.objectives.distillation import (
    ATTENTION,
    HIDDEN,
    MEAN,
    VARIANCE,
    MapLosses,
    uniform_map,
)
from bertine.options.declare import OptionGroup, shared_values
from bertine.options.distillation import DistillOptions
from bertine.tasks.base import Task
from bertine.tasks.whole_text import WholeTextTask
from bertine.tokenization.tokenizer import Tokenizer
from bertine.training.distillation.student import StudentPlan

# Options: pass the arguments of ``distill`` to the verbs that it shares work with.

Group = TypeVar("Group", bound=OptionGroup)


def part_of(group: type[Group], options: DistillOptions, **others: Any) -> Group:
    """Return the options of another verb: the values of `options` that are not None (None means
    that verb's own default), and `others`."""
    given = shared_values(group, options).items()
    return group(**{**{name: value for name, value in given if value is not None}, **others})


def map_losses(options: DistillOptions, plan: StudentPlan, teacher: Config) -> MapLosses | None:
    """Return the terms on hidden and attention maps; None if there are none.

    A student that is initialized with layers of its teacher follows these; another one follows
    layers that are spread evenly.

    Raises:
        BertineError: there are stages without such a term.
    """
    weights = {
        HIDDEN: options.hidden_weight,
        MEAN: options.hidden_mean_weight,
        VARIANCE: options.hidden_variance_weight,
        ATTENTION: options.attention_weight,
    }
    if not any(weights.values()):
        if options.progressive_steps is not None:
            raise BertineError(
                f"{option('progressive_steps')} trains single layers on {option('hidden_weight')} "
                f"and {option('attention_weight')}, but neither has a weight"
            )
        return None
    layers = plan.layers
    if layers is None:
        layers = uniform_map(plan.config.num_hidden_layers, teacher.num_hidden_layers)
    return MapLosses(options.layer_loss, layers, weights)


def maps_facts(maps: MapLosses) -> dict[str, Any]:
    """Return the facts about hidden and attention maps for a run's settings."""
    weights = {f"{name}_weight": maps.weights[name] for name in maps.names}
    return {"layer_loss": maps.kind, "followed_layers": list(maps.layers), **weights}


# Options of ``distill`` without effect in a run: one line for each.

#: The weights of the terms that compare layers.
MAP_WEIGHTS = ("hidden_weight", "hidden_mean_weight", "hidden_variance_weight", "attention_weight")


def warn_ignored_options(
    options: DistillOptions, plan: StudentPlan, teacher: Config | None, reasons: dict[str, str]
) -> None:
    """Print a line for each given option that has no effect.

    Args:
        plan: of the student.
        teacher: the config of the teacher; None: it is a file.
        reasons: by the name of an option, the reason, if it depends on the data.
    """
    reasons = {**dict(_reasons(options, plan, teacher)), **reasons}
    changed = options.changed()
    for name, why in reasons.items():
        if name in changed:
            logger.warning(f"{option(name, changed[name])} does nothing: {why}")


def _reasons(
    options: DistillOptions, plan: StudentPlan, teacher: Config | None
) -> Iterator[tuple[str, str]]:
    """Yield the options that have no effect for any data, with the reason."""
    if not any(getattr(options, name) for name in MAP_WEIGHTS):
        first, *_, last = MAP_WEIGHTS
        yield "layer_loss", f"no layers are compared; give {option(first)} or {option(last)}"
    if plan.layers is None:
        yield "token_types", "the student does not begin as layers of its teacher"
    elif plan.config.type_vocab_size:
        yield "token_types", "the student has token types of its own"
    elif teacher is not None and not teacher.type_vocab_size:
        yield "token_types", "the teacher has no token types"


@dataclass(frozen=True)
class StudentInputs:
    """What a student reads.

    Attributes:
        task: the student's task.
        examples: the examples to learn from.
        features: the student's features of them.
        student: the student, which reads the features.
    """

    task: Task[Any]
    examples: Examples[Any]
    features: Sequence[Any]
    student: LoadedModel


class Teacher(ABC):
    """The teacher of a student.

    Attributes:
        task: the task that it does.
        name: of its folder or file, for messages.
        fingerprint: of everything that its answers depend on.
    """

    task: Task[Any]
    name: str
    fingerprint: str

    @abstractmethod
    def line(self) -> str:
        """Describe the teacher."""

    @abstractmethod
    def outputs(self, inputs: StudentInputs) -> list[np.ndarray]:
        """Compute the teacher's outputs for each of the student's features.

        Raises:
            BertineError: it splits these examples into other parts than the student does.
        """

    @property
    def known(self) -> frozenset[int]:
        """The indices of the rows that it was trained on, as far as known."""
        return frozenset()

    @abstractmethod
    def answers(self, data: TransferSet) -> list[Any] | None:
        """Answer the validation examples; return None if it cannot."""


@dataclass
class ModelTeacher(Teacher):
    """A fine-tuned model, which computes with the engine."""

    predictor: Predictor
    name: str

    @classmethod
    def load(cls, folder: Path | str, device: str | None, precision: Precision) -> ModelTeacher:
        """Read a model directory; the teacher computes in the precision that it was trained in.

        Raises:
            BertineError: it is not a model of a task.
        """
        return cls(Predictor.for_scores(folder, device, precision), str(folder))

    @property
    def task(self) -> Task[Any]:  # type: ignore[override]
        return self.predictor.task

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        return self.predictor.model.fingerprint()

    @property
    def model(self) -> Model:
        return self.predictor.model

    @property
    def config(self) -> Config:
        return self.predictor.model.config

    @property
    def head_alone(self) -> bool:
        """Whether its head was fitted alone. Such a head is large, over the mean of all states; no
        training can start from it."""
        return self.predictor.training.get("frozen") is True or has_mean_layer(self.model)

    @property
    def layers_config(self) -> Config:
        """The config with the layers that a student may be initialized with: without the layer that
        computes the mean for a head that was fitted alone."""
        if not has_mean_layer(self.model):
            return self.config
        return self.config.with_layers(self.config.num_hidden_layers - 1)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.predictor.tokenizer

    def line(self) -> str:
        size = human_count(self.model.num_parameters())
        return (
            f"teacher: {self.config.title}, {plural(self.config.num_hidden_layers, 'layer')} of "
            f"{self.config.hidden_size}, {size} parameters, for the task {self.task.name}"
        )

    def split_seed(self, otherwise: int) -> int:
        """Return the seed of the held-out split of the teacher's training; `otherwise` if it is not
        recorded."""
        facts = self.predictor.training
        seed = facts.get("split_seed", facts.get("seed"))
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else otherwise

    @cached_property
    def known(self) -> frozenset[int]:
        return rows_known(self.task.name, self.predictor.training)

    def answering(self, columns: Sequence[str]) -> Pipeline:
        """Return the teacher as a pipeline for a table with these text columns."""
        return self.predictor.over(columns)

    def outputs(self, inputs: StudentInputs) -> list[np.ndarray]:
        answering = self.answering(inputs.examples.text_columns)
        own = self._features(answering, inputs)
        with progress() as bar:
            job = bar.add_task("ask the teacher", total=len(own))
            outputs = answering.compute(own, on_batch=lambda done: bar.advance(job, done))
        # The values at padding are undefined.
        return [
            np.asarray(output[: len(feature.input_ids)] if output.ndim > 1 else output)
            for output, feature in zip(outputs, own, strict=True)
        ]

    def _features(self, answering: Pipeline, inputs: StudentInputs) -> Sequence[Any]:
        """Return the teacher's inputs for each of the student's features."""
        task, features = answering.task, inputs.features
        why = self.reads_otherwise(inputs.task, inputs.student)
        if not why:
            return features
        own = task.featurize(inputs.examples, answering.tokenizer)
        rows = [feature.row for feature in features] == [feature.row for feature in own]
        by_token = self.model.family.heads[task.head].reads == "tokens"
        ids = rows and (
            not by_token
            or all(
                np.array_equal(a.input_ids, b.input_ids) for a, b in zip(features, own, strict=True)
            )
        )
        if not ids:
            raise BertineError(
                f"the teacher reads these texts in other parts than the student: {why}"
            )
        return own

    def reads_otherwise(self, student_task: Task[Any], student: LoadedModel) -> str:
        """Explain why teacher and student do not read the same pieces, and how to change that;
        return "" if they do.

        Args:
            student_task: the student's task.
            student: with its number of positions.
        """
        wanted = self.task.max_length
        if student.tokenizer.fingerprint != self.tokenizer.fingerprint:
            return (
                "their vocabularies differ; give a student that has the teacher's, as a model type "
                f"or {option('layers')} make one"
            )
        if student.config.longest_input < wanted:
            return (
                f"the student has {student.config.longest_input} positions, but the teacher reads "
                f"up to {wanted} pieces; give a student with as many, or a teacher that was "
                f"fine-tuned with {option('max_length', student.config.longest_input)}"
            )
        if student_task.max_length != wanted:
            return (
                f"the teacher reads up to {wanted} pieces, the student {student_task.max_length}; "
                f"leave out {option('max_length')}, or give {option('max_length', wanted)}"
            )
        return ""

    def answers(self, data: TransferSet) -> list[Any] | None:
        answering = self.answering(data.validation.text_columns)
        # Without labels, because the teacher may not know all of them.
        prepared = answering.prepare(data.validation)
        return list(answering.task.decode(answering.compute(prepared.features), prepared.features))


@dataclass
class FileTeacher(Teacher):
    """A file with the probability of each label, or a score, for each row of the training data."""

    probabilities: Probabilities
    task: WholeTextTask[Any]
    name: str
    numbers: tuple[int, ...] = ()

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        digest = hashlib.sha256(repr(self.probabilities.labels).encode())
        digest.update(np.ascontiguousarray(self.probabilities.values).data)
        return digest.hexdigest()

    def line(self) -> str:
        labels = self.probabilities.labels
        what = f"probabilities of {len(labels)} labels" if labels else "scores"
        rows = plural(len(self.probabilities.values), "row")
        return f"teacher: {rows} of {what} in {self.name}"

    @cached_property
    def rows_put_out(self) -> np.ndarray:
        """The outputs of a model with these answers, fp32 [N, K]; for scores [N]."""
        return self.task.as_outputs(self.probabilities.values)

    def fit(self, data: TransferSet) -> FileTeacher:
        """Return the teacher for data with possibly held-out rows.

        Raises:
            BertineError: the file has another number of rows than the data, or the text of a row
                differs.
        """
        held = set(data.held_out)
        count, rows = len(data.train) + len(held), len(self.probabilities.values)
        if rows != count:
            raise BertineError(
                f"{self.name}: has {plural(rows, 'row')}, but "
                f"{data.train.source} has {plural(count, 'row')}; both must have the same texts "
                "in the same order"
            )
        numbers = tuple(n for n in range(count) if n not in held)
        if self.probabilities.texts:
            items = dict(zip(numbers, data.train.items, strict=True))
            items |= dict(zip(sorted(held), data.validation.items, strict=True) if held else [])
            for number, item in sorted(items.items()):
                if self.probabilities.texts[number] != item.texts:
                    raise BertineError(
                        f"{self.name}:{self.probabilities.lines[number]}: has another text than "
                        f"{row_at(data.train.source, item.line)}; both must have the same texts in "
                        "the same order"
                    )
        return replace(self, numbers=numbers)

    def outputs(self, inputs: StudentInputs) -> list[np.ndarray]:
        return [self.rows_put_out[self.numbers[feature.row]] for feature in inputs.features]

    def answers(self, data: TransferSet) -> list[Any] | None:
        if not data.held_out:
            return None
        outputs = list(self.rows_put_out[list(data.held_out)])
        return list(
            self.task.decode(outputs, [_NumberedRow(number) for number in range(len(outputs))])
        )


@dataclass(frozen=True)
class _NumberedRow:
    """An example of one feature, with only what decoding reads."""

    row: int
