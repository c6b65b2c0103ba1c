"""Connect the processes of one training run, and exchange small data and tensors among them.

Every process computes its share of every step; the first one alone prints and writes. Apart from
gradients they exchange little: a signal, a time, a path, the sums for a line of the log. These go
over the CPU (gloo) as plain bytes, so that no GPU waits for them, and nothing is pickled.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from bertine.core import cpu
from bertine.core.console import plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.models.precision import resolve_device
from bertine.models.torch_private import norms

P = ParamSpec("P")
R = TypeVar("R")

#: While the first process works alone, the others check this often whether it is done (seconds).
_LOOK = 5.0
#: Numbers for the keys of this process in the common store; all processes count in the same way.
_numbers = itertools.count()
#: Whether the process group was created by :func:`join`; a group of the user's own program is not
#: closed.
_made = False


@dataclass
class DistContext:
    """One process's view of the processes of a run.

    Attributes:
        rank: of this process; 0 is the process that writes.
        size: the number of processes.
        device: where this process computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def main(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def require_one(self, work: str) -> None:
        """Refuse several processes for a kind of work.

        Raises:
            BertineError: there are several.
        """
        if self.size > 1:
            raise BertineError(f"{work} is for one process, but there are {self.size}")

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is set in any process. All processes must call it."""
        if self.size == 1:
            return flag
        value = torch.tensor(int(flag))
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return bool(value)

    def from_main(self, value: float) -> float:
        """Return the first process's `value`. All processes must call it."""
        if self.size == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(shared, 0)
        return float(shared)

    def gather(self, value: Any) -> list[Any]:
        """Return the `value` of every process (as JSON), by rank. All processes must call it."""
        if self.size == 1:
            return [value]
        text = torch.frombuffer(bytearray(json.dumps(value), "utf-8"), dtype=torch.uint8)
        sizes = [torch.zeros((), dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor(len(text)))
        width = int(max(sizes))
        padded = torch.zeros(width, dtype=torch.uint8)
        padded[: len(text)] = text
        texts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(texts, padded)
        return [
            json.loads(padded_text[: int(size)].numpy().tobytes())
            for padded_text, size in zip(texts, sizes, strict=True)
        ]

    def alone(self, work: Callable[[], R]) -> R:
        """Call `work` in the first process only, and return its result in all processes. The others
        wait for any length of time.

        Args:
            work: called in the first process only; its result must be JSON, and is returned as JSON
                has it (tuples are lists).

        Raises:
            BertineError: `work` failed with one; it is raised in all processes alike.
        """
        if self.size == 1:
            return work()
        store = cpu.store()
        key = f"bertine/alone/{next(_numbers)}"
        if self.main:
            try:
                result = work()
                text = json.dumps({"result": result})
            except BaseException as error:
                store.set(key, json.dumps({"error": str(error)}))
                raise
            store.set(key, text)
            return result
        while True:
            try:
                store.wait([key], timedelta(seconds=_LOOK))
                break
            except dist.DistStoreError:
                continue  # not yet
        message = json.loads(store.get(key))
        if "error" in message:
            raise BertineError(message["error"] or "the first process was interrupted")
        result = message["result"]
        return result

    def same(self, value: dict[str, Any], what: str) -> None:
        """Check that all processes have the same `value`.

        Raises:
            BertineError: they have not; it is raised in all of them.
        """
        everybody = self.gather(value)
        for rank, other in enumerate(everybody):
            for key in sorted(everybody[0].keys() | other.keys()):
                if other.get(key) != everybody[0].get(key):
                    raise BertineError(
                        f"process {rank} has another {what} than process 0 ({key} = "
                        f"{other.get(key)!r}, not {everybody[0].get(key)!r}); start all with the "
                        "same arguments on the same data"
                    )


def join(device: str | None) -> DistContext:
    """Return the context of this process: with the others if ``torchrun`` started several, else
    alone.

    Args:
        device: a PyTorch device name; None: a GPU if there are any. Of several processes on a
            machine each takes the GPU of its number there (``LOCAL_RANK``), and they exchange
            gradients by NCCL; on CPUs by gloo.

    Raises:
        BertineError: no such device; one GPU is named for several processes, or there are fewer
            GPUs than processes; the program has a process group without the required backends.
    """
    global _made
    where = resolve_device(device)
    if not cpu.launched():
        return DistContext(device=where)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local, extra = int(os.environ["LOCAL_RANK"]), cpu.local_processes()
    if where.type == "cuda":
        if where.index is not None:
            raise BertineError(
                f"device is {where}, but each of the {extra} processes takes a GPU of its own; "
                f"give {option('device', 'cuda')}, or none"
            )
        if extra > torch.cuda.device_count():
            raise BertineError(
                f"{extra} processes on a machine with "
                f"{plural(torch.cuda.device_count(), 'GPU')}; start "
                f"torchrun with --nproc-per-node {torch.cuda.device_count()}"
            )
        where = torch.device("cuda", local)
        torch.cuda.set_device(where)
    elif where.type == "cpu":
        _share_cores(extra)
    else:
        raise BertineError(f"device is {where}, but several processes need cpu or cuda")
    if dist.is_initialized():
        _check_group(where)
    else:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo",
            store=dist.PrefixStore(f"bertine/group/{next(_numbers)}", cpu.store()),
            rank=rank,
            world_size=size,
        )
        _made = True
    return DistContext(rank, size, where)


def _check_group(device: torch.device) -> None:
    """Refuse a process group of the user's program without a backend for the CPU or `device`.

    Raises:
        BertineError: it has none.
    """
    backends = dist.get_backend_config()
    for kind in ("cpu", device.type):
        if f"{kind}:" not in backends:
            raise BertineError(
                f"the program's process group has no backend for {kind} ({backends}); make it with "
                "init_process_group('cpu:gloo,cuda:nccl'), or let Bertine make it"
            )


def _share_cores(processes: int) -> None:
    """Divide the cores among the machine's processes, unless the user has set the number of
    threads.

    torchrun sets ``OMP_NUM_THREADS`` to 1 where it is not set; what the user set is what torchrun
    itself was started with.
    """
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads is not None and (threads != "1" or _set_by_user()):
        return
    torch.set_num_threads(max(1, cpu.cores() // processes))


def _set_by_user() -> bool:
    try:
        launcher = Path(f"/proc/{os.getppid()}/environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(b"OMP_NUM_THREADS=") for entry in launcher.split(b"\0"))


def all_ranks(verb: Callable[P, R]) -> Callable[P, R]:
    """Enable a verb to run in several processes: an error because another process ended becomes a
    :class:`BertineError`, and the group is closed at the end, if it was created here."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = verb(*args, **kwargs)
        except RuntimeError as error:
            if not cpu.launched() or not _lost(error):
                raise
            raise BertineError(
                f"another process of this run ended; start all again with "
                f"{option('resume', True)} to go on from "
                "the last checkpoint"
            ) from error
        if _made and dist.is_initialized():
            _leave()
        return result

    return run


def _leave() -> None:
    """Close the group, the first process last: it may own the store that the others read."""
    global _made
    size, main = dist.get_world_size(), cpu.is_main()
    dist.destroy_process_group()
    _made = False
    store, key = cpu.store(), f"bertine/left/{next(_numbers)}"
    if store.add(key, 1) == size:
        store.set(f"{key}/all", "")
    if main:
        # A process that is killed at its very end must not block this one.
        with contextlib.suppress(dist.DistError):
            store.wait([f"{key}/all"], timedelta(seconds=_LOOK))


def _lost(error: RuntimeError) -> bool:
    """Return whether `error` is a connection error of gloo or NCCL."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(
        sign in text for sign in ("gloo", "nccl", "connection closed", "connection reset")
    )


# Tensors: gather complete tensors from the shards of several processes, and distribute them.
#
# A sharded parameter is PyTorch's ``DTensor``; a plain tensor is the same in every process.


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process has only a part of `tensor`.

    Tested by a method of the tensor, because the module of ``DTensor`` takes long to import and a
    single process never needs it.
    """
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """Return the part of `tensor` that this process has; it shares the memory."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """Return the complete `tensor`, on its device. If it is sharded, all processes must call it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def gathered(tensors: dict[str, Tensor], world: DistContext) -> dict[str, Tensor]:
    """Return the complete `tensors` in the first process, the sharded ones in CPU memory; an empty
    dict in the others. They are gathered one by one, so that no device holds more than one complete
    tensor."""
    if world.size == 1:
        return tensors
    result = {}
    for name, tensor in tensors.items():
        full = whole(tensor)
        if world.main:
            result[name] = full.cpu() if is_sharded(tensor) else full
    return result


@torch.no_grad()
def put(tensor: Tensor, value: Tensor | None, world: DistContext) -> None:
    """Fill `tensor` in all processes with the complete `value`, which the first process has."""
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
