"""How much of the CPU a container may use: the quota of its control groups, and where these are.

A container on a machine with 64 cores may be given the time of two. Linux then lets it run on all
64 (``sched_getaffinity``, ``os.cpu_count``), but stops it as soon as its time is used up; with 64
threads it spends that time waiting for itself. Sources: the kernel's documentation of ``cpu.max``
(control groups, version 2) and of ``cpu.cfs_quota_us`` (version 1).
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import Store


PROCESS = Path("/proc/self")


@functools.cache
def cpu_quota(process: Path = PROCESS) -> float | None:
    """Return the number of cores whose time this process may use, 1.5 for example; None: no limit.

    Groups lie within each other, and each may have a limit: the smallest one on the way up counts.

    Args:
        process: the folder of the process in ``/proc``.
    """
    return min(filter(None, map(_limit, limiting_groups("cpu", process))), default=None)


def limiting_groups(controller: str, process: Path = PROCESS) -> Iterator[Path]:
    """Yield the folders of the control groups that may limit a process: those that it is in, and
    those around them.

    Args:
        controller: what is limited, as control groups call it: "cpu", "memory".
        process: the folder of the process in ``/proc``.
    """
    try:
        memberships = (process / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (process / "mountinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return  # not Linux, or /proc is closed
    for membership in memberships:
        # hierarchy:controllers:path, for version 2 "0::path"
        _, _, rest = membership.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            wanted = ""
        elif controller in controllers.split(","):
            wanted = controller
        else:
            continue
        for mount in mounts:
            place = _mounted(mount, wanted)
            if place is not None:
                yield from _upwards(*place, path)


def _mounted(line: str, controller: str) -> tuple[PurePosixPath, Path] | None:
    """Return which group is mounted where, by a line of ``mountinfo``; None: none that limits
    `controller`, which is "" for version 2."""
    left, _, right = line.partition(" - ")
    fields, kind = left.split(), right.split()
    if len(fields) < 5 or len(kind) < 3:
        return None
    wanted = "cgroup" if controller else "cgroup2"
    if kind[0] != wanted or (controller and controller not in kind[2].split(",")):
        return None
    return PurePosixPath(_unescaped(fields[3])), Path(_unescaped(fields[4]))


def _unescaped(name: str) -> str:
    """Return a name of ``mountinfo``, where a space is written as ``\\040``."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)


def _upwards(root: PurePosixPath, mountpoint: Path, path: str) -> Iterator[Path]:
    """Yield the folders of the group `path` and of those around it, as far as they can be seen."""
    group = PurePosixPath(path)
    # Seen from inside a container the path may lie outside of what is mounted; what is mounted is
    # then the container's own group.
    inside = group.is_relative_to(root) and ".." not in group.parts
    relative = group.relative_to(root) if inside else PurePosixPath()
    for part in [relative, *relative.parents]:
        yield mountpoint / part


def _limit(group: Path) -> float | None:
    """Return the limit of one group, in cores."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (group / "cpu.cfs_period_us").read_text(encoding="ascii")
        # "max" and -1 say that there is none.
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def allowed_cores() -> int:
    """Return the cores that this process may run on, whatever time it has on them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Whether this process is one of several that ``torchrun`` started, and which.
#
# Only the environment is read, and the number of cores; PyTorch is imported when the processes
# have to talk.

#: What torchrun gives to each process that it starts.
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched() -> bool:
    """Return whether this is one of several processes of one command."""
    complete = all(os.environ.get(name) for name in _VARIABLES)
    return complete and int(os.environ["WORLD_SIZE"]) > 1


def is_main() -> bool:
    """Return whether this process is the one that prints and writes: the first, or the only one."""
    return not launched() or int(os.environ["RANK"]) == 0


def beside() -> int:
    """Return how many processes of this command are on this machine, this one counted."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if launched() else 1


def cores() -> int:
    """Return the cores that this process may use: those it may run on, and no more than a
    container's quota (:mod:`bertine.core.cpu`) has the time of. A part of a core counts as
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
    """Return whether this process is the one to say how the command ended: the first that asks.

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


# How long PyTorch's threads wait actively for each other: set before its OpenMP library loads.
#
# Between two operations the threads of OpenMP look for work in a loop, some milliseconds long in
# GCC's library (libgomp) and 200 in LLVM's and Intel's (libomp, libiomp5). With all cores to
# themselves that saves time. Where another program holds one of the cores, the threads that are
# ready burn the others while they wait for the one that is not: training then falls to a quarter
# or less, where it could go on at half (``benchmarks/contention.py``). A wait that is always
# short costs up to a fifth of a small model's speed when the machine is quiet. So the wait of
# GCC's library is shortened at run time, while other programs are there
# (:mod:`bertine.core.spin_count`); LLVM's and Intel's have no such way, and are given a short
# wait before they are loaded.
#
# The libraries read their environment once, when they are loaded, so the variables are there
# while PyTorch is imported and taken away again: programs that are started later are none of our
# business. Sources: the manuals of libgomp (``GOMP_SPINCOUNT``) and of LLVM's OpenMP
# (``KMP_BLOCKTIME``).

#: Variable → value. GCC's library is left to its own wait, which costs nothing on a quiet machine,
#: and is given a short one at run time (:mod:`bertine.core.spin_count`). The wait of LLVM's and
#: Intel's cannot be changed later.
SHORT_WAIT = {"KMP_BLOCKTIME": "0"}

#: Variables with which a user says how to wait; where there is one, nothing is set.
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_LIBRARY", *SHORT_WAIT)

_hook: _TorchHook | None = None


def set_spin_count() -> None:
    """Have PyTorch's threads wait shortly, and no more of them than the container has cores, as
    soon as PyTorch is imported; what the user has set stays. Where PyTorch is there already, its
    library has read its settings, and nothing is done."""
    global _hook
    if _hook is None and "torch" not in sys.modules:
        _hook = _TorchHook()
        sys.meta_path.insert(0, _hook)


def spin_count_is_given() -> bool:
    """Return whether the user has said how the threads are to wait."""
    return any(name in os.environ for name in _WAITING)


def settings() -> dict[str, str]:
    """Return what is added to the environment while PyTorch is imported."""
    added = {} if spin_count_is_given() else dict(SHORT_WAIT)
    if cores() < allowed_cores() and "OMP_NUM_THREADS" not in os.environ:
        added["OMP_NUM_THREADS"] = str(cores())
    return added


class _TorchHook:
    """A finder of modules that finds nothing itself, but is asked when ``torch`` is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                _set_while_loading(self, spec.loader)
                return spec
        return None


def _set_while_loading(hook: _TorchHook, loader: Any) -> None:
    """Make `loader` run PyTorch with our settings in the environment; then `hook` has done its
    work."""
    run = getattr(loader, "exec_module", None)
    if run is None:
        return

    def exec_module(module: ModuleType) -> None:
        added = settings()
        os.environ.update(added)
        try:
            run(module)
        finally:
            for name in added:
                os.environ.pop(name, None)
        sys.meta_path.remove(hook)

    loader.exec_module = exec_module
