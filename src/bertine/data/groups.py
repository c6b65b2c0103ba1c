"""Sequences that are computed together: the choices of an example, over which one softmax goes.

A batch with ``targets["groups"]`` (int64 [B], equal numbers side by side) is dealt out to
processes and cut into micro-batches by whole groups; any other one by sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.data.shares import cut, deal


def members(groups: Tensor) -> list[Tensor]:
    """The rows of each group, int64 ascending, in the order in which the groups stand.

    Args:
        groups: int64 [B], a number for each sequence; those of a group stand side by side.
    """
    _, sizes = torch.unique_consecutive(groups, return_counts=True)
    return list(torch.arange(len(groups)).split(sizes.tolist()))


def cut_groups(lengths: Tensor, together: list[Tensor], max_tokens: int) -> list[Tensor]:
    """Micro-batches of whole groups: at most `max_tokens` tokens each, padding counted, groups of
    like length together. A group that is larger makes a micro-batch of its own.

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
    """For each process the rows of its micro-batches, of at most `max_tokens` tokens each.

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
