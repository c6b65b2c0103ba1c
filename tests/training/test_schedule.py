"""Schedules, and the small things around the loop."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from bertine.core.errors import BertineError
from bertine.training.fit import FitConfig
from bertine.training.schedules import (
    constant,
    cosine,
    linear,
    momentum,
    one_cycle,
    schedule,
    warmup,
)


def test_linear_rises_to_one_and_falls_to_zero() -> None:
    steps, warmup = 100, 20
    factors = [linear(step, steps, warmup) for step in range(steps)]
    assert max(factors) == pytest.approx(1, abs=0.03)
    assert factors.index(max(factors)) in (19, 20)
    rising = [b - a for a, b in pairwise(factors[:20])]
    falling = [a - b for a, b in pairwise(factors[20:])]
    assert rising == pytest.approx([1 / 20] * 19)
    assert falling == pytest.approx([1 / 80] * 79)
    # No step is wasted on a rate of zero.
    assert factors[0] == pytest.approx(1 / 40)
    assert factors[-1] == pytest.approx(1 / 160)
    # The mean is that of the triangle.
    assert math.fsum(factors) / steps == pytest.approx(0.5)


@pytest.mark.parametrize("warmup", [0, 1, 7, 10, 50])
@pytest.mark.parametrize("name", ["linear", "constant", "cosine", "one-cycle"])
def test_every_rate_is_positive_and_at_most_the_peak(name: str, warmup: int) -> None:
    factors = [schedule(name)(step, 10, warmup) for step in range(10)]
    assert all(0 < factor <= 1 for factor in factors)


def test_constant_stays_after_the_warm_up() -> None:
    assert [constant(step, 10, 4) for step in range(6)] == [0.125, 0.375, 0.625, 0.875, 1, 1]
    assert constant(0, 10, 0) == 1


def test_a_cosine_falls_from_one_to_zero_through_a_half() -> None:
    assert cosine(9.5, 110, 10) == pytest.approx(1)
    assert cosine(59.5, 110, 10) == pytest.approx(0.5)
    assert cosine(34.5, 110, 10) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert cosine(109.5, 110, 10) == pytest.approx(0)
    assert cosine(200, 110, 10) == pytest.approx(0)  # a run with a time limit may be past its end
    assert cosine(4.5, 110, 10) == pytest.approx(0.5)


def test_a_cycle_is_pytorchs() -> None:
    """Rate and momentum, at the middle of each step."""
    import torch

    steps = 1000
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=1.0, betas=(0.9, 0.999))
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=steps + 1)
    swing = momentum("one-cycle")
    assert swing is not None
    rise = round(0.3 * (steps + 1)) - 1
    for step in range(steps + 1):
        rate, beta = optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"][0]
        assert one_cycle(step - 0.5, steps, rise) == pytest.approx(rate, abs=5e-3)
        assert 0.9 + swing(step - 0.5, steps, rise) == pytest.approx(beta, abs=1e-3)
        optimizer.step()
        if step < steps:
            theirs.step()
    assert momentum("linear") is None


def test_an_unknown_schedule_is_named_with_the_known() -> None:
    with pytest.raises(BertineError, match=r"schedule 'cubic' is not known; choose linear, const"):
        schedule("cubic")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0, but must be at least 1"),
        ({"max_tokens_per_micro_batch": 0}, "max_tokens_per_micro_batch is 0"),
        ({"adam_beta2": 1.0}, r"adam_beta2 is 1, but must be in \[0, 1\)"),
        ({"learning_rate": -1e-3}, "learning_rate is -0.001, but must be 0 or more"),
        ({"max_grad_norm": float("inf")}, "must be 0 or more and finite"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"schedule": "liner"}, "schedule 'liner' is not known"),
        ({"precision": "fp8"}, "precision 'fp8' is not known"),
    ],
)
def test_impossible_values_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BertineError, match=message):
        FitConfig(**{"steps": 1, "learning_rate": 1e-3, **changes})


def test_the_warm_up_is_of_steps_or_a_share_of_them() -> None:
    assert warmup(200, None, 0.1) == 20
    assert warmup(200, 7, 0.1) == 7
    for share in (-1.0, 2.0, float("nan")):
        with pytest.raises(BertineError, match=r"warmup_ratio is .* but must be from 0 to 1"):
            warmup(200, None, share)
