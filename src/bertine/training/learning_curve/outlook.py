"""What twice as many labels would bring: the errors' power law, at the end of the curve.

Errors mostly fall as a power of the number of labels (Hestness et al. 2017, arXiv 1712.00409), so
their logarithm is a line over the logarithm of that number. The line is fitted to the last few
numbers of labels only, where it need not hold from the first label on. Where the interval of its
slope is so wide that twice as many labels might double the errors, it says nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

#: Numbers of labels that the line is fitted to.
_LAST = 4
#: Errors are not taken to be smaller than this.
_LEAST_ERROR = 1e-3
#: Squares of what the line leaves over: less is rounding.
_LEAST_REST = 1e-12
#: A line whose slope may be this is none: errors that double with twice as many labels.
_STEEPEST = 1.0


@dataclass(frozen=True)
class Outlook:
    """The gain of the score by twice as many labels.

    Attributes:
        gain: as a share of 1.
        low, high: its 95% interval; of what the line says, where that is a line at all.
        count: of labels that there are now.
    """

    gain: float
    low: float
    high: float
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "gain_by_doubling": self.gain,
            "interval": [self.low, self.high],
            "num_labels_now": self.count,
        }


def outlook(points: Sequence[Sequence[tuple[int, float]]]) -> Outlook | None:
    """Fit the line.

    Args:
        points: of one way the draws of each number of labels: how many examples each had, and its
            score as a share of 1.

    Returns:
        What doubling the largest number would bring; None where there are fewer than two numbers,
        no more draws than the line has parameters, draws that lie too far apart for a line, or so
        much on one, as where all is right, that they say nothing of how far it may be wrong.
    """
    means = {round(statistics.fmean(count for count, _ in draws)): draws for draws in points}
    sizes = sorted(means)[-_LAST:]
    used = [(size, score) for size in sizes for _, score in means[size]]
    if len(sizes) < 2 or len(used) < 3:
        return None
    x = np.log([count for count, _ in used])
    y = np.log([max(_LEAST_ERROR, 1.0 - score) for _, score in used])
    centre = x - x.mean()
    spread = float(centre @ centre)
    slope = float(centre @ y) / spread
    rest = y - y.mean() - slope * centre
    freedom = len(used) - 2
    if float(rest @ rest) < _LEAST_REST:
        return None
    error = math.sqrt(float(rest @ rest) / freedom / spread)
    half = float(stats.t.ppf(0.975, freedom)) * error
    if not slope + half < _STEEPEST:
        return None
    now = min(1.0, math.exp(float(y.mean() + slope * (math.log(sizes[-1]) - x.mean()))))

    def gain(of_slope: float) -> float:
        # No more errors than examples.
        return max(now - 1.0, now * (1.0 - 2.0**of_slope))

    return Outlook(gain(slope), gain(slope + half), gain(slope - half), sizes[-1])
