"""How long a step takes on this machine: asked before a run that has a time and no steps."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
from collections.abc import Callable

import torch

from bertine.data.batch import Batch
from bertine.data.loader import batches_ahead
from bertine.data.micro import split
from bertine.models.compiled import compile_parts
from bertine.models.memory import keep_freed_memory
from bertine.models.model import Model
from bertine.objectives.base import Objective
from bertine.training.device import wait_for
from bertine.training.fit import CPU_MICRO_BATCH, GPU_MICRO_BATCH, accumulate
from bertine.training.optim import AdamW, row_gradients
from bertine.training.parallel import Team
from bertine.training.world import World

#: Steps before the measurement: memory is taken, products are compiled.
_WARM_UP = 3
_LEAST, _MOST = 3, 50


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
    """The median time of a training step of a copy of `model`, in seconds: batch, forward and
    backward pass, update.

    Args:
        seconds: for the measurement, about; at least three steps are measured.
        world: the processes that compute a step together; all must call this, and get the first
            one's figure.
        shard: as in :func:`bertine.training.fit.fit`.
        compile, workers: as in :class:`~bertine.training.fit.FitConfig`.
    """
    keep_freed_memory()
    world = world or World()
    twin = copy.deepcopy(model).train()
    device = next(twin.parameters()).device
    limit = max_tokens_per_micro_batch or (
        CPU_MICRO_BATCH if device.type == "cpu" else GPU_MICRO_BATCH
    )
    team: Team | None = None
    if world.size > 1:
        sample = batch(0)
        team = Team(
            twin, objective, world, max_tokens=limit, dtype=dtype, shard=shard, sample=sample
        )
    trained = twin if team is None else team.model
    if compile and device.type == "cuda" and not (team and shard):
        compile_parts(trained)
    optimizer = AdamW(trained)
    times: list[float] = []
    ends = time.monotonic() + seconds
    steps = _WARM_UP + _MOST
    with (
        row_gradients(twin) if team is None else contextlib.nullcontext(),
        batches_ahead(batch, 0, steps, workers=workers) as next_batch,
    ):
        for step in range(steps):
            began = time.perf_counter()
            if team is None:
                parts = split(next_batch(step), limit)
                accumulate(twin, objective, parts, dtype=dtype, seeds=[0, step])
            else:
                team.accumulate(next_batch(step), [0, step])
            optimizer.clipped_step(1e-6, 1.0)
            optimizer.zero_grad(set_to_none=True)
            wait_for(device)
            if step >= _WARM_UP:
                times.append(time.perf_counter() - began)
            if len(times) >= _LEAST and world.any(time.monotonic() > ends):
                break
    return world.from_main(statistics.median(times))
