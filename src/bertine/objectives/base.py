"""Describe what a loss is made of, in pre-training and in fine-tuning.

A loss can stand around another one: it encodes the batch once, adds the terms of the other
(:meth:`Loss.terms_of`) to its own, and weighs them (:attr:`Term.weight`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.data.corruption.base import Corruption
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.names import InputFormat
from bertine.options.instances import InstanceSettings
from bertine.options.objectives import ObjectiveOptions

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


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
        shares: other numbers of targets, int64 scalars by name: of "replaced" the share of the
            count stands beside the loss, as ``rtd_replaced``.
    """

    total: Tensor
    count: int
    correct: Tensor | None = None
    weight: float = 1.0
    shares: Mapping[str, Tensor] = field(default_factory=dict)


class Loss(Protocol):
    """Compute what :func:`bertine.training.loop.fit.fit` minimizes; objectives and tasks are of
    this kind."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term in `batch`, without running the model: what the sums of
        a whole step are divided by."""
        ...

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model` on `batch`."""
        ...

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the terms of what :meth:`encode` returned; the names are those of
        :meth:`counts`."""
        ...

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Encode `batch` and compute the terms."""
        ...


class Objective(Loss, Protocol):
    """Be a loss that a model is pre-trained with.

    Attributes:
        name: in :data:`bertine.registry.OBJECTIVES`.
        formats: what sequences may be made of, the usual one first
            (:data:`bertine.data.instances.formats.FORMATS`).
        mask_split: of the predicted tokens, the shares that its paper has masked, replaced at
            random, kept.
    """

    name: ClassVar[str]
    formats: ClassVar[tuple[InputFormat, ...]]
    mask_split: ClassVar[tuple[float, float, float]]

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with what `options` say of it."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return what the settings of a run say of the objective besides its name."""
        ...

    def corruption(self, tokenizer: Tokenizer, settings: InstanceSettings) -> Corruption:
        """Make what turns instances into batches with the targets of this objective."""
        ...

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """Make fresh heads by name for a backbone of `config`."""
        ...


class LossDefaults:
    """Encode a batch as it is, and compute the terms of that; without options."""

    mask_split: ClassVar[tuple[float, float, float]] = (0.8, 0.1, 0.1)

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective, of which the options say nothing."""
        return self

    def settings(self) -> dict[str, Any]:
        """Return nothing: the name says all."""
        return {}

    def encode(self: Loss, model: Model, batch: Batch) -> Encoded:
        """Run the backbone of `model` on `batch`."""
        return model.encode(batch)

    def terms(self: Loss, model: Model, batch: Batch) -> dict[str, Term]:
        """Encode `batch` and compute the terms."""
        return self.terms_of(model, self.encode(model, batch), batch)
