"""Learning-rate schedules, as pure functions of the step.

The factor at step s is that of the middle of the interval [s, s + 1], so that no step is wasted on
a rate of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from bertine.errors import BertineError

#: (step, steps, warmup_steps) → a factor, or what is added.
Curve = Callable[[float, int, int], float]

#: A cycle begins at this part of the highest rate and ends at that one (PyTorch's ``OneCycleLR``).
_CYCLE_START, _CYCLE_END = 1 / 25, 1 / 25e4
#: How far the momentum swings about its value in a cycle: 0.95, 0.85, 0.95 about 0.9 (Smith 2018).
_SWING = 0.05


def warmup(steps: int, warmup_steps: int | None, ratio: float) -> int:
    """Return how many of `steps` have a rising rate: `warmup_steps`, where that is given, else the
    share `ratio`.

    Raises:
        BertineError: the share is not from 0 to 1.
    """
    if not 0.0 <= ratio <= 1.0:
        raise BertineError(f"warmup_ratio is {ratio:g}, but must be from 0 to 1")
    return round(ratio * steps) if warmup_steps is None else warmup_steps


def linear(step: float, steps: int, warmup_steps: int) -> float:
    """Linear warm-up to 1 over `warmup_steps`, then linear decay to 0 at `steps`.

    As in google-research/bert, ``optimization.py``, but counted so that the first step has a
    rate above zero and the last one too: the factor at step s is that of the middle of the
    interval [s, s + 1]. And the decay begins where the warm-up ends; there it is counted from the
    first step, so that the rate drops by ``warmup_steps / steps`` after the warm-up (1% in the
    paper's schedule).
    """
    at = step + 0.5
    if at < warmup_steps:
        return at / warmup_steps
    return max(0.0, (steps - at) / max(1, steps - warmup_steps))


def constant(step: float, steps: int, warmup_steps: int) -> float:
    """Linear warm-up to 1 over `warmup_steps`, then 1."""
    return min(1.0, (step + 0.5) / warmup_steps) if warmup_steps else 1.0


def cosine(step: float, steps: int, warmup_steps: int) -> float:
    """Linear warm-up to 1 over `warmup_steps`, then half a cosine down to 0 at `steps`
    (Loshchilov and Hutter 2017, without restarts)."""
    at = step + 0.5
    if at < warmup_steps:
        return at / warmup_steps
    return _eased(1.0, 0.0, (at - warmup_steps) / max(1, steps - warmup_steps))


def one_cycle(step: float, steps: int, warmup_steps: int) -> float:
    """Rise from a 25th up to 1 over `warmup_steps`, then down to almost nothing at `steps`, both by
    half a cosine (Smith 2018, "A disciplined approach to neural network hyper-parameters"; the
    curve is that of PyTorch's ``OneCycleLR``). The momentum goes the other way:
    :func:`momentum`."""
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
    """Between `start` and `end` along half a cosine; `share` beyond 1 stays at the end."""
    return end + (start - end) * (1.0 + math.cos(math.pi * min(1.0, share))) / 2.0


#: Name → factor on the peak rate, from (step, steps, warmup_steps).
SCHEDULES: dict[str, Curve] = {
    "linear": linear,
    "constant": constant,
    "cosine": cosine,
    "one-cycle": one_cycle,
}

#: The share of the steps that a schedule rises for where nobody says.
WARMUP_RATIO = {"linear": 0.1, "constant": 0.1, "cosine": 0.1, "one-cycle": 0.3}


def schedule(name: str) -> Curve:
    """Return the schedule called `name`.

    Raises:
        BertineError: no such schedule.
    """
    if name not in SCHEDULES:
        raise BertineError(f"schedule {name!r} is not known; choose {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def momentum(name: str) -> Curve | None:
    """Return what the schedule called `name` adds to Adam's first beta; None where that stays."""
    return _one_cycle_momentum if name == "one-cycle" else None
