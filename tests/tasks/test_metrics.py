"""Scores against formulas written out by hand, independent of the libraries that compute them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.tasks.metrics import classification_scores, official_score, regression_scores


def counted(truth: list[str], guesses: list[str], positive: str) -> tuple[int, int, int, int]:
    """True and false positives, false and true negatives."""
    pairs = [(t == positive, g == positive) for t, g in zip(truth, guesses, strict=True)]
    return (
        pairs.count((True, True)),
        pairs.count((False, True)),
        pairs.count((True, False)),
        pairs.count((False, False)),
    )


def ranks(values: list[float]) -> list[float]:
    """Ranks from 1, the mean of theirs for equal values."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def correlation(a: list[float], b: list[float]) -> float:
    x, y = np.array(a) - np.mean(a), np.array(b) - np.mean(b)
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


@pytest.mark.slow
@settings(deadline=None)  # the first call imports the library
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_two_classes_by_their_formulas(pairs: list[tuple[bool, bool]]) -> None:
    truth = ["1" if t else "0" for t, _ in pairs]
    guesses = ["1" if g else "0" for _, g in pairs]
    tp, fp, fn, tn = counted(truth, guesses, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = classification_scores(truth, guesses, ("0", "1"))
    assert scores["accuracy"] == pytest.approx((tp + tn) / len(pairs))
    assert scores["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0)
    below = float(np.sqrt(float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))))
    matthews = (tp * tn - fp * fn) / below if below else 0.0
    assert scores["matthews"] == pytest.approx(matthews, abs=1e-12)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=30))
def test_three_classes_by_their_formulas(pairs: list[tuple[str, str]]) -> None:
    truth, guesses = [t for t, _ in pairs], [g for _, g in pairs]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = classification_scores(truth, guesses, ("a", "b", "c"))
    assert "f1" not in scores
    each = []
    for name in sorted({*truth, *guesses}):
        tp, fp, fn, _ = counted(truth, guesses, name)
        each.append(2 * tp / (2 * tp + fp + fn))
    assert scores["macro_f1"] == pytest.approx(np.mean(each))
    # Gorodkin 2004: the correlation of the two matrices of indicators.
    x = np.array([[t == name for name in "abc"] for t in truth], dtype=float)
    y = np.array([[g == name for name in "abc"] for g in guesses], dtype=float)
    x, y = x - x.mean(0), y - y.mean(0)
    below = np.sqrt((x * x).sum() * (y * y).sum())
    expected = (x * y).sum() / below if below > 1e-9 else 0.0
    assert scores["matthews"] == pytest.approx(expected, abs=1e-9)


NUMBERS = st.integers(-20, 20).map(lambda number: number / 4)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_correlations_by_their_formulas(pairs: list[tuple[float, float]]) -> None:
    truth, guesses = [t for t, _ in pairs], [g for _, g in pairs]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = regression_scores(truth, guesses)
    if len(set(truth)) == 1 or len(set(guesses)) == 1:
        assert scores["pearson"] == scores["spearman"] == 0.0
    else:
        assert scores["pearson"] == pytest.approx(correlation(truth, guesses), abs=1e-9)
        ranked = correlation(ranks(truth), ranks(guesses))
        assert scores["spearman"] == pytest.approx(ranked, abs=1e-9)
    errors = [g - t for t, g in pairs]
    assert scores["mean_squared_error"] == pytest.approx(np.mean(np.square(errors)))
    assert scores["mean_absolute_error"] == pytest.approx(np.mean(np.abs(errors)))


def test_the_score_of_a_task_is_the_mean_of_its_metrics() -> None:
    metrics = {"f1": 0.9, "accuracy": 0.8, "loss": 3.0}
    assert official_score(metrics, ("f1", "accuracy")) == pytest.approx(0.85)
    assert official_score(metrics, ("f1",)) == 0.9
    with pytest.raises(BertineError, match="there is no score 'pearson'; there are f1"):
        official_score(metrics, ("pearson",))
