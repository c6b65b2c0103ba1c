"""Cutting a batch into micro-batches, so that a step of any size fits in memory.

Sequences are grouped by length, so that a micro-batch carries little padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.data.groups import cut_groups, members


def select(batch: Batch, rows: Tensor) -> Batch:
    """The sequences `rows` (int64 [R]) of `batch`, with padding beyond the longest cut away."""
    width = batch.input_ids.shape[1]
    mask = batch.attention_mask[rows]
    length = int(mask.sum(1).max())
    targets: dict[str, Tensor] = {}
    for name, value in batch.targets.items():
        if name in ("mlm_positions", "mlm_labels"):
            continue
        targets[name] = value[rows]
    if "mlm_positions" in batch.targets:
        positions = batch.targets["mlm_positions"]
        new_row = torch.full((batch.num_sequences,), -1)
        new_row[rows] = torch.arange(len(rows))
        row = new_row[positions // width]
        mine = row >= 0
        moved = row[mine] * length + positions[mine] % width
        order = torch.argsort(moved)
        targets["mlm_positions"] = moved[order]
        targets["mlm_labels"] = batch.targets["mlm_labels"][mine][order]
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
