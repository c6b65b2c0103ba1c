"""Compute a training step in several processes: each computes a share of the batch.

There are two ways, both PyTorch's own. Replicas (``DistributedDataParallel``): every process has
all weights and moments, and gradients are summed over the processes during the backward pass.
Shards (FSDP2, ``fully_shard``): every process has a part of weights, gradients and moments; the
weights of a layer are gathered when it is computed, and its gradients are summed in the process
that owns them.

The sum over the processes of ``total / count of the whole step`` is the large batch's loss, as in
accumulation: the gradient is that of one process with the same batch, up to rounding.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.corpora.batch import Batch, select
from bertine.corpora.batch import plan as plan_of
from bertine.models.dropout import stream
from bertine.models.heads import Model
from bertine.models.layers import has_flash_attention
from bertine.models.precision import autocast
from bertine.objectives.losses import Loss, Term
from bertine.training.distributed import DistContext
from bertine.training.distributed import whole as whole_tensor

# GPU: send batches while the GPU computes, and avoid reading its numbers.
#
# The host only queues work; it waits for the GPU when a line of the log, an evaluation or a
# checkpoint is due. On a CPU nothing changes.


def send(batch: Batch, model: Model, dtype: torch.dtype) -> Batch:
    """Send `batch` to the device of `model`.

    On a GPU the copy is from page-locked memory, on a separate stream, so that it overtakes the
    products that are still queued. The batch includes its packing, if flash attention can compute
    in `dtype` there and the backbone accepts it.
    """
    device = next(model.parameters()).device
    if device.type != "cuda":
        return batch.to(device)
    flash = has_flash_attention(device, dtype, model.config.head_size)
    if flash and model.backbone.takes_packing:
        batch = batch.packed()
    side, current = _side_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(side):
        moved = batch.pin_memory().to(device)
    current.wait_stream(side)
    for tensor in moved.tensors():
        # Allocated on one stream and used on the other: must not be freed while it is in use.
        tensor.record_stream(current)
    return moved


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def wait_for(device: torch.device) -> None:
    """Wait until all queued work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Norms:
    """The norms of a run's gradients. On a CPU they are checked after every step; on other devices
    when something is written, because a check waits for the device.

    Args:
        learning_rate: for the message.
    """

    def __init__(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        self._last: float | Tensor = 0.0
        self._worst: Tensor | None = None

    def add(self, norm: float | Tensor, step: int) -> None:
        """Record the norm of `step` (counted from 1).

        Raises:
            BertineError: it is on the host, and not finite.
        """
        self._last = norm
        if isinstance(norm, Tensor):
            # The maximum of NaN and anything is NaN.
            self._worst = norm if self._worst is None else torch.maximum(self._worst, norm)
        else:
            self.look(step)

    def look(self, step: int) -> float:
        """Return the last norm, after `step` steps.

        Raises:
            BertineError: this norm, or one since the last check, is not finite.
        """
        worst = self._last if self._worst is None else self._worst
        self._worst = None
        if not math.isfinite(float(worst)):
            raise BertineError(
                f"step {step}: the gradient is not finite; lower the learning rate "
                f"({self._learning_rate:g}) or use {option('precision', 'fp32')}, then start again "
                "or resume from the last checkpoint"
            )
        return float(self._last)


class _Terms(nn.Module):
    """The objective and the model as one module, which PyTorch's engines wrap.

    It returns tuples and not :class:`Term`: FSDP searches its output for tensors only in PyTorch's
    own containers.
    """

    def __init__(self, model: Model, objective: Loss) -> None:
        super().__init__()
        self.model = model
        self._objective = objective

    def forward(self, part: Batch) -> dict[str, tuple[Any, ...]]:
        terms = self._objective.terms(self.model, part)
        return {
            name: (t.total, t.count, t.correct, t.weight, dict(t.shares))
            for name, t in terms.items()
        }


class DataParallel:
    """The processes of `world`, which train `model` on `objective` together.

    Args:
        model: on this process's device; the same in all.
        max_tokens: of a micro-batch.
        dtype: to compute in.
        shard: divide weights, gradients and moments among the processes.
        sample: a batch, used to find the parameters that the objective trains.

    Attributes:
        model: the module that is trained: the model itself, or with `shard` a sharded copy of it;
            the optimizer gets its parameters. With `shard`, the model itself is emptied in all
            processes but the first; see :meth:`collect`.
    """

    def __init__(
        self,
        model: Model,
        objective: Loss,
        world: DistContext,
        *,
        max_tokens: int,
        dtype: torch.dtype,
        shard: bool,
        sample: Batch,
    ) -> None:
        self._plain, self._objective, self._world = model, objective, world
        self._limit, self._dtype, self._shard = max_tokens, dtype, shard
        self._untrained: list[nn.Parameter] = []
        self._engine: nn.Module | None = None
        if shard:
            self.model = copy.deepcopy(model)
            self._engine = _sharded(_Terms(self.model, objective), world, dtype)
            if not world.main:
                model.to("meta")
        else:
            self.model = model
            self._untrained = _untrained(model, objective, sample, dtype, world.device)

    def accumulate(self, batch: Batch, seeds: list[int]) -> list[dict[str, Term]]:
        """Add the gradient of the whole `batch` to every parameter; all processes must call it with
        the same batch.

        Args:
            seeds: (seed, step) of the dropout; the micro-batch's number among those of all
                processes is added.

        Returns:
            The terms of this process's micro-batches.
        """
        world, engine = self._world, self._started()
        lengths = batch.attention_mask.sum(1)
        plan = plan_of(batch, world.size, self._limit)
        mine = plan[world.rank]
        first = sum(len(parts) for parts in plan[: world.rank])
        # A process without a share computes a sequence that does not count, because the others wait
        # for its gradients; with shards, it computes one for each pass that it has fewer than
        # others.
        passes = max(len(parts) for parts in plan) if self._shard else max(1, len(mine))
        counts = self._objective.counts(batch)
        result = []
        for index in range(passes):
            counted = index < len(mine)
            rows = mine[index] if counted else lengths.argmin()[None]
            part = send(select(batch, rows), self.model, self._dtype)
            stream.seed(*seeds, first + index if counted else -1 - world.rank)
            with self._summing(engine, last=index == passes - 1):
                with autocast(self._dtype, world.device):
                    outputs = engine(part)
                terms = {name: Term(*output) for name, output in outputs.items()}
                # The engines average over the processes.
                scale = world.size if counted else 0.0
                loss = sum(
                    t.total * (t.weight * scale / max(1, counts[name])) for name, t in terms.items()
                )
                assert isinstance(loss, Tensor)
                loss.backward()
            result.append(terms if counted else {n: _nothing(t) for n, t in terms.items()})
        return result

    def collect(self) -> None:
        """Copy the weights of a sharded model into the plain one of the first process, so that it
        can evaluate or save the model alone. All processes must call it."""
        if not self._shard:
            return
        mine = dict(self._plain.named_parameters())
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                full = whole_tensor(parameter.data)
                if self._world.main:
                    mine[name].copy_(full)

    def close(self) -> None:
        """Restore the original form of the model, with its new weights (with `shard`: in the first
        process). All processes must call it."""
        self.collect()
        for parameter in self._untrained:
            parameter.requires_grad_(True)
        self._engine = None

    def _started(self) -> nn.Module:
        """Return the engine. Replicas are created at the first step: by then the optimizer, which
        needs all parameters, exists and a checkpoint has been read."""
        if self._engine is None:
            from torch.nn.parallel import DistributedDataParallel

            # Otherwise the engine would wait for gradients that never come.
            for parameter in self._untrained:
                parameter.requires_grad_(False)
            self._engine = DistributedDataParallel(
                _Terms(self.model, self._objective), gradient_as_bucket_view=True
            )
        return self._engine

    @contextlib.contextmanager
    def _summing(self, engine: nn.Module, last: bool) -> Iterator[None]:
        """Make replicas sum over the processes once a step, at its last micro-batch; shards sum at
        each micro-batch, because they have no room for the unsummed gradients of a whole model."""
        if self._shard or last:
            yield
        else:
            with engine.no_sync():  # type: ignore[operator]
                yield


def _nothing(term: Term) -> Term:
    """Return `term` as that of a sequence that does not count."""
    correct = None if term.correct is None else torch.zeros_like(term.correct)
    shares = {name: torch.zeros_like(number) for name, number in term.shares.items()}
    return Term(torch.zeros_like(term.total), 0, correct, term.weight, shares)


def _sharded(terms: _Terms, world: DistContext, dtype: torch.dtype) -> nn.Module:
    """Shard the parameters of `terms` in place: each layer separately, the rest together. Layers
    whose weights are used more than once for a token belong to the rest.

    Layers are gathered and computed in `dtype`, and their gradients are summed in fp32. Embeddings
    and heads are gathered in fp32, once for all of a pass, and computed by autocast.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    low = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype, reduce_dtype=torch.float32
    )
    if not terms.model.config.shares_layers:
        for layer in terms.model.backbone.layers:
            fully_shard(layer, mesh=mesh, mp_policy=low)
    fully_shard(terms, mesh=mesh)
    return terms


def _untrained(
    model: Model, objective: Loss, sample: Batch, dtype: torch.dtype, device: torch.device
) -> list[nn.Parameter]:
    """Return the parameters that get no gradient from `objective`, such as the pooler's without
    NSP. They are determined by a backward pass over one sequence, whose gradients are discarded."""
    part = select(sample, torch.zeros(1, dtype=torch.int64)).to(device)
    with autocast(dtype, device):
        terms = objective.terms(model, part)
    loss = sum(term.total for term in terms.values())
    assert isinstance(loss, Tensor)
    loss.backward()
    untrained = [p for p in model.parameters() if p.requires_grad and p.grad is None]
    model.zero_grad(set_to_none=True)
    return untrained
