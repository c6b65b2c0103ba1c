"""Scores that differ by rounding only come in the order of their rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertine.core.scores import ROUNDING, ranking

#: Scores that are further apart than rounding, and noise that is none of them.
STEPS = st.lists(st.integers(-30, 30), max_size=40)
NOISE = st.floats(-0.4, 0.4)
ANY = st.lists(
    st.one_of(
        st.integers(0, 200).map(lambda number: 1 + number * ROUNDING / 3),
        st.floats(width=32),
    ),
    max_size=40,
)


@given(STEPS, st.data())
def test_rounding_does_not_change_the_order(steps: list[int], data: st.DataObject) -> None:
    noise = data.draw(st.lists(NOISE, min_size=len(steps), max_size=len(steps)))
    exact = np.array(steps) / 10
    scores = exact + np.array(noise) * ROUNDING * np.maximum(1, np.abs(exact))
    best = sorted(range(len(steps)), key=lambda row: (-steps[row], row))
    assert ranking(scores).tolist() == best


@given(ANY, st.integers(0, 5) | st.integers(0, 50))
def test_the_best_few_are_the_first_of_all(scores: list[float], top: int) -> None:
    whole = ranking(scores)
    assert sorted(whole.tolist()) == list(range(len(scores)))
    assert ranking(scores, top).tolist() == whole[:top].tolist()


@given(ANY)
def test_scores_that_differ_by_more_keep_their_order(scores: list[float]) -> None:
    known = np.array([score for score in scores if np.isfinite(score)])
    ordered = known[ranking(known)]
    lowest = np.minimum.accumulate(ordered)
    assert (ordered - lowest <= 9 * ROUNDING * np.maximum(1, np.abs(ordered))).all()


def test_what_has_no_score_is_last() -> None:
    scores = [np.nan, -np.inf, 0.5, np.inf, -np.inf, np.nan, 0.5 + ROUNDING / 2]
    assert ranking(scores).tolist() == [3, 2, 6, 1, 4, 0, 5]


def test_many_scores_that_lie_close_are_ordered_as_they_are() -> None:
    """Each step is rounding, all of them together are not."""
    scores = np.arange(100) * ROUNDING / 2
    assert ranking(scores).tolist() == list(range(99, -1, -1))
    assert ranking(scores[:8]).tolist() == list(range(8))
