"""Divide a step's batch among processes, and cut each share into micro-batches that fit in memory.

Sequences are grouped by length, so that a micro-batch carries little padding. Every process knows
every sequence's length, so each works out everybody's part without asking.

Some sequences are computed together: the choices of an example, over which one softmax goes. A
batch with ``targets["groups"]`` (int64 [B], equal numbers side by side) is divided and cut by whole
groups, any other one by sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bertine.data.batch import Batch

#: Of X, the target ``X_positions`` is where among the flattened tokens ``X_labels`` are to be
#: predicted, and every other target ``X_…`` has one entry for each of these; targets without such a
#: name have one for each sequence.
_PLACES = "_positions"


def select(batch: Batch, rows: Tensor) -> Batch:
    """Take the sequences `rows` (int64 [R]) of `batch`, and cut away padding beyond the longest."""
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

    A sequence longer than `max_tokens` makes a micro-batch of its own, and so does a group of
    them that belong together. A batch that fits is returned as it is.
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
    """Deal the rows to processes: numbers that differ by at most one, real tokens about equal.

    Sorted by length and dealt in snake order (0 1 2 2 1 0 0 1 …), so that no process always gets
    the longer of two neighbours.

    Args:
        lengths: int64 [B], real tokens of each sequence.
        processes: how many; those beyond B get nothing.

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
    sequences of like length together, as :func:`split` makes them.

    A sequence longer than `max_tokens` makes a micro-batch of its own; an empty share has none.
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
    """Find the rows of each group, int64 ascending, in the order in which the groups stand.

    Args:
        groups: int64 [B], a number for each sequence; those of a group stand side by side.
    """
    _, sizes = torch.unique_consecutive(groups, return_counts=True)
    return list(torch.arange(len(groups)).split(sizes.tolist()))


def cut_groups(lengths: Tensor, together: list[Tensor], max_tokens: int) -> list[Tensor]:
    """Cut into micro-batches of whole groups: at most `max_tokens` tokens each, padding counted,
    groups of like length together. A group that is larger makes a micro-batch of its own.

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

    Every process works out the same plan, from the lengths and the groups alone.
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
