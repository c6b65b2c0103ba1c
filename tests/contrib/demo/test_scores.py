"""The demo's scores: intervals that count articles, and differences on the same passages."""

from __future__ import annotations

import numpy as np
import pytest

from bertine.contrib.demo.texts import DemoScores
from bertine.core.scores import mean_interval


def scores(shares: np.ndarray, seed: int, trainings: int = 2) -> DemoScores:
    """Answers to three passages of each article, right with its share."""
    draw = np.random.default_rng(seed)
    articles = [f"article {number // 3}" for number in range(3 * len(shares))]
    right = draw.random((trainings, len(articles))) < np.repeat(shares, 3)
    return DemoScores("a model", articles, right.tolist())


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    held = 0
    for trial in range(400):
        shares = draw.beta(2, 2, size=100)  # articles differ, so passages are not independent
        low, high = scores(shares, trial).interval
        held += low <= 0.5 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_more_passages_of_the_same_articles_are_not_more_articles() -> None:
    shares = np.tile([0.0, 1.0], 50)
    low, high = scores(shares, 0).interval
    again = scores(shares, 0, trainings=20).interval
    assert high - low == pytest.approx(again[1] - again[0])
    assert high - low > 0.19


def test_a_difference_is_surer_than_two_scores() -> None:
    draw = np.random.default_rng(1)
    hard = draw.beta(1, 1, size=200) * 0.9
    one, other = scores(hard, 2), scores(hard + 0.06, 3)
    gain, low, high = other.ahead_of(one)
    assert gain == pytest.approx(other.accuracy - one.accuracy)
    assert low < gain < high
    assert low > 0, "the same articles are as hard for both"
    assert one.interval[1] > other.interval[0], "which the intervals alone do not show"
    assert one.ahead_of(one)[1:] == (0.0, 0.0)


def test_an_interval_stays_within_what_shares_may_be() -> None:
    always = DemoScores("a model", [f"{number}" for number in range(40)], [[True] * 40])
    assert always.interval == (1.0, 1.0)
    assert mean_interval([0.0, 1.0] * 50) == pytest.approx((0.4015, 0.5985), abs=1e-4)
