"""How long a step takes on this machine: measured before a run that has a time and no steps, to
plan with."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bertine.data.batch import Batch
from bertine.data.loader import batches_ahead
from bertine.models.model import Model
from bertine.models.precision import resolve_precision
from bertine.objectives.base import Loss
from bertine.options.optimization import Updates
from bertine.terminal.console import say
from bertine.training.distributed.world import World
from bertine.training.loop.device import wait_for
from bertine.training.loop.optimizers.named import optimizer_for
from bertine.training.loop.step import Stepper

#: Steps before the measurement: memory is taken.
_WARM_UP = 3
#: Steps that are measured. With batches of many sizes it takes some tens of steps until most
#: products have been compiled.
_LEAST, _MOST = 3, 200
#: Seconds of a run's time that go into measuring the speed, and the share of it, at the most.
_MEASURING, _MEASURING_SHARE = 20.0, 0.01


def seconds_per_step(
    model: Model,
    objective: Loss,
    batch: Callable[[int], Batch],
    *,
    dtype: torch.dtype,
    max_tokens_per_micro_batch: int | None = None,
    seconds: float = 10.0,
    world: World | None = None,
    shard: bool = False,
    compile: bool | None = None,
    workers: int = 0,
    updates: Updates | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Measure the seconds of a training step of a copy of `model`: batch, forward and backward
    pass, update. The time is the median of the later half of the steps that are measured: the first
    ones meet new shapes, for which products are compiled.

    Args:
        seconds: for the measurement, about; at least three steps are measured.
        world: the processes that compute a step together; all must call this, and get the first
            one's figure.
        shard: as in :func:`bertine.training.loop.fit.fit`.
        compile, workers: as in :class:`~bertine.training.loop.fit.FitConfig`.
        updates: the optimizer and its settings; None: AdamW.
        clock: gives the time in seconds.
    """
    world, updates = world or World(), updates or Updates()
    twin = copy.deepcopy(model).train()
    device = next(twin.parameters()).device
    stepper = Stepper(
        twin,
        objective,
        batch,
        world=world,
        dtype=dtype,
        max_tokens=max_tokens_per_micro_batch,
        shard=shard,
        compile=compile,
    )
    optimizer = optimizer_for(stepper.model, updates, dtype)
    times: list[float] = []
    ends = clock() + seconds
    steps = _WARM_UP + _MOST
    with (
        stepper.training(),
        batches_ahead(batch, 0, steps, workers=workers) as next_batch,
    ):
        for step in range(steps):
            began = clock()
            stepper.accumulate(next_batch(step), [0, step])
            optimizer.clipped_step(1e-6, 1.0)
            optimizer.zero_grad(set_to_none=True)
            wait_for(device)
            if step >= _WARM_UP:
                times.append(clock() - began)
            if len(times) >= _LEAST and world.any(clock() > ends):
                break
    return world.from_main(statistics.median(times[len(times) // 2 :]))


def steps_for_hours(
    hours: float,
    model: Model,
    objective: Loss,
    batches: Sequence[Callable[[int], Batch]],
    shares: Sequence[float],
    *,
    began: float,
    precision: str,
    world: World,
    **options: Any,
) -> int:
    """Return the steps that this machine does in the time, if it stays as fast as it is now.

    Args:
        hours: of the whole run, the measurement counted.
        batches: of each phase, as functions of the step.
        shares: of all steps that each phase has.
        began: the time of :func:`time.monotonic` when the time of the run began.
        precision: as in :class:`~bertine.training.loop.fit.FitConfig`.
        options: for :func:`seconds_per_step`.
    """
    dtype = resolve_precision(precision, next(model.parameters()).device)
    measuring = min(_MEASURING, _MEASURING_SHARE * 3600 * hours) / len(batches)
    step_seconds = sum(
        share
        * seconds_per_step(
            model, objective, batch, dtype=dtype, seconds=measuring, world=world, **options
        )
        for batch, share in zip(batches, shares, strict=True)
    )
    spent = time.monotonic() - latest_beginning(began, hours)
    left = world.from_main(3600 * hours - spent)
    steps = max(1, int(left / step_seconds))
    say(f"a step takes {1000 * step_seconds:.0f} ms at present: about {steps:,} steps in the time")
    return steps


def latest_beginning(began: float, hours: float) -> float:
    """Return when the time of a run began: at `began`, but where getting ready took longer than
    half of the time, that half is left for training."""
    return max(began, time.monotonic() - 1800 * hours)
