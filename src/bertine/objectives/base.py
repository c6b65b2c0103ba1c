"""What a loss is made of, in pre-training and in fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bertine.data.batch import Batch
from bertine.models.model import Model


@dataclass
class Term:
    """One part of a loss, as a sum, so that parts of a step add up exactly.

    The loss of a step is, over all terms, ``weight * (sum of totals) / (sum of counts)`` with both
    sums over the whole step: split into micro-batches or not, the result is the same.

    Attributes:
        total: fp32 scalar, the sum of the losses of the targets.
        count: number of targets (plain int, so that asking costs no synchronization).
        correct: int64 scalar, how many targets were predicted right; None where that has no
            meaning.
        weight: of this term among the others.
    """

    total: Tensor
    count: int
    correct: Tensor | None = None
    weight: float = 1.0


class Objective(Protocol):
    """What :func:`bertine.training.loop.fit.fit` minimizes; objectives and tasks are of this
    kind."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """Targets per term in `batch`, known without running the model: what the sums of a
        whole step are divided by."""
        ...

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Run `model` on `batch`; the names are those of :meth:`counts`."""
        ...
