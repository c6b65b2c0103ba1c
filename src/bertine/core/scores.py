"""Format and rank scores, and compute their confidence intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bertine.core.loss_names import TERMS

# Format: write scores and rates for people, and rank items by score, highest first.

#: Suffixes of the names of scores that are not shares of 1: losses, and correlations, which may be
#: negative.
_NOT_SHARES = (
    "loss",
    "perplexity",
    "matthews",
    "pearson",
    "spearman",
    "correlation",
    "error",
    "cost",
    "size",
)

#: Scores that differ by at most this share of the larger one or of 1 differ only by rounding: eight
#: times fp32's machine epsilon. Each number of a vector is off by epsilon times the root of the
#: length of its sums (about 30), and a cosine averages over hundreds of them; cosines of a text in
#: different batches differ by up to 2.4e-7 with a ModernBERT of width 256, 4.2e-7 in the size of
#: bert-base.
ROUNDING = 2.0**-20
#: The same for numbers computed in bf16 or 8 bits, or stored in fp16: bf16's epsilon is 65,536
#: times as large, but few numbers round differently (with that ModernBERT up to 2e-5).
COARSE_ROUNDING = 2.0**-14
#: A chain of equal scores that is wider than this many tolerances is more than rounding.
_WIDEST = 8


def is_share(name: str) -> bool:
    """Return whether the score `name` is a share of 1, to be written in percent."""
    return not name.endswith(_NOT_SHARES)


def score_name(name: str, others: Collection[str] = ()) -> str:
    """Name a score for people: "mlm_loss" → "MLM loss".

    Args:
        name: the metric's name.
        others: the other metrics of the same report: in a report with a multi-label micro F1,
            accuracy is the share of the examples whose labels are all right.
    """
    if name == "accuracy" and "micro_f1" in others:
        return "all labels right"
    titles = {name: term.title for name, term in TERMS.items()} | {"f1": "F1"}
    return " ".join(titles.get(word, word) for word in name.split("_"))


def score_text(name: str, value: float | None) -> str:
    """Format a score: a share in percent, a perplexity with two decimals, others with four unless
    they are large; ``-`` for None."""
    if value is None:
        return "-"
    if name.endswith("perplexity"):
        return f"{value:,.2f}"
    if is_share(name) and 0 <= value <= 1:
        return f"{value:.2%}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4f}"


def hundredfold(value: float | None) -> str:
    """Format a score times 100, as tables in papers do; ``-`` for None."""
    return "-" if value is None else f"{100 * value:.2f}"


def rate_text(rate: float) -> str:
    """Format a learning rate with at most two significant digits: ``"3e-5"``, ``"2.4e-5"``."""
    mantissa, exponent = f"{rate:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def ranking(
    scores: ArrayLike, top: int | None = None, *, tolerance: float = ROUNDING
) -> np.ndarray:
    """Order scores, highest first; order those that differ only by rounding by their index.

    A model's output for the same text differs in the last bits between batches, so a plain sort
    would order equal texts by chance. Here a score equals the next lower one if they differ by at
    most `tolerance` times max(1, the score's size), and it equals all scores that a chain of such
    steps reaches; so two scores of one text are always in the same group, regardless of scores
    between them. If a chain is wider than eight times the tolerance, the scores are too dense to
    separate from rounding, and are ordered as they are; so two scores that differ by more never
    swap.

    Args:
        scores: [N], NaN last.
        top: number of indices wanted, from the start of the order; None: all.
        tolerance: :data:`ROUNDING`, or :data:`COARSE_ROUNDING` for numbers coarser than fp32.

    Returns:
        Indices int64 [N], or [top] where that is fewer.
    """
    values = np.asarray(scores)
    if top is None or not 0 < 8 * top < len(values):  # sorting all is as fast
        among = np.arange(len(values))
    else:
        lowered = -values
        lowered.partition(top - 1)
        least = -float(lowered[top - 1])
        # All scores that may be in the last one's group; also NaN, which compares false.
        reach = 2 * (_WIDEST + 1) * tolerance * max(1.0, abs(least))
        among = np.flatnonzero(~(values < least - reach))
    values = values[among].astype(np.float64)
    order = np.argsort(-values, kind="stable")
    values = values[order]
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        allowed = tolerance * np.maximum(1.0, np.abs(values))
        steps = values[:-1] - values[1:]
        equal = (steps <= allowed[:-1]) & (steps < np.inf)
    if equal.any():
        begins = np.append(True, ~equal)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(values)) - 1
        with np.errstate(invalid="ignore"):
            wide = values[first] - values[last] > _WIDEST * allowed[first]
        group = begins.cumsum() - 1
        place = np.where(wide[group], np.arange(len(order)), order)
        order = order[np.lexsort((place, group))]
    return among[order[:top]]


# Statistics: intervals, and whether a difference is more than chance.

#: Quantile of the normal distribution for 95%.
_Z = 1.959963984540054
#: A share is higher by more than one standard error by chance in 16 of 100 cases. If this many of
#: the same examples change from wrong to right, and none the other way, the probability of chance
#: is 1 in 2^3; for two examples 1 in 4, for one 1 in 2. That is the sign test, or McNemar's for two
#: shares of the same examples (Psychometrika 12, 1947, 153-157). The standard error alone is too
#: small here: for a share of 0 or 1 it is 0.
_FEWEST_EXAMPLES = 3
#: Suffixes of the names of correlations; other scores are shares of 1.
_CORRELATIONS = ("pearson", "spearman", "correlation", "matthews")
#: Quantile of Student's distribution with 19 degrees of freedom for 95%.
_T_19 = 2.093024054408263


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Compute the 95% interval of the share `correct` / `total` (Wilson 1927): within 0 to 1, and
    valid for few examples and for shares near the ends. (0, 1) when `total` is 0."""
    if not 0 <= correct <= total:
        raise ValueError(f"{correct} of {total} is not a share")
    return share_interval(correct / total if total else 0.0, total)


def share_interval(share: float, total: int) -> tuple[float, float]:
    """Compute Wilson's 95% interval of a share of `total` that need not be a whole number of
    examples, such as a mean of shares. (0, 1) when `total` is 0."""
    if total == 0:
        return 0.0, 1.0
    z = _Z
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = (z / (1 + z * z / total)) * math.sqrt(
        share * (1 - share) / total + z * z / (4 * total * total)
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def enough_examples(difference: float, count: int) -> bool:
    """Return whether two shares of the same `count` examples differ by enough examples that chance
    is unlikely, even if all of those examples favour the same one."""
    return round(difference * count, 6) >= _FEWEST_EXAMPLES


def beyond_error(metric: str, better: float, than: float, count: int) -> bool:
    """Return whether a score exceeds another one, measured on `count` examples, by more than the
    standard error of the latter as a share (or as a correlation)."""
    if metric.endswith(_CORRELATIONS):
        error = (1 - than * than) / math.sqrt(max(1, count - 1))
    else:
        error = math.sqrt(max(0.0, than * (1 - than)) / max(1, count))
    return better > than + error


def clearly_better(metric: str, best: float, last: float, count: int) -> bool:
    """Return whether a score beats another on the same `count` examples by more than chance: by
    more than a standard error, and by more than one or two lucky examples.

    Among many epochs some score best by luck. On 30 held-out examples the epoch with the best score
    was on average three points worse on further examples than the last one, whose rate had decayed
    (``docs/results.md``).
    """
    if not beyond_error(metric, best, last, count):
        return False
    if metric.endswith("matthews"):  # for two balanced classes: twice the accuracy minus 1
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
    """Return the name of the best baseline if it beats a model by more than chance
    (:func:`clearly_better`).

    Args:
        metrics: those of the model.
        judged: the metrics whose mean decides.
        baselines: with ``name`` and ``metrics``, as in ``scores.json``. A baseline with a false
            ``may_win`` is not considered: either the model has seen the examples on which both were
            judged, or it is the head alone, which was compared with the model on more examples
            and is no better.
        count: the number of examples that all were judged on, if the baselines do not give it.
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
    """Compute the 95% interval of a correlation within (-1, 1) of more than 3 pairs of numbers
    (Fisher 1921: its inverse hyperbolic tangent is nearly normal); for rank correlations it is a
    little too narrow."""
    middle, half = math.atanh(value), _Z / math.sqrt(count - 3)
    return math.tanh(middle - half), math.tanh(middle + half)


def jackknife_interval(value: float, without: Sequence[float]) -> tuple[float, float]:
    """Compute the 95% interval of any score, or of a difference of two scores (jackknife).

    Args:
        value: the score on all examples.
        without: the 20 scores, each without one of 20 equal parts of the examples.
    """
    if len(without) != 20:
        raise ValueError(f"{len(without)} scores are given, but 20 are needed")
    mean = statistics.fmean(without)
    variance = 19 / 20 * sum((item - mean) ** 2 for item in without)
    half = _T_19 * math.sqrt(variance)
    return value - half, value + half
