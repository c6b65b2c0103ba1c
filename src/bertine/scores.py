"""Write scores and rates as people read them."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

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
