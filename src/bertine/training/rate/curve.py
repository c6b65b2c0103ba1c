"""Smooth the curve of a learning-rate range test, and choose a rate by it.

The test (Smith 2015, "Cyclical Learning Rates for Training Neural Networks"): the rate rises
exponentially, step by step, and the loss is watched: flat, then falling, then rising again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bertine.scores import rate_text

#: Share that the average of the losses keeps from step to step: it spans about ten steps.
SMOOTHING = 0.9
#: The test is over when the smoothed loss is so many times the lowest one.
DIVERGED = 4.0
#: The slope at a rate is that of the points within this factor below and above it, half a decade.
_HALF_WINDOW = 10**0.25
#: Steps whose mean loss is that before there is anything to be seen.
_FIRST = 10
#: A fall is clear from so many times on what losses differ by from batch to batch: with losses that
#: do nothing but differ, the lowest of the smoothed ones is half as far down.
_CLEAR = 1.25
#: A rise is one from so many standard errors of the smoothed loss on: the lowest of several is two
#: below their mean by chance, and another one two above it.
_RISEN = 4.0


@dataclass
class RateCurve:
    """The losses of a range test, smoothed as they come.

    The smoothed loss is the exponential moving average with its bias corrected. It lags behind,
    so it is set at the rate that is averaged in the same way (of logarithms): where the losses
    lay on a straight line over the logarithm of the rate, the smoothed ones lie on that line.

    Attributes:
        warmup: steps at the beginning in which the rate stays at its lowest. They count in the
            averages, and are no points of the curve.
        rates: of each step.
        losses: of each step, before its update.
        at: the averaged rates.
        smoothed: the averaged losses.
        diverged: whether the loss or its gradient was not finite, or the smoothed loss more than
            four times the lowest; the test ended there.
    """

    warmup: int = 0
    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    smoothed: list[float] = field(default_factory=list)
    diverged: bool = False
    _sums: tuple[float, float] = (0.0, 0.0)

    def add(self, rate: float, loss: float) -> bool:
        """Add a step; return whether the test goes on."""
        if not math.isfinite(loss):
            self.diverged = True
            return False
        by_rate, by_loss = self._sums
        by_rate = SMOOTHING * by_rate + (1 - SMOOTHING) * math.log(rate)
        by_loss = SMOOTHING * by_loss + (1 - SMOOTHING) * loss
        self._sums = by_rate, by_loss
        share = 1 - SMOOTHING ** (len(self.losses) + 1)
        self.rates.append(rate)
        self.losses.append(loss)
        self.at.append(math.exp(by_rate / share))
        self.smoothed.append(by_loss / share)
        if len(self.losses) > self.warmup:
            self.diverged = self.smoothed[-1] > DIVERGED * min(self.smoothed[self.warmup :])
        return not self.diverged

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rates and smoothed losses of the test proper, fp64 [n] each, the rates
        ascending."""
        return np.array(self.at[self.warmup :]), np.array(self.smoothed[self.warmup :])

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as JSON values."""
        return {
            "warmup_steps": self.warmup,
            "rates": self.rates,
            "losses": self.losses,
            "smoothed_at": self.at,
            "smoothed": self.smoothed,
            "diverged": self.diverged,
        }


@dataclass(frozen=True)
class Landmarks:
    """Three rates that a curve shows.

    Attributes:
        steepest: where the smoothed loss falls fastest over the logarithm of the rate.
        lowest: where the smoothed loss is lowest.
        rises: the highest rate up to which the smoothed loss stays near its lowest, as far as its
            noise lets tell. Before it rises, a curve is often flat, and where on the flat the
            lowest point stands is chance.
        ends: whether the test ended before the loss rose.
    """

    steepest: float
    lowest: float
    rises: float
    ends: bool = False


def landmarks_of(curve: RateCurve) -> Landmarks | None:
    """Read the landmarks off a curve; None where it does not fall: where its lowest smoothed loss
    is not below the mean loss of the warm-up and the first ten steps by clearly more than losses
    differ from batch to batch anyway."""
    rates, smoothed = curve.points()
    if len(rates) < 2 * _FIRST:
        return None
    first = curve.warmup + _FIRST
    # Smoothed losses of so few steps that one of them decides are no minimum.
    end = _FIRST + int(smoothed[_FIRST:].argmin())
    until = curve.warmup + max(end, len(rates) // 2)
    noise = float(np.std(np.diff(curve.losses[: until + 1]))) / math.sqrt(2)
    fall = float(np.mean(curve.losses[:first])) - float(smoothed[end])
    if fall <= max(_CLEAR * noise, 1e-9):
        return None
    error = noise * math.sqrt((1 - SMOOTHING) / (1 + SMOOTHING))
    risen = np.flatnonzero(smoothed[end:] > smoothed[end] + _RISEN * error)
    last = end + (int(risen[0]) - 1 if len(risen) else len(smoothed) - 1 - end)
    x = np.log10(rates)
    # To the lowest point, not beyond: what falls again after a rise has been thrown about.
    slopes = [_slope(x, smoothed, middle) for middle in x[: end + 1]]
    steepest = rates[int(np.argmin(slopes))]
    ends = not len(risen) and not curve.diverged
    return Landmarks(float(steepest), float(rates[end]), float(rates[last]), ends)


def advise(landmarks: Landmarks | None, usual: float) -> tuple[float, str]:
    """Advise a rate to train with, and say why.

    It is the `usual` one of such a model, unless the curve clearly speaks against it. Where the
    loss rises at that rate, a third of `rises`, but at least half of the usual rate if the loss
    does not rise there; where `rises` is six times as high or more, twice the usual rate. A test
    that ended below the usual rate, while the loss did not rise, says nothing against it.

    A test of a hundred steps is noisy: from seed to seed and with the number of examples, `rises`
    differs by more than the best rate does. Half of the usual rate where the loss did not yet rise
    there cost four points (``docs/results.md``, "Defaults").

    Returns:
        the rate, with one significant digit, and the reason.
    """
    if landmarks is None:
        return usual, "the usual rate of such a model, since the loss did not fall clearly"
    if usual >= landmarks.rises and landmarks.ends:
        rate, reason = usual, "the usual rate of such a model, which the test did not reach"
    elif usual >= landmarks.rises:
        rate = min(max(landmarks.rises / 3, usual / 2), landmarks.rises)
        reason = f"the loss rises at the usual rate of such a model, {rate_text(usual)}"
    elif landmarks.rises / 3 >= 2 * usual:
        rate = 2 * usual
        reason = "twice the usual rate of such a model, since the loss does not rise even at six "
        reason += "times the usual one"
    else:
        rate, reason = usual, "the usual rate of such a model, and the loss does not rise there"
    return float(f"{rate:.0e}"), reason


def _slope(x: np.ndarray, y: np.ndarray, middle: float) -> float:
    """Fit a straight line to the points about `middle` by least squares and return its slope; 0
    where they are fewer than three."""
    near = np.abs(x - middle) <= math.log10(_HALF_WINDOW)
    if near.sum() < 3:
        return 0.0
    apart = x[near] - x[near].mean()
    spread = float((apart**2).sum())
    return float((apart * y[near]).sum()) / spread if spread > 0 else 0.0
