"""Whole tensors from the shards of several processes, and shards from whole tensors.

A sharded parameter is PyTorch's ``DTensor``; a plain tensor is the same in every process.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from bertine.models.fast.torch_private import norms
from bertine.training.distributed.world import World


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether this process has a part of `tensor` only.

    Asked by its method, because the module of ``DTensor`` takes long to import and a process
    by itself never needs it.
    """
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """Return the part of `tensor` that this process has; it shares the memory."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """Return all of `tensor`, on its device. Of a sharded one all processes must ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def gathered(tensors: dict[str, Tensor], world: World) -> dict[str, Tensor]:
    """Return `tensors` whole in the first process, the sharded ones in the memory of its CPU;
    nothing in the others. One tensor after the other, so that no device holds more than one
    whole."""
    if world.size == 1:
        return tensors
    result = {}
    for name, tensor in tensors.items():
        full = whole(tensor)
        if world.main:
            result[name] = full.cpu() if is_sharded(tensor) else full
    return result


@torch.no_grad()
def put(tensor: Tensor, value: Tensor | None, world: World) -> None:
    """Fill `tensor` in all processes with `value`, whole, which the first one has."""
    if world.size == 1:
        assert value is not None
        tensor.copy_(value)
        return
    full = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if value is not None:
        full.copy_(value)
    if is_sharded(tensor):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(tensor, DTensor)
        tensor.copy_(distribute_tensor(full, tensor.device_mesh, tensor.placements))
    else:
        dist.broadcast(full, 0)
        tensor.copy_(full)


def norm(tensors: list[Tensor]) -> Tensor:
    """Return the Euclidean norm of `tensors` together (fp32 scalar, plain), shards counted once."""
    parts = [local(tensor) for tensor in tensors]
    total = torch.linalg.vector_norm(torch.stack(norms(parts)))
    if any(is_sharded(tensor) for tensor in tensors):
        squared = total.square()
        dist.all_reduce(squared)
        total = squared.sqrt()
    return total
