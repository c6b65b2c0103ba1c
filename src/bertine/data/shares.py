"""How a step's batch is dealt out to processes, and each share cut into micro-batches.

Every process knows every sequence's length, so each can work out everybody's part without asking.
"""

from __future__ import annotations

import torch
from torch import Tensor


def deal(lengths: Tensor, processes: int) -> list[Tensor]:
    """The rows of each process: numbers that differ by at most one, real tokens about equal.

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
    """The micro-batches of the share `rows`: at most `max_tokens` tokens each, padding counted,
    sequences of like length together, as :func:`bertine.data.micro.split` makes them.

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
