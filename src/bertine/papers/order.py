"""Compare the order of the rows of a table with the published one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import kendalltau

#: Tables that are drawn from the seeds for an interval.
_DRAWS = 1000


@dataclass(frozen=True)
class Order:
    """How far two orders of the same rows agree.

    Attributes:
        tau: Kendall's τ-b: 1 where they are the same, -1 where one is the other backwards.
        low, high: the 95% interval over the seeds; both `tau` where each row has one.
        rows: how many were compared.
    """

    tau: float
    low: float
    high: float
    rows: int


def kendall(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Compute Kendall's τ-b of two lists of numbers; None where all numbers of one are equal."""
    tau = float(kendalltau(ours, theirs).statistic)
    return None if math.isnan(tau) else tau


def compare_order(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[str, float], seed: int = 0
) -> Order | None:
    """Compare the means of the scores of rows with published scores.

    Args:
        ours: the scores of each row, one a seed.
        theirs: the published score of each row; rows that only one of the two has are left out.
        seed: of what is drawn for the interval: as many seeds of each row as it has, with
            replacement (the bootstrap).

    Returns:
        None of fewer than three rows, or where all of them have the same score.
    """
    rows = [row for row in ours if row in theirs and ours[row]]
    if len(rows) < 3:
        return None
    published = [theirs[row] for row in rows]
    tau = kendall([statistics.fmean(ours[row]) for row in rows], published)
    if tau is None:
        return None
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(_DRAWS if any(len(ours[row]) > 1 for row in rows) else 0):
        means = [float(rng.choice(np.array(ours[row]), len(ours[row])).mean()) for row in rows]
        value = kendall(means, published)
        drawn.append(0.0 if value is None else value)
    low, high = np.percentile(drawn, [2.5, 97.5]).tolist() if drawn else (tau, tau)
    return Order(tau, low, high, len(rows))
