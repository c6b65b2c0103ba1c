"""Which sequences go into which batch: by length, so that little padding is computed.

Prediction sorts everything and fills batches up to a token budget; training sorts within windows
of shuffled examples, so that order stays random and an epoch still sees every example once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from bertine.data.batch import Batch
from bertine.errors import BertineError
from bertine.rng import generator

#: Batches in a window of :func:`grouped_by_length`: few, so that an epoch's order stays close to a
#: uniform shuffle. With 50, MiniLM on the emotion set is three points behind after an epoch; and
#: what padding is left costs little, as the backbone leaves most of it out.
WINDOW = 8

Value = TypeVar("Value")


def token_budget_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Put indices into batches of like length, longest first, each of at most `max_tokens` tokens
    with its padding (sequences x longest).

    A sequence longer than the budget is a batch of its own. Longest first shows at once whether
    memory is enough, and makes estimates of the time left err on the safe side. Equal lengths
    keep their order, so the result depends on nothing but the arguments.

    Raises:
        BertineError: `max_tokens` is below 1.
    """
    if max_tokens < 1:
        raise BertineError(f"max_tokens of a batch is {max_tokens}, but must be at least 1")
    if len(lengths) == 1:
        return [[0]]
    batches: list[list[int]] = []
    longest = 0
    for index in np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist():
        batch = batches[-1] if batches else None
        if batch is None or (len(batch) + 1) * longest > max_tokens:
            batches.append([index])
            longest = lengths[index]
        else:
            batch.append(index)
    return batches


def restore_order(
    batches: Sequence[Sequence[int]], results: Iterable[Sequence[Value]]
) -> list[Value]:
    """Put the results of batches into the order of the inputs that the batches index."""
    placed: dict[int, Value] = {}
    for batch, values in zip(batches, results, strict=True):
        placed.update(zip(batch, values, strict=True))
    return [placed[index] for index in range(len(placed))]


def grouped_by_length(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int, window: int = WINDOW
) -> list[list[int]]:
    """Return the batches of one epoch of training: every index once, like lengths together.

    The examples are shuffled, sorted by length within windows of `window` batches, cut into
    batches of `batch_size` (one is smaller when it does not divide), and the batches shuffled.
    A pure function of its arguments.
    """
    if batch_size < 1:
        raise BertineError(f"batch_size is {batch_size}, but must be at least 1")
    draw = generator(seed, "order", epoch)
    order = draw.permutation(len(lengths))
    sizes = np.asarray(lengths, dtype=np.int64)
    batches: list[list[int]] = []
    for start in range(0, len(order), window * batch_size):
        part = order[start : start + window * batch_size]
        part = part[np.argsort(sizes[part], kind="stable")]
        batches.extend(
            part[first : first + batch_size].tolist() for first in range(0, len(part), batch_size)
        )
    return [batches[index] for index in draw.permutation(len(batches))]


def batches_per_epoch(num_examples: int, batch_size: int) -> int:
    """Count the steps that see every example once; the last one may be smaller."""
    return -(-num_examples // batch_size)


def epoch_and_batch(step: int, num_examples: int, batch_size: int) -> tuple[int, int]:
    """Step (from 0) → (epoch, index of the batch within the epoch)."""
    return divmod(step, batches_per_epoch(num_examples, batch_size))


class FeatureBatches(Generic[Value]):
    """The training batches of a task: ``batch(step)`` is a pure function of
    (features, batch_size, seed, step), so a run can be entered at any step.

    Args:
        features: of all the examples, anything with ``input_ids``. Neighbours with the same
            ``group`` (unless it is None) count as one example and always come together.
        collate: a task's, closed over the padding id: features → :class:`Batch`.
        batch_size: examples a step.
        seed: of the order.
    """

    def __init__(
        self,
        features: Sequence[Value],
        collate: Callable[[Sequence[Value]], Batch],
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        if not features:
            raise BertineError("there are no examples to train on")
        if batch_size < 1:
            raise BertineError(f"batch_size is {batch_size}, but must be at least 1")
        self._units, self._collate = _units(features), collate
        self._lengths = [max(map(_length, unit)) for unit in self._units]
        self.batch_size, self.seed = batch_size, seed
        self._epoch = -1
        self._order: list[list[int]] = []

    @property
    def steps_per_epoch(self) -> int:
        return batches_per_epoch(len(self._units), self.batch_size)

    def batch(self, step: int) -> Batch:
        """Return the batch of `step`, counted from 0 over all epochs."""
        epoch, index = epoch_and_batch(step, len(self._units), self.batch_size)
        if epoch != self._epoch:
            self._order = grouped_by_length(self._lengths, self.batch_size, self.seed, epoch)
            self._epoch = epoch
        return self._collate([value for unit in self._order[index] for value in self._units[unit]])


def _units(features: Sequence[Value]) -> list[list[Value]]:
    """Return the features that come together: neighbours of one group, or a single one."""
    units: list[list[Value]] = []
    last: Any = None
    for feature in features:
        group = getattr(feature, "group", None)
        if group is not None and group == last:
            units[-1].append(feature)
        else:
            units.append([feature])
        last = group
    return units


def _length(feature: Any) -> int:
    return len(feature.input_ids)
