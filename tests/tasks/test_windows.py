"""Windows over words: every word is predicted once, nothing is too long, context is used."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.tasks.tagged_words import Window, cover


@dataclass(frozen=True)
class Case:
    lengths: list[int]
    low: int
    first: int
    last: int
    high: int
    room: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    room = draw(st.integers(1, 24))
    lengths = draw(st.lists(st.integers(0, room), max_size=40))
    bounds = sorted(draw(st.integers(0, len(lengths))) for _ in range(4))
    return Case(lengths, bounds[0], bounds[1], bounds[2], bounds[3], room)


def windows(case: Case) -> list[Window]:
    return cover(case.lengths, case.first, case.last, case.room, low=case.low, high=case.high)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(cases())
def test_every_word_is_predicted_once(case: Case) -> None:
    predicted = [word for w in windows(case) for word in range(w.first, w.last)]
    assert predicted == list(range(case.first, case.last))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(cases())
def test_windows_are_as_long_as_they_may_be_and_no_longer(case: Case) -> None:
    for window in windows(case):
        assert case.low <= window.begin <= window.first <= window.last <= window.end <= case.high
        size = sum(case.lengths[window.begin : window.end])
        assert size <= case.room
        # Not one more word would fit, on either side.
        if window.begin > case.low:
            assert size + case.lengths[window.begin - 1] > case.room
        if window.end < case.high:
            assert size + case.lengths[window.end] > case.room


def test_a_sentence_that_fits_is_one_window() -> None:
    assert cover([1, 2, 3], 0, 3, 6, low=0, high=3) == [Window(0, 3, 0, 3)]
    assert cover([], 0, 0, 6, low=0, high=0) == [Window(0, 0, 0, 0)]


def test_the_document_fills_what_is_left_on_both_sides() -> None:
    assert cover([1] * 20, 8, 12, 10, low=0, high=20) == [Window(5, 15, 8, 12)]
    # At the document's beginning all of it goes to the other side.
    assert cover([1] * 20, 0, 4, 10, low=0, high=20) == [Window(0, 10, 0, 4)]


def test_words_inside_a_long_sentence_have_context_on_both_sides() -> None:
    for window in cover([1] * 100, 0, 100, 20, low=0, high=100):
        assert window.last - window.first <= 10
        assert window.end - window.begin == 20
        assert window.first == 0 or window.first - window.begin >= 5
        assert window.last == 100 or window.end - window.last >= 5
