"""Cutting a batch into micro-batches, so that a step of any size fits in memory.

Sequences are grouped by length, so that a micro-batch carries little padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.data.groups import cut_groups, members

#: Of X, the target ``X_positions`` is where among the flattened tokens ``X_labels`` are to be
#: told; every other target has one entry for each sequence.
_PLACES = "_positions"


def select(batch: Batch, rows: Tensor) -> Batch:
    """The sequences `rows` (int64 [R]) of `batch`, with padding beyond the longest cut away."""
    width = batch.input_ids.shape[1]
    mask = batch.attention_mask[rows]
    length = int(mask.sum(1).max())
    pairs = [
        (name, f"{name.removesuffix(_PLACES)}_labels")
        for name in batch.targets
        if name.endswith(_PLACES) and f"{name.removesuffix(_PLACES)}_labels" in batch.targets
    ]
    at_places = {name for pair in pairs for name in pair}
    targets: dict[str, Tensor] = {}
    for name, value in batch.targets.items():
        if name not in at_places:
            targets[name] = value[rows]
    for places, labels in pairs:
        positions = batch.targets[places]
        new_row = torch.full((batch.num_sequences,), -1)
        new_row[rows] = torch.arange(len(rows))
        row = new_row[positions // width]
        mine = row >= 0
        moved = row[mine] * length + positions[mine] % width
        order = torch.argsort(moved)
        targets[places] = moved[order]
        targets[labels] = batch.targets[labels][mine][order]
    return Batch(
        batch.input_ids[rows, :length],
        mask[:, :length],
        batch.token_type_ids[rows, :length],
        targets,
        [batch.rows[i] for i in rows.tolist()] if batch.rows else [],
    )


def split(batch: Batch, max_tokens: int) -> list[Batch]:
    """Micro-batches of at most `max_tokens` tokens each, padding counted.

    A sequence longer than `max_tokens` makes a micro-batch of its own, and so does a group of
    them that belong together (:mod:`bertine.data.groups`). A batch that fits is returned as it is.
    """
    if batch.input_ids.numel() <= max_tokens:
        return [batch]
    lengths = batch.attention_mask.sum(1)
    groups = batch.targets.get("groups")
    if groups is not None:
        together = members(groups)
        return [select(batch, rows) for rows in cut_groups(lengths, together, max_tokens)]
    order = torch.argsort(lengths, descending=True, stable=True)
    parts: list[Batch] = []
    start = 0
    while start < len(order):
        size = max(1, max_tokens // int(lengths[order[start]]))
        rows = order[start : start + size].sort().values
        parts.append(select(batch, rows))
        start += size
    return parts
