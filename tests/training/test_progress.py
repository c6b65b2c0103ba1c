"""A run keeps to its time, and its rate comes down in it, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bertine.training.fit import Progress
from bertine.training.schedules import linear


def play(
    progress: Progress,
    takes: Callable[[float], float],
    *,
    evaluation: float = 0.0,
    every: int | None = None,
    now: float = 0.0,
) -> tuple[float, list[float]]:
    """Seconds that a run takes whose steps take what `takes` says of the time, and its rates."""
    rates = []
    while not progress.over:
        at = progress.begin(now)
        rates.append(linear(at, progress.steps, progress.steps // 10))
        now += takes(now)
        progress.end(now)
        if every and (progress.over or progress.passed(every)):
            progress.reserve(evaluation)
            now += evaluation
        assert len(rates) < 100_000
    return now, rates


def test_without_a_time_the_schedule_is_that_of_the_steps() -> None:
    _, rates = play(Progress(50), lambda now: 0.1 + now % 0.3)
    assert rates == [linear(step, 50, 5) for step in range(50)]
    _, rest = play(Progress(50, done=20), lambda now: 1.0)
    assert rest == rates[20:]
    assert Progress(50, done=50).over


@pytest.mark.parametrize("planned", [1, 20, 180, 1800, 18_000])
@pytest.mark.parametrize(
    "takes",
    [
        lambda now: 0.1,
        lambda now: 0.1 if now < 60 else 0.4,
        lambda now: 0.5 if now < 60 else 0.1,
        lambda now: 3.0 if now == 0 else 0.05 + 0.1 * (now % 1.0),
        lambda now: 0.4 if now % 60 > 30 else 0.1,
    ],
    ids=["even", "slower", "faster", "uneven", "in turns"],
)
def test_the_time_is_kept_and_the_rate_comes_down(
    planned: int, takes: Callable[[float], float]
) -> None:
    """However wrong the speed was that the steps were planned with."""
    seconds, rates = play(Progress(planned, 180.0, most=False), takes)
    assert 178 < seconds < 184
    assert rates[-1] < 0.01
    assert max(rates) > 0.97
    highest = rates.index(max(rates))
    assert all(a >= b for a, b in zip(rates[highest:], rates[highest + 1 :], strict=False))


def test_evaluations_are_counted_and_the_last_one_has_its_time() -> None:
    seconds, rates = play(
        Progress(900, 180.0, most=False), lambda now: 0.1, evaluation=4.0, every=90
    )
    assert 175 < seconds < 185
    assert rates[-1] < 0.01


def test_a_pause_at_the_end_costs_no_more_than_a_share_of_the_time() -> None:
    """A disk that hangs, say: the rate still comes down, in some more steps."""
    seconds, rates = play(
        Progress(1800, 180.0, most=False), lambda now: 0.1 if not 150 < now < 150.2 else 35.0
    )
    assert seconds < 1.03 * 185
    assert rates[-1] < 0.02


def test_no_more_steps_than_asked_for() -> None:
    progress = Progress(100, 180.0)
    seconds, rates = play(progress, lambda now: 0.1)
    assert (progress.done, round(seconds)) == (100, 10)
    assert rates == pytest.approx([linear(step, 100, 10) for step in range(100)])


def test_a_resumed_run_goes_on_where_its_schedule_stood() -> None:
    first = Progress(1800, 180.0, most=False)
    for step in range(300):
        first.begin(0.2 * step)
        first.end(0.2 * (step + 1))
    assert first.position == pytest.approx(600, rel=0.02)
    again = Progress(1800, 180.0, most=False, done=300, position=first.position)
    seconds, rates = play(again, lambda now: 0.2, now=60.0)
    assert 179 < seconds < 182
    assert rates[0] == pytest.approx(linear(600, 1800, 180), rel=0.05)
    assert rates[-1] < 0.01


def test_when_the_time_was_over_already_a_step_without_a_rate_ends_it() -> None:
    progress = Progress(1800, 180.0, most=False, done=300, position=600.0)
    _, rates = play(progress, lambda now: 0.2, now=400.0)
    assert rates == [0.0]
