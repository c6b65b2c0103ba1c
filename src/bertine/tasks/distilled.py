"""Train a task on a teacher: its answers as well as the labels, and its layers.

The teacher's answers do not change, so they are computed once and stored with the features; only
if layers are compared does the teacher run during training.

Shape legend: B sequences in a batch, T tokens of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertine.corpora.batch import Batch, select
from bertine.models.encoder import BackboneOutput, Encoded
from bertine.models.heads import Model
from bertine.objectives.distillation import SOFT, STAGE, MapLosses, stage_of, train_stage
from bertine.objectives.losses import LossDefaults, Term
from bertine.tasks.base import Task

#: The targets of a batch: the teacher's outputs, and which sequences have a label.
TEACHER_OUTPUTS, HAS_LABEL = "teacher_outputs", "has_label"


@dataclass(frozen=True, slots=True)
class DistilledFeature:
    """A feature with the teacher's output for it.

    Attributes:
        feature: of the task, with a target, which may be a placeholder.
        output: of the teacher: fp32, in the form that :meth:`Task.decode` takes.
        labelled: whether the target is a label.
    """

    feature: Any
    output: np.ndarray
    labelled: bool

    @property
    def input_ids(self) -> np.ndarray:
        ids: np.ndarray = self.feature.input_ids
        return ids

    @property
    def group(self) -> int | None:
        group: int | None = self.feature.group
        return group


def collate_distilled(
    task: Task[Any], pad_id: int
) -> Callable[[Sequence[DistilledFeature]], Batch]:
    """Return a function that pads features into a batch, with ``targets["teacher_outputs"]`` fp32
    [B, ...] and ``targets["has_label"]`` bool [B]."""

    def collate(features: Sequence[DistilledFeature]) -> Batch:
        batch = task.collate([feature.feature for feature in features], pad_id)
        width = batch.input_ids.shape[1]
        batch.targets[TEACHER_OUTPUTS] = padded([feature.output for feature in features], width)
        batch.targets[HAS_LABEL] = torch.tensor([feature.labelled for feature in features])
        return batch

    return collate


def padded(outputs: Sequence[np.ndarray], width: int) -> Tensor:
    """Stack a teacher's outputs for the B features of a batch: fp32 [B, ...]; those of tokens are
    padded to `width` of them."""
    shape = outputs[0].shape
    if len(shape) < 2:
        return torch.from_numpy(np.stack(outputs).astype(np.float32))
    table = np.zeros((len(outputs), width, *shape[1:]), dtype=np.float32)
    for row, output in enumerate(outputs):
        table[row, : len(output)] = output
    return torch.from_numpy(table)


@dataclass
class DistilledTask(LossDefaults):
    """The loss of a task, with a teacher's answers in addition to its labels.

    Attributes:
        task: the task, whose loss counts where there are labels.
        label_weight: of that loss; the teacher's answers have the rest of 1.
        temperature: see :meth:`Task.soft_term`.
        maps: the terms on hidden and attention maps; None: none.
        teacher: runs during training for `maps`, on the student's inputs; else None.
        frozen: see :class:`~bertine.objectives.distillation.DistilledMlm`.
    """

    task: Task[Any]
    label_weight: float
    temperature: float
    maps: MapLosses | None = None
    teacher: Model | None = None
    frozen: frozenset[str] = field(default_factory=frozenset)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of the labels, of the teacher's answers and of the compared layers."""
        counts: dict[str, int] = {}
        if stage_of(batch) is None:
            if self.label_weight > 0:
                rows = _labelled(batch)
                empty = rows is not None and not len(rows)
                part = batch if rows is None or empty else select(batch, rows)
                own = self.task.counts(part)
                counts |= dict.fromkeys(own, 0) if empty else own
            if self.label_weight < 1:
                counts[SOFT] = sum(self.task.counts(batch).values())
        if self.maps is not None:
            counts |= self.maps.counts(batch)
        return counts

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model`, after choosing the layers to train by the batch's stage."""
        if STAGE in batch.targets:
            train_stage(model, stage_of(batch), self.frozen)
        if self.maps is not None:
            return model.encode(batch, all_states=True)
        return self.task.encode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the terms of the labels, of the teacher's answers, and of its layers."""
        stage, terms = stage_of(batch), dict[str, Term]()
        if stage is None:
            if self.label_weight > 0:
                for name, term in self._of_labels(model, encoded, batch).items():
                    terms[name] = replace(term, weight=self.label_weight * term.weight)
            if self.label_weight < 1:
                outputs = self.task.outputs(model, batch, encoded)
                term = self.task.soft_term(
                    outputs, batch.targets[TEACHER_OUTPUTS], batch, self.temperature
                )
                terms[SOFT] = replace(term, weight=1.0 - self.label_weight)
        if self.maps is not None:
            assert self.teacher is not None
            with torch.no_grad():
                of_teacher = self.teacher.encode(batch, all_states=True)
            terms |= self.maps.terms_of(model, encoded, self.teacher, of_teacher, batch, stage)
        return terms

    def _of_labels(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the task's own terms for the sequences that have a label."""
        rows = _labelled(batch)
        if rows is None:
            return self.task.terms_of(model, encoded, batch)
        if not len(rows):
            zero = encoded.last_hidden_state.new_zeros((), dtype=torch.float32)
            return {name: Term(zero, 0) for name in self.task.counts(batch)}
        part = select(batch, rows)
        pooled = encoded.pooler_output
        chosen = BackboneOutput(
            encoded.last_hidden_state[rows, : part.input_ids.shape[1]],
            None if pooled is None else pooled[rows],
        )
        return self.task.terms_of(model, chosen, part)


def _labelled(batch: Batch) -> Tensor | None:
    """Return the sequences that have a label, int64 [R]; None: all have."""
    rows = batch.targets[HAS_LABEL].nonzero()[:, 0]
    return None if len(rows) == batch.num_sequences else rows
