"""Whether this process is one of several that ``torchrun`` started, and which.

Only the environment is read, and the number of cores; PyTorch is imported when the processes have
to talk.
"""

from __future__ import annotations

import functools
import math
import os
from datetime import timedelta
from typing import TYPE_CHECKING

from bertine.cores.cpu_quota import allowed_cores, cpu_quota

if TYPE_CHECKING:
    from torch.distributed import Store

#: What torchrun gives to each process that it starts.
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched() -> bool:
    """Tell whether this is one of several processes of one command."""
    complete = all(os.environ.get(name) for name in _VARIABLES)
    return complete and int(os.environ["WORLD_SIZE"]) > 1


def is_main() -> bool:
    """Tell whether this process is the one that prints and writes: the first, or the only one."""
    return not launched() or int(os.environ["RANK"]) == 0


def beside() -> int:
    """Return how many processes of this command are on this machine, this one counted."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if launched() else 1


def cores() -> int:
    """Return the cores that this process may use: those it may run on, and no more than a
    container's quota (:mod:`bertine.cores.cpu_quota`) has the time of. A part of a core counts as
    one."""
    quota = cpu_quota()
    return allowed_cores() if quota is None else min(allowed_cores(), max(1, math.ceil(quota)))


def quota_line() -> str | None:
    """Return what a user should know of the quota; None: there is none that matters."""
    quota, there = cpu_quota(), allowed_cores()
    if quota is None or quota >= there:
        return None
    return f"this container has the time of {quota:g} of {there} cores: computing with {cores()}"


@functools.cache
def store(timeout: float = 300.0) -> Store:
    """Return the small key-value store of all processes of this command.

    Args:
        timeout: seconds to wait for it, and for a key in it.

    Raises:
        torch.distributed.DistError: nobody answers.
    """
    from torch.distributed.rendezvous import rendezvous

    found, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
    return found


def tells() -> bool:
    """Tell whether this process is the one to say how the command ended: the first that asks.

    A mistake is usually everybody's, and is to be printed once; one that a single process meets (a
    file that only its machine lacks) is to be printed by that one.
    """
    if not launched():
        return True
    try:
        shared = store() if store.cache_info().currsize else store(10.0)
        return shared.add("bertine/told", 1) == 1
    except RuntimeError:
        # The store went with a process that had something to say, or with the launcher: better
        # printed twice than never.
        return True
