"""How long a step takes on this machine: asked before a run that has a time and no steps."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable

import torch

from bertine.data.batch import Batch
from bertine.data.loader import batches_ahead
from bertine.models.model import Model
from bertine.objectives.base import Objective
from bertine.training.device import wait_for
from bertine.training.optim import AdamW
from bertine.training.step import Stepper
from bertine.training.world import World

#: Steps before the measurement: memory is taken.
_WARM_UP = 3
#: Steps that are measured. With batches of many sizes it takes some tens of steps until most
#: products have been compiled.
_LEAST, _MOST = 3, 200


def seconds_per_step(
    model: Model,
    objective: Objective,
    batch: Callable[[int], Batch],
    *,
    dtype: torch.dtype,
    max_tokens_per_micro_batch: int | None = None,
    seconds: float = 10.0,
    world: World | None = None,
    shard: bool = False,
    compile: bool | None = None,
    workers: int = 0,
) -> float:
    """The time of a training step of a copy of `model`, in seconds: batch, forward and backward
    pass, update. It is the median of the later half of the steps that are measured: the first
    ones meet new shapes, for which products are compiled.

    Args:
        seconds: for the measurement, about; at least three steps are measured.
        world: the processes that compute a step together; all must call this, and get the first
            one's figure.
        shard: as in :func:`bertine.training.fit.fit`.
        compile, workers: as in :class:`~bertine.training.fit.FitConfig`.
    """
    world = world or World()
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
    optimizer = AdamW(stepper.model)
    times: list[float] = []
    ends = time.monotonic() + seconds
    steps = _WARM_UP + _MOST
    with (
        stepper.training(),
        batches_ahead(batch, 0, steps, workers=workers) as next_batch,
    ):
        for step in range(steps):
            began = time.perf_counter()
            stepper.accumulate(next_batch(step), [0, step])
            optimizer.clipped_step(1e-6, 1.0)
            optimizer.zero_grad(set_to_none=True)
            wait_for(device)
            if step >= _WARM_UP:
                times.append(time.perf_counter() - began)
            if len(times) >= _LEAST and world.any(time.monotonic() > ends):
                break
    return world.from_main(statistics.median(times[len(times) // 2 :]))
