"""Compute the learning rate and the momentum as pure functions of the step.

The factor at step s is that of the middle of the interval [s, s + 1], so that no step has a rate of
zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from bertine.core.errors import BertineError

#: A function (step, steps, warmup_steps) → the factor on the rate, or the amount that is added.
Curve = Callable[[float, int, int], float]


#: A cycle begins and ends at these fractions of the highest rate (PyTorch's ``OneCycleLR``).
_CYCLE_START, _CYCLE_END = 1 / 25, 1 / 25e4


#: How far the momentum moves around its value in a cycle: 0.95, 0.85, 0.95 around 0.9 (Smith 2018).
_SWING = 0.05


def warmup(steps: int, warmup_steps: int | None, ratio: float) -> int:
    """Return how many of `steps` have a rising rate: `warmup_steps` if that is given, else the
    share `ratio`.

    Raises:
        BertineError: the share is not from 0 to 1.
    """
    if not 0.0 <= ratio <= 1.0:
        raise BertineError(f"warmup_ratio is {ratio:g}, but must be from 0 to 1")
    return round(ratio * steps) if warmup_steps is None else warmup_steps


def linear(step: float, steps: int, warmup_steps: int) -> float:
    """Return the factor of linear warm-up to 1 over `warmup_steps`, then linear decay to 0 at
    `steps`.

    As in google-research/bert, ``optimization.py``, with two differences. The first and the last
    step have a rate above zero, because the factor at step s is that of the middle of the interval
    [s, s + 1]. And the decay begins where the warm-up ends; in the published code it is counted
    from the first step, so that the rate drops by ``warmup_steps / steps`` after the warm-up (1% in
    the paper's schedule).
    """
    at = step + 0.5
    if at < warmup_steps:
        return at / warmup_steps
    return max(0.0, (steps - at) / max(1, steps - warmup_steps))


def constant(step: float, steps: int, warmup_steps: int) -> float:
    """Return the factor of linear warm-up to 1 over `warmup_steps`, then 1."""
    return min(1.0, (step + 0.5) / warmup_steps) if warmup_steps else 1.0


def cosine(step: float, steps: int, warmup_steps: int) -> float:
    """Return the factor of linear warm-up to 1 over `warmup_steps`, then half a cosine down to 0 at
    `steps` (Loshchilov and Hutter 2017, without restarts)."""
    at = step + 0.5
    if at < warmup_steps:
        return at / warmup_steps
    return _eased(1.0, 0.0, (at - warmup_steps) / max(1, steps - warmup_steps))


def one_cycle(step: float, steps: int, warmup_steps: int) -> float:
    """Return the factor that rises from 1/25 to 1 over `warmup_steps`, then falls to almost 0 at
    `steps`, both along half a cosine.

    From Smith 2018, "A disciplined approach to neural network hyper-parameters"; the curve is that
    of PyTorch's ``OneCycleLR``. The momentum moves in the opposite direction: :func:`momentum`.
    """
    at = step + 0.5
    if at < warmup_steps:
        return _eased(_CYCLE_START, 1.0, at / warmup_steps)
    return _eased(1.0, _CYCLE_END, (at - warmup_steps) / max(1, steps - warmup_steps))


def _one_cycle_momentum(step: float, steps: int, warmup_steps: int) -> float:
    at = step + 0.5
    if at < warmup_steps:
        return _eased(_SWING, -_SWING, at / warmup_steps)
    return _eased(-_SWING, _SWING, (at - warmup_steps) / max(1, steps - warmup_steps))


def _eased(start: float, end: float, share: float) -> float:
    """Interpolate between `start` and `end` along half a cosine; a `share` above 1 stays at the
    end."""
    return end + (start - end) * (1.0 + math.cos(math.pi * min(1.0, share))) / 2.0


#: The schedules by name; each returns the factor on the peak rate for (step, steps, warmup_steps).
SCHEDULES: dict[str, Curve] = {
    "linear": linear,
    "constant": constant,
    "cosine": cosine,
    "one-cycle": one_cycle,
}


#: The default share of the steps with a rising rate, by schedule. A cycle rises for half of its
#: steps, as Smith describes it; PyTorch's ``OneCycleLR`` rises for 0.3 of them.
WARMUP_RATIO = {"linear": 0.1, "constant": 0.1, "cosine": 0.1, "one-cycle": 0.5}


def schedule(name: str) -> Curve:
    """Return the schedule called `name`.

    Raises:
        BertineError: no such schedule.
    """
    if name not in SCHEDULES:
        raise BertineError(f"schedule {name!r} is not known; choose {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def momentum(name: str) -> Curve | None:
    """Return the function that the schedule called `name` adds to Adam's first beta; None if beta
    is constant."""
    return _one_cycle_momentum if name == "one-cycle" else None
