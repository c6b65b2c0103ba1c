"""Write scores and rates as people read them, and order what has scores, highest first."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike

from bertine.terms import TERMS

#: How the names of scores end that are no shares of 1: losses, and correlations, which may be
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

#: Scores that lie closer together, as a share of the larger one or of 1, differ by rounding only:
#: eight times fp32's machine epsilon. Each number of a vector is off by the root of the length of
#: its sums (about 30) times epsilon, and a cosine averages over hundreds of them; cosines of a text
#: in different batches are up to 2.4e-7 apart with bertine-en, 4.2e-7 in the size of bert-base.
ROUNDING = 2.0**-20
#: The same where numbers are computed in bf16 or 8 bits, or kept in fp16: bf16's epsilon is 65,536
#: times as large, but seldom is a number rounded to another one (with bertine-en up to 2e-5).
COARSE_ROUNDING = 2.0**-14
#: Scores that are linked over more than so many tolerances differ by more than rounding.
_WIDEST = 8


def is_share(name: str) -> bool:
    """Tell whether the score `name` is a share of 1, to be written in percent."""
    return not name.endswith(_NOT_SHARES)


def score_name(name: str, beside: Collection[str] = ()) -> str:
    """Name a score for people: "mlm_loss" → "MLM loss".

    Args:
        name: of the metric.
        beside: the other metrics of the same report: beside a micro F1, of many labels, accuracy
            is the share of the examples all of whose labels are right.
    """
    if name == "accuracy" and "micro_f1" in beside:
        return "all labels right"
    titles = {name: term.title for name, term in TERMS.items()} | {"f1": "F1"}
    return " ".join(titles.get(word, word) for word in name.split("_"))


def score_text(name: str, value: float | None) -> str:
    """Write a score: a share in percent, a perplexity with two decimals, others with four, if they
    are not large; ``-`` for None."""
    if value is None:
        return "-"
    if name.endswith("perplexity"):
        return f"{value:,.2f}"
    if is_share(name) and 0 <= value <= 1:
        return f"{value:.2%}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4f}"


def hundredfold(value: float | None) -> str:
    """Write a score times 100, as the paper's tables have it; ``-`` for None."""
    return "-" if value is None else f"{100 * value:.2f}"


def exact_rate(rate: float) -> str:
    """Write a learning rate as papers do, ``3e-5``, with all its digits: another rate, another
    text."""
    return f"{Decimal(repr(rate)):e}" if 0 < rate < 0.01 else repr(rate)


def rate_text(rate: float) -> str:
    """Write a learning rate with at most two significant digits: ``"3e-5"``, ``"2.4e-5"``."""
    mantissa, exponent = f"{rate:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def ranking(
    scores: ArrayLike, top: int | None = None, *, tolerance: float = ROUNDING
) -> np.ndarray:
    """Order scores, the highest first, and those that differ by rounding only by their index.

    A model gives the same text other last bits in another batch, so that a plain sort orders equal
    texts by chance. Here a score is equal to the next lower one when they differ by at most
    `tolerance` times the larger size of 1 and the score, and to all that such steps lead to; so two
    scores of one text are always in the same group, whatever stands between them. Where steps lead
    further than eight times the tolerance, the scores are too dense to be told apart from rounding,
    and are ordered as they are; so no two scores that differ by more change places.

    Args:
        scores: [N], NaN last.
        top: how many are wanted, the first of the whole order; None: all.
        tolerance: :data:`ROUNDING`, or :data:`COARSE_ROUNDING` for numbers coarser than fp32.

    Returns:
        Indices int64 [N], or [top] where that is fewer.
    """
    values = np.asarray(scores)
    if top is None or not 0 < 8 * top < len(values):  # it is as quick to sort them all
        among = np.arange(len(values))
    else:
        lowered = -values
        lowered.partition(top - 1)
        least = -float(lowered[top - 1])
        # All that may be in the group of the last one; NaN, for which nothing is less, too.
        reach = 2 * (_WIDEST + 1) * tolerance * max(1.0, abs(least))
        among = np.flatnonzero(~(values < least - reach))
    values = values[among].astype(np.float64)
    order = np.argsort(-values, kind="stable")
    values = values[order]
    with np.errstate(invalid="ignore"):  # infinity less infinity
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
