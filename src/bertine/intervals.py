"""How far a score on a sample may be from the score on everything."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

#: Of the normal distribution, for 95%.
_Z = 1.959963984540054
#: A share is higher by more than one standard error by chance in 16 of 100 cases. Where this many
#: of the same examples are right in place of wrong, and none the other way round, chance does that
#: in 1 of 2^3 cases; two examples in 1 of 4, one in 1 of 2. That is the sign test, or McNemar's for
#: two shares of the same examples (Psychometrika 12, 1947, 153-157). A standard error alone is too
#: small here: for a share of 0 or 1 it is 0.
_FEWEST_EXAMPLES = 3
#: How the names of scores end that are correlations; others are shares of 1.
_CORRELATIONS = ("pearson", "spearman", "correlation", "matthews")
#: Of Student's distribution with 19 degrees of freedom, for 95%.
_T_19 = 2.093024054408263


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Return the 95% interval of a share, `correct` of `total` (Wilson 1927): never outside 0 to 1,
    and sound for few examples and for shares near the ends. (0, 1) when `total` is 0."""
    if not 0 <= correct <= total:
        raise ValueError(f"{correct} of {total} is not a share")
    return share_interval(correct / total if total else 0.0, total)


def share_interval(share: float, total: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share of `total` that need not be a whole number of them,
    such as a mean of shares. (0, 1) when `total` is 0."""
    if total == 0:
        return 0.0, 1.0
    z = _Z
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = (z / (1 + z * z / total)) * math.sqrt(
        share * (1 - share) / total + z * z / (4 * total * total)
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def enough_examples(difference: float, count: int) -> bool:
    """Tell whether two shares of the same `count` examples differ by so many of them that it is
    hardly chance, even if all those examples speak for the same one of the two."""
    return round(difference * count, 6) >= _FEWEST_EXAMPLES


def beyond_error(metric: str, better: float, than: float, count: int) -> bool:
    """Tell whether a score is higher than another, which was measured on `count` examples, by more
    than the standard error of the latter as a share (or as a correlation)."""
    if metric.endswith(_CORRELATIONS):
        error = (1 - than * than) / math.sqrt(max(1, count - 1))
    else:
        error = math.sqrt(max(0.0, than * (1 - than)) / max(1, count))
    return better > than + error


def clearly_better(metric: str, best: float, last: float, count: int) -> bool:
    """Tell whether a score is better than another on the same `count` examples by more than chance:
    by more than a standard error, and by so many examples that it cannot be one or two lucky ones.

    Of many epochs some score best by luck. On 30 held-out examples the epoch with the best score
    was on mean three points worse on further examples than the last one, whose rate had come down
    (``docs/results.md``).
    """
    if not beyond_error(metric, best, last, count):
        return False
    if metric.endswith("matthews"):  # of two balanced classes: twice the accuracy, less 1
        return enough_examples((best - last) / 2, count)
    if metric.endswith(_CORRELATIONS):
        # Fisher's z of a correlation has the variance 1 / (n - 3) (Metron 1, 1921, 3-32).
        return count > 3
    return enough_examples(best - last, count)


def better_baseline(
    metrics: Mapping[str, float],
    judged: Sequence[str],
    baselines: Sequence[Mapping[str, Any]],
    count: int,
) -> str | None:
    """Name the best of the baselines where it is better than a model by more than chance
    (:func:`clearly_better`).

    Args:
        metrics: of the model.
        judged: the metrics whose mean decides.
        baselines: with ``name`` and ``metrics``, as ``scores.json`` has them. One with a false
            ``may_win`` does not: the model has seen what both were judged on; or it is the head
            alone, which was compared with the model on more examples and is no better.
        count: of the examples that all were judged on, where the baselines do not say it.
    """
    if not judged or not set(judged) <= set(metrics):
        return None

    def mean(scores: Mapping[str, float]) -> float:
        return sum(float(scores[name]) for name in judged) / len(judged)

    means = {
        str(baseline["name"]): mean(baseline["metrics"])
        for baseline in baselines
        if baseline.get("may_win", True) and set(judged) <= set(baseline.get("metrics") or {})
    }
    own = mean(metrics)
    best = max(means, key=lambda name: means[name], default=None)
    count = max((int(baseline.get("num_judged") or count) for baseline in baselines), default=0)
    if best is None or not clearly_better(judged[0], means[best], own, count):
        return None
    return best


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Compute the 95% interval of the mean of 30 or more independent values (as if normal)."""
    mean = statistics.fmean(values)
    half = _Z * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def correlation_interval(value: float, count: int) -> tuple[float, float]:
    """Compute the 95% interval of a correlation, within (-1, 1), of more than 3 pairs of numbers
    (Fisher 1921: its inverse hyperbolic tangent is nearly normal); of ranks it is a little too
    narrow."""
    middle, half = math.atanh(value), _Z / math.sqrt(count - 3)
    return math.tanh(middle - half), math.tanh(middle + half)


def jackknife_interval(value: float, without: Sequence[float]) -> tuple[float, float]:
    """Compute the 95% interval of a score of any kind, or of a difference of two (jackknife).

    Args:
        value: the score on all examples.
        without: the 20 scores on the examples without each of 20 parts of one size.
    """
    if len(without) != 20:
        raise ValueError(f"{len(without)} scores are given, but 20 are needed")
    mean = statistics.fmean(without)
    variance = 19 / 20 * sum((each - mean) ** 2 for each in without)
    half = _T_19 * math.sqrt(variance)
    return value - half, value + half
