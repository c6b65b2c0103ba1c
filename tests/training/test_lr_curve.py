"""What is read off the curve of a range test."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bertine.training.lr_find import DIVERGED, Landmarks, RateCurve, advise, landmarks_of

RATES = np.geomspace(1e-7, 1e-2, 100).tolist()


def curve_of(losses: list[float], warmup: int = 0) -> RateCurve:
    curve = RateCurve(warmup)
    for rate, loss in zip([RATES[0]] * warmup + RATES, losses, strict=True):
        if not curve.add(rate, loss):
            break
    return curve


def valley(rate: float) -> float:
    """Falls fastest at 3.2e-5, is lowest at 1e-3, then rises."""
    at = math.log10(rate)
    return 2.0 - 1.0 / (1.0 + math.exp(-6 * (at + 4.5))) + math.exp(6 * (at + 1.5))


def test_the_smoothed_curve_does_not_lag() -> None:
    """Losses that lie on a line over the logarithm of the rate stay on it, also after a warm-up;
    a plain moving average would stand nine steps behind."""
    losses = [5.0 - 0.3 * math.log(rate) for rate in RATES]
    for warmup in (0, 10):
        curve = curve_of([losses[0]] * warmup + losses, warmup)
        at, smoothed = curve.points()
        assert len(at) == len(RATES)
        np.testing.assert_allclose(smoothed, 5.0 - 0.3 * np.log(at), rtol=1e-9)
        assert np.all(np.diff(at) > 0)


def test_the_landmarks_of_an_exact_curve() -> None:
    curve = curve_of([valley(rate) for rate in RATES])
    landmarks = landmarks_of(curve)
    assert landmarks is not None
    assert 1.6e-5 < landmarks.steepest < 6.4e-5
    at, smoothed = curve.points()
    assert landmarks.lowest == at[smoothed.argmin()]
    assert landmarks.lowest <= landmarks.rises < 5e-3
    assert valley(landmarks.rises) < valley(1e-3) + 0.02


def test_noise_moves_the_rise_little() -> None:
    exact = landmarks_of(curve_of([valley(rate) for rate in RATES]))
    draw = np.random.default_rng(0)
    noisy = landmarks_of(curve_of([valley(r) + 0.1 * draw.standard_normal() for r in RATES]))
    assert exact is not None
    assert noisy is not None
    assert abs(math.log10(noisy.rises / exact.rises)) < 0.5


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_gives_no_landmarks(seed: int) -> None:
    draw = np.random.default_rng(seed)
    losses = (1.0 + 0.2 * draw.standard_normal(110)).tolist()
    assert landmarks_of(curve_of(losses, warmup=10)) is None


def test_a_loss_that_only_rises_gives_no_landmarks() -> None:
    assert landmarks_of(curve_of([1.0 + 10 * rate for rate in RATES])) is None


def test_what_falls_after_a_rise_is_not_taken_for_learning() -> None:
    """At rates that throw the weights about, the loss may fall steeply from where it was thrown."""
    losses = [valley(rate) for rate in RATES]
    for number in range(85, 100):
        losses[number] = 4.0 - 0.1 * (number - 85)
    landmarks = landmarks_of(curve_of(losses))
    assert landmarks is not None
    assert landmarks.steepest < 1e-4


@pytest.mark.parametrize("seed", range(5))
def test_where_the_flat_before_the_rise_is_lowest_is_chance_and_does_not_count(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def flat(rate: float) -> float:
        """Falls about 1e-5, is flat for a decade and a half, and rises from 1e-3 on."""
        at = math.log10(rate)
        return 1.0 + 0.8 / (1.0 + math.exp(8 * (at + 5))) + max(0.0, at + 3) * 2

    landmarks = landmarks_of(
        curve_of([flat(rate) + 0.05 * draw.standard_normal() for rate in RATES])
    )
    assert landmarks is not None
    assert 3e-4 < landmarks.rises < 3e-3
    assert not landmarks.ends


@pytest.mark.parametrize(
    ("rises", "usual", "advised", "why"),
    [
        (3e-4, 2e-4, 2e-4, "does not rise there"),
        (1e-3, 2e-4, 2e-4, "does not rise there"),
        (1.8e-4, 2e-4, 1e-4, "rises at the usual rate"),  # half of it
        (1e-4, 2e-4, 1e-4, "rises at the usual rate"),
        (1e-2, 2e-4, 2e-4, "does not rise there"),  # however far above it rises
        (5e-5, 2e-4, 5e-5, "rises at the usual rate"),  # but never where the loss rises
        (None, 2e-4, 2e-4, "did not fall clearly"),
    ],
)
def test_the_advice_corrects_the_usual_rate(
    rises: float | None, usual: float, advised: float, why: str
) -> None:
    rate, reason = advise(None if rises is None else Landmarks(1e-5, 5e-5, rises), usual)
    assert rate == pytest.approx(advised)
    assert why in reason


def test_a_test_that_ends_below_the_usual_rate_says_nothing_against_it() -> None:
    rate, reason = advise(Landmarks(1e-6, 1e-5, 1e-5, ends=True), 2e-4)
    assert rate == 2e-4
    assert "did not reach" in reason


# The end of a test


def test_it_ends_where_the_smoothed_loss_is_four_times_the_lowest() -> None:
    losses = [1.0] * 60 + [100.0] * 40
    curve = curve_of(losses)
    assert curve.diverged
    assert len(curve.losses) == 61
    assert curve.smoothed[-1] > DIVERGED
    # A single loss that is as high is no divergence: batches differ.
    assert not curve_of([1.0] * 60 + [20.0] + [1.0] * 39).diverged


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_it_and_is_no_point(loss: float) -> None:
    curve = curve_of([1.0] * 50 + [loss] * 50)
    assert curve.diverged
    assert len(curve.points()[0]) == 50
    assert all(map(math.isfinite, curve.smoothed))
