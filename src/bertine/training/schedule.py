"""Learning-rate schedules, as pure functions of the step."""

from __future__ import annotations

from collections.abc import Callable

from bertine.errors import BertineError


def linear(step: float, steps: int, warmup_steps: int) -> float:
    """Linear warm-up to 1 over `warmup_steps`, then linear decay to 0 at `steps`.

    As in google-research/bert, ``optimization.py``, but counted so that the first step has a
    rate above zero and the last one too: the factor at step s is that of the middle of the
    interval [s, s + 1].
    """
    at = step + 0.5
    if at < warmup_steps:
        return at / warmup_steps
    return max(0.0, (steps - at) / max(1, steps - warmup_steps))


def constant(step: float, steps: int, warmup_steps: int) -> float:
    """Linear warm-up to 1 over `warmup_steps`, then 1."""
    return min(1.0, (step + 0.5) / warmup_steps) if warmup_steps else 1.0


#: Name → factor on the peak rate, from (step, steps, warmup_steps).
SCHEDULES: dict[str, Callable[[float, int, int], float]] = {"linear": linear, "constant": constant}


def schedule(name: str) -> Callable[[float, int, int], float]:
    """The schedule called `name`.

    Raises:
        BertineError: no such schedule.
    """
    if name not in SCHEDULES:
        raise BertineError(f"schedule {name!r} is not known; choose {', '.join(SCHEDULES)}")
    return SCHEDULES[name]
