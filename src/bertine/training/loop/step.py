"""The gradients of one training step, computed in parts: by this process, or by it and others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from bertine.cores.short_waits import adapt_waiting
from bertine.data.batch import Batch
from bertine.data.checks import check_batch
from bertine.data.split import split
from bertine.models.dropout import stream
from bertine.models.gpu.compiled import compile_parts
from bertine.models.model import Model
from bertine.models.precision import autocast
from bertine.objectives.base import Loss, Term
from bertine.system.memory import keep_freed_memory
from bertine.training.distributed.parallel import Team
from bertine.training.distributed.world import World
from bertine.training.loop.device import send
from bertine.training.loop.optim import row_gradients

#: Tokens, padding counted, that are computed at once: of a CPU, of a GPU.
CPU_MICRO_BATCH, GPU_MICRO_BATCH = 16384, 65536


def accumulate(
    model: Model, objective: Loss, parts: list[Batch], *, dtype: torch.dtype, seeds: list[int]
) -> list[dict[str, Term]]:
    """Add the gradients of one step, computed in `parts`, to the parameters.

    Every term is the mean over all its targets in the step: sums are divided by the count of the
    whole step, not averaged per part, so any partition gives the large batch's gradient.

    Args:
        seeds: (seed, step) of the dropout; the part's index is added.
    """
    adapt_waiting()
    whole: dict[str, int] = {}
    for part in parts:
        for name, count in objective.counts(part).items():
            whole[name] = whole.get(name, 0) + count
    device = next(model.parameters()).device
    computed = []
    for index, part in enumerate(parts):
        stream.seed(*seeds, index)
        with autocast(dtype, device):
            terms = objective.terms(model, send(part, model, dtype))
        loss = sum(t.total * (t.weight / max(1, whole[name])) for name, t in terms.items())
        assert isinstance(loss, Tensor)
        loss.backward()
        computed.append(terms)
    return computed


class Stepper:
    """Computes the steps of a run: this process by itself, or as one of a team.

    Args:
        model: on this process's device; in a team the same in all processes.
        batch: a pure function of the step, of which a team looks at the first.
        world: the processes that compute each step together; all make a stepper.
        dtype: to compute in.
        max_tokens: of a micro-batch, padding counted; None: what suits the device.
        shard: divide weights, gradients and moments among the processes.
        compile: the parts of the model, on a GPU.

    Attributes:
        model: what is trained, and what an optimizer is made of: the model itself, or with `shard`
            a sharded copy of it.
        plain: the model as it was given; with `shard` it may be without weights.
        objective: what is minimized.
        max_tokens: of a micro-batch.
        config: of the model.
        dtype: computed in.
    """

    def __init__(
        self,
        model: Model,
        objective: Loss,
        batch: Callable[[int], Batch],
        *,
        world: World,
        dtype: torch.dtype,
        max_tokens: int | None = None,
        shard: bool = False,
        compile: bool | None = None,
    ) -> None:
        device = next(model.parameters()).device
        self.model, self.plain, self.objective = model, model, objective
        self.config, self.dtype = model.config, dtype
        self.max_tokens = max_tokens or (
            CPU_MICRO_BATCH if device.type == "cpu" else GPU_MICRO_BATCH
        )
        keep_freed_memory()
        self._team: Team | None = None
        if world.size > 1:
            sample = batch(0)
            check_batch(sample, model.config)
            self._team = Team(
                model,
                objective,
                world,
                max_tokens=self.max_tokens,
                dtype=dtype,
                shard=shard,
                sample=sample,
            )
            self.model = self._team.model
        if compile and device.type == "cuda" and not (self._team and shard):
            compile_parts(self.model)

    def training(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which steps are computed."""
        return row_gradients(self.plain) if self._team is None else contextlib.nullcontext()

    def accumulate(self, batch: Batch, seeds: list[int]) -> list[dict[str, Term]]:
        """Add the gradients of the whole `batch` to the parameters.

        Args:
            seeds: (seed, step) of the dropout.

        Returns:
            The terms of the micro-batches that this process computed.
        """
        if self._team is not None:
            return self._team.accumulate(batch, seeds)
        parts = split(batch, self.max_tokens)
        return accumulate(self.plain, self.objective, parts, dtype=self.dtype, seeds=seeds)

    def collect(self) -> None:
        """Bring the weights of a sharded model into the plain one of the first process; all
        processes must call it."""
        if self._team is not None:
            self._team.collect()

    def close(self) -> None:
        """Leave the model as it was given, with its new weights (with `shard`: in the first
        process); all processes must call it."""
        if self._team is not None:
            self._team.close()
