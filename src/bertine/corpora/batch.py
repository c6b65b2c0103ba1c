"""Build batches, group sequences by length, and divide a batch among processes and micro-batches.

Sequences are grouped by length, so that a micro-batch has little padding. Every process knows the
length of every sequence, so each computes the parts of all processes without communication.

Some sequences are computed together: the choices of an example, which share one softmax. A batch
with ``targets["groups"]`` (int64 [B], equal numbers are adjacent) is divided and cut by whole
groups, any other batch by sequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.names import later
from bertine.core.rng import generator

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    later(globals(), "torch")

# Packing: the positions of the real tokens in a padded batch, computed on the host, because waiting
# for a GPU to count them would be slow.
#
# Shape legend: B sequences, T tokens of the longest, N rows that are computed.

#: Numbers of rows are multiples of this, so that compiled code and memory can be reused.
_ROWS = 128
#: The bound on the lengths is a multiple of this, for the same reason.
_LONGEST = 64


@dataclass(frozen=True)
class Packing:
    """The rows of a batch that are computed, sequence after sequence.

    Attributes:
        real: int64 [N], indices into the B * T positions: the real tokens in order, followed by
            padding up to a round number.
        ends: int32 [S + 1], the row where each sequence begins, and N. The rows of padding form
            sequences of their own, so S is B plus a few; unneeded ones are empty.
        longest: at least the length of the longest sequence; a round number.
    """

    real: Tensor
    ends: Tensor
    longest: int


def packing(mask: Tensor) -> Packing:
    """Compute the packing of a batch with ``attention_mask`` `mask` (bool [B, T], on the host)."""
    positions = mask.numel()
    longest = -(-mask.shape[1] // _LONGEST) * _LONGEST
    lengths = mask.sum(1)
    count = int(lengths.sum())
    rows = min(positions, -(-count // _ROWS) * _ROWS)
    flat = mask.reshape(-1)
    real = flat.nonzero()[:, 0]
    if rows > count:
        real = torch.cat([real, (~flat).nonzero()[: rows - count, 0]])
    # As many as this for each batch of this width, so that shapes recur.
    spare = -(-_ROWS // longest)
    padding = [min(rows, count + longest * (i + 1)) for i in range(spare)]
    ends = torch.cat([torch.zeros(1), lengths.cumsum(0), torch.tensor(padding)])
    return Packing(real, ends.to(torch.int32), longest)


# Batch: made by loaders and read by models, in pre-training and fine-tuning.
#
# Shape legend: B sequences in the batch, T tokens of the longest one (the rest is padding).


@dataclass
class Batch:
    """The inputs of a model, and the targets of the objective or task.

    Attributes:
        input_ids: int64 [B, T], padded on the right with the tokenizer's ``[PAD]`` id.
        attention_mask: bool [B, T], True where there is a real token.
        token_type_ids: int64 [B, T], 0 for segment A and padding, 1 for segment B.
        targets: the inputs of the loss, by name. Pre-training: ``mlm_positions`` int64 [P]
            (indices into the flattened [B*T] tokens), ``mlm_labels`` int64 [P], further targets
            of other corruptions for these positions, and those of other kinds, named alike;
            ``next_sentence_label`` int64 [B] (0 = next, 1 = random) or ``sentence_order_label``
            int64 [B] (0 = in order, 1 = swapped).
            Classification: ``labels`` int64 [B]. Multiple choice: ``groups`` int64 [B], the
            number of the example that a sequence is a choice of (:mod:`bertine.corpora.batch`).
        rows: for each sequence, the index of its example in the data set; empty in pre-training.
        packing: positions of the real tokens, for a GPU; None: not requested (:meth:`packed`).
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    targets: dict[str, Tensor] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    packing: Packing | None = None

    @property
    def num_sequences(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_tokens(self) -> int:
        """Number of real tokens, without padding."""
        return int(self.attention_mask.sum())

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on `device`."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def packed(self) -> Batch:
        """Return the batch with its `packing`, computed from the mask on the host."""
        return dataclasses.replace(self, packing=packing(self.attention_mask))

    def pin_memory(self) -> Batch:
        """Return the batch in page-locked memory, whose copies to a GPU are asynchronous."""
        return self._mapped(Tensor.pin_memory)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        packing = self.packing
        return Batch(
            change(self.input_ids),
            change(self.attention_mask),
            change(self.token_type_ids),
            {name: change(value) for name, value in self.targets.items()},
            self.rows,
            packing and Packing(change(packing.real), change(packing.ends), packing.longest),
        )

    def tensors(self) -> list[Tensor]:
        """Return all of its tensors."""
        tensors = [self.input_ids, self.attention_mask, self.token_type_ids, *self.targets.values()]
        return tensors if self.packing is None else [*tensors, self.packing.real, self.packing.ends]


# Checks of ids, lengths and labels on the host, so that an error names its row.
#
# On a GPU the same error is an assertion deep in a kernel, on a CPU an index error without a row.


class Sizes(Protocol):
    """The part of a model's configuration that limits its inputs."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def num_segment_ids(self) -> int: ...
    @property
    def longest_input(self) -> int: ...


def check_batch(batch: Batch, config: Sizes, *, num_labels: int | None = None) -> None:
    """Check a batch that is still on the host against the sizes of the model.

    Args:
        batch: on the CPU.
        config: the model's configuration.
        num_labels: when given, ``targets["labels"]`` must be in ``range(num_labels)`` or -100.

    Raises:
        BertineError: names the first row with a token id, segment id, length or label that the
            model has no parameters for.
    """
    length = batch.input_ids.shape[1]
    if length > config.longest_input:
        longest = int(batch.attention_mask.sum(1).argmax())
        raise BertineError(
            f"{_row(batch, longest)}: {length} tokens, but the model has positions for "
            f"{config.longest_input}; lower the maximum length"
        )
    _check(batch, batch.input_ids, config.vocab_size, "token id {} is outside the vocabulary of")
    _check(batch, batch.token_type_ids, config.num_segment_ids, "segment id {} is outside the")
    labels = batch.targets.get("labels")
    if num_labels is not None and labels is not None:
        _check(batch, labels, num_labels, "label {} is outside the", ignored=-100)


def _check(batch: Batch, values: Tensor, size: int, what: str, ignored: int | None = None) -> None:
    wrong = (values < 0) | (values >= size)
    if ignored is not None:
        wrong &= values != ignored
    if wrong.any():
        where = wrong.nonzero()[0].tolist()
        value = int(values[tuple(where)])
        raise BertineError(f"{_row(batch, where[0])}: {what.format(value)} {size}")


def _row(batch: Batch, sequence: int) -> str:
    return f"row {batch.rows[sequence] if batch.rows else sequence}"


# Grouping: which sequences form a batch, by length, so that there is little padding.
#
# Prediction sorts all sequences and fills batches up to a token budget; training sorts within
# windows of shuffled examples, so that the order stays random and an epoch still sees every example
# once.

#: Batches in a window of :func:`grouped_by_length`: few, so that an epoch's order stays close to a
#: uniform shuffle. With 50, MiniLM on the emotion set is three points worse after an epoch; and the
#: remaining padding costs little, because the backbone skips most of it.
WINDOW = 8

Value = TypeVar("Value")


def token_budget_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group indices into batches of similar length, longest first, each of at most `max_tokens`
    tokens with its padding (sequences x longest).

    A sequence longer than the budget is a batch of its own. Longest first shows immediately whether
    memory is sufficient, and makes estimates of the remaining time pessimistic. Equal lengths keep
    their order, so the result depends only on the arguments.

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
    """Return the batches of one epoch of training: every index once, similar lengths together.

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
    """Convert a step (from 0) to (epoch, index of the batch within the epoch)."""
    return divmod(step, batches_per_epoch(num_examples, batch_size))


class FeatureBatches(Generic[Value]):
    """The training batches of a task: ``batch(step)`` is a pure function of (features, batch_size,
    seed, step), so a run can start at any step.

    Args:
        features: those of all examples, objects with ``input_ids``. Neighbours with the same
            ``group`` (unless it is None) count as one example and always stay together.
        collate: the task's function with the padding id: features → :class:`Batch`.
        batch_size: examples per step.
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
    """Return the features that stay together: neighbours of one group, or a single one."""
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


#: For the target ``X_positions``, the indices into the flattened tokens where ``X_labels`` are
#: predicted, every other target ``X_…`` has one entry for each of these; targets without such
#: positions have one for each sequence.
_PLACES = "_positions"


def select(batch: Batch, rows: Tensor) -> Batch:
    """Select the sequences `rows` (int64 [R]) of `batch`, and cut padding beyond the longest."""
    width = batch.input_ids.shape[1]
    mask = batch.attention_mask[rows]
    length = int(mask.sum(1).max())
    kinds = [
        name.removesuffix(_PLACES)
        for name in batch.targets
        if name.endswith(_PLACES) and f"{name.removesuffix(_PLACES)}_labels" in batch.targets
    ]
    of_kind = {
        kind: [name for name in batch.targets if name.startswith(f"{kind}_")] for kind in kinds
    }
    at_places = {name for names in of_kind.values() for name in names}
    targets: dict[str, Tensor] = {}
    for name, value in batch.targets.items():
        if name not in at_places:
            targets[name] = value[rows]
    for kind, names in of_kind.items():
        places = f"{kind}{_PLACES}"
        positions = batch.targets[places]
        new_row = torch.full((batch.num_sequences,), -1)
        new_row[rows] = torch.arange(len(rows))
        row = new_row[positions // width]
        mine = row >= 0
        moved = row[mine] * length + positions[mine] % width
        order = torch.argsort(moved)
        targets[places] = moved[order]
        for name in names:
            if name != places:
                targets[name] = batch.targets[name][mine][order]
    return Batch(
        batch.input_ids[rows, :length],
        mask[:, :length],
        batch.token_type_ids[rows, :length],
        targets,
        [batch.rows[i] for i in rows.tolist()] if batch.rows else [],
    )


def split(batch: Batch, max_tokens: int) -> list[Batch]:
    """Cut a batch into micro-batches of at most `max_tokens` tokens each, padding counted.

    A sequence longer than `max_tokens` is a micro-batch of its own, and so is a larger group. A
    batch that fits is returned unchanged.
    """
    if batch.input_ids.numel() <= max_tokens:
        return [batch]
    lengths = batch.attention_mask.sum(1)
    groups = batch.targets.get("groups")
    if groups is None:
        parts = cut(lengths, torch.arange(batch.num_sequences), max_tokens)
    else:
        parts = cut_groups(lengths, members(groups), max_tokens)
    return [select(batch, rows) for rows in parts]


def deal(lengths: Tensor, processes: int) -> list[Tensor]:
    """Distribute the rows to processes: counts differ by at most one, real tokens are about equal.

    Sorted by length and dealt in snake order (0 1 2 2 1 0 0 1 …), so that no process always gets
    the longer of two neighbours.

    Args:
        lengths: int64 [B], real tokens of each sequence.
        processes: number of processes; those beyond B get no rows.

    Returns:
        For each process int64 [R], ascending.
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    turn = torch.arange(len(order))
    seat = turn % processes
    owner = torch.where(turn // processes % 2 == 0, seat, processes - 1 - seat)
    return [order[owner == process].sort().values for process in range(processes)]


def cut(lengths: Tensor, rows: Tensor, max_tokens: int) -> list[Tensor]:
    """Cut the share `rows` into micro-batches: at most `max_tokens` tokens each, padding counted,
    sequences of similar length together, as in :func:`split`.

    A sequence longer than `max_tokens` is a micro-batch of its own; an empty share has none.
    """
    if not len(rows):
        return []
    if len(rows) * int(lengths[rows].max()) <= max_tokens:
        return [rows]
    order = rows[torch.argsort(lengths[rows], descending=True, stable=True)]
    parts = []
    start = 0
    while start < len(order):
        size = max(1, max_tokens // int(lengths[order[start]]))
        parts.append(order[start : start + size].sort().values)
        start += size
    return parts


def members(groups: Tensor) -> list[Tensor]:
    """Find the rows of each group, int64 ascending, in the order of the groups.

    Args:
        groups: int64 [B], a number for each sequence; those of a group are adjacent.
    """
    _, sizes = torch.unique_consecutive(groups, return_counts=True)
    return list(torch.arange(len(groups)).split(sizes.tolist()))


def cut_groups(lengths: Tensor, together: list[Tensor], max_tokens: int) -> list[Tensor]:
    """Cut into micro-batches of whole groups: at most `max_tokens` tokens each, padding counted,
    groups of similar length together. A larger group is a micro-batch of its own.

    Args:
        lengths: int64 [B], real tokens of each sequence.
        together: the rows of each group.

    Returns:
        For each micro-batch the rows, int64 ascending.
    """
    longest = [int(lengths[rows].max()) for rows in together]
    parts: list[list[Tensor]] = []
    size = width = 0
    for index in sorted(range(len(together)), key=lambda index: -longest[index]):
        rows = together[index]
        if not parts or (size + len(rows)) * width > max_tokens:
            parts.append([])
            size, width = 0, longest[index]
        parts[-1].append(rows)
        size += len(rows)
    return [torch.cat(part).sort().values for part in parts]


def plan(batch: Batch, processes: int, max_tokens: int) -> list[list[Tensor]]:
    """Plan for each process the rows of its micro-batches, of at most `max_tokens` tokens each.

    Every process computes the same plan, from the lengths and the groups alone.
    """
    lengths = batch.attention_mask.sum(1)
    groups = batch.targets.get("groups")
    if groups is None:
        return [cut(lengths, rows, max_tokens) for rows in deal(lengths, processes)]
    together = members(groups)
    totals = torch.stack([lengths[rows].sum() for rows in together])
    return [
        cut_groups(lengths, [together[index] for index in share.tolist()], max_tokens)
        for share in deal(totals, processes)
    ]
