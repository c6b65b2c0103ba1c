"""Find the CPU cores, processes and thread settings that this process may use.

A container on a machine with 64 cores may be limited to the time of two. Linux still lets it run on
all 64 (``sched_getaffinity``, ``os.cpu_count``), but stops it when its time is used up; with 64
threads it spends that time waiting for itself. So the quota of its control groups counts. Sources:
the kernel's documentation of ``cpu.max`` (control groups, version 2) and of ``cpu.cfs_quota_us``
(version 1).
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
    """Return the CPU quota of this process in cores, for example 1.5; None means no limit.

    Control groups are nested, and each may have a limit; the smallest one counts.

    Args:
        process: the folder of the process in ``/proc``.
    """
    return min(filter(None, map(_limit, limiting_groups("cpu", process))), default=None)


def limiting_groups(controller: str, process: Path = PROCESS) -> Iterator[Path]:
    """Yield the folders of the control groups that may limit a process: its own groups and their
    parents.

    Args:
        controller: name of the controller: "cpu", "memory".
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
    """Return the group and the mount point in a line of ``mountinfo``; None if the line has no
    group that limits `controller` ("" for version 2)."""
    left, _, right = line.partition(" - ")
    fields, kind = left.split(), right.split()
    if len(fields) < 5 or len(kind) < 3:
        return None
    wanted = "cgroup" if controller else "cgroup2"
    if kind[0] != wanted or (controller and controller not in kind[2].split(",")):
        return None
    return PurePosixPath(_unescaped(fields[3])), Path(_unescaped(fields[4]))


def _unescaped(name: str) -> str:
    """Decode a name in ``mountinfo``, which writes a space as ``\\040``."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)


def _upwards(root: PurePosixPath, mountpoint: Path, path: str) -> Iterator[Path]:
    """Yield the folders of the group `path` and of its parents, as far as they are visible."""
    group = PurePosixPath(path)
    # Inside a container the path may be outside the mounted part; the mount is then the container's
    # own group.
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
        # "max" and -1 mean no limit.
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def allowed_cores() -> int:
    """Count the cores that this process may run on, regardless of its time quota."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Processes of torchrun: whether this process is one of several, and which.
#
# Only the environment and the number of cores are read; PyTorch is imported only to communicate.

#: The variables that torchrun sets in each process.
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched() -> bool:
    """Return whether this is one of several processes of one command."""
    complete = all(os.environ.get(name) for name in _VARIABLES)
    return complete and int(os.environ["WORLD_SIZE"]) > 1


def is_main() -> bool:
    """Return whether this process prints and writes: the first one, or the only one."""
    return not launched() or int(os.environ["RANK"]) == 0


def local_processes() -> int:
    """Return the number of processes of this command on this machine, including this one."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if launched() else 1


def cores() -> int:
    """Return the number of cores that this process may use: those it may run on, at most the quota
    of its container (:func:`cpu_quota`). A part of a core counts as one."""
    quota = cpu_quota()
    return allowed_cores() if quota is None else min(allowed_cores(), max(1, math.ceil(quota)))


def quota_line() -> str | None:
    """Describe the CPU quota for the user; None if it has no effect."""
    quota, there = cpu_quota(), allowed_cores()
    if quota is None or quota >= there:
        return None
    return f"this container has the time of {quota:g} of {there} cores: computing with {cores()}"


@functools.cache
def store(timeout: float = 300.0) -> Store:
    """Open the small key-value store shared by all processes of this command.

    Args:
        timeout: seconds to wait for it, and for a key in it.

    Raises:
        torch.distributed.DistError: no process answers.
    """
    from torch.distributed.rendezvous import rendezvous

    result, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
    return result


def reports_the_end() -> bool:
    """Return whether this process reports how the command ended; it is the first one that asks.

    All processes usually meet the same error, which must be printed once. An error of a single
    process (a file missing only on its machine) must be printed by that process.
    """
    if not launched():
        return True
    try:
        shared = store() if store.cache_info().currsize else store(10.0)
        return shared.add("bertine/told", 1) == 1
    except RuntimeError:
        # The store was lost with the process that reported, or with the launcher: print twice
        # rather than never.
        return True


# Wait time of PyTorch's threads: must be set before its OpenMP library is loaded.
#
# Between two operations OpenMP's threads poll for work, for some milliseconds in GCC's library
# (libgomp) and 200 ms in LLVM's and Intel's (libomp, libiomp5). That saves time if all cores are
# free. If another program uses one of the cores, the waiting threads waste the other cores:
# training then drops to a quarter of its speed or less, where half would be possible
# (``benchmarks/contention.py``). A wait that is always short costs up to a fifth of a small
# model's speed on an idle machine. So the wait of GCC's library is shortened at run time, only
# while other programs run (:mod:`bertine.core.spin_count`). LLVM's and Intel's cannot be changed at
# run time and get a short wait before they are loaded.
#
# The libraries read their environment once, at load time. So the variables are set while PyTorch
# is imported and removed afterwards: programs started later must not inherit them. Sources: the
# manuals of libgomp (``GOMP_SPINCOUNT``) and of LLVM's OpenMP (``KMP_BLOCKTIME``).

#: Variable → value. GCC's library keeps its default wait, which costs nothing on an idle machine,
#: and gets a short one at run time (:mod:`bertine.core.spin_count`). The wait of LLVM's and
#: Intel's cannot be changed later.
SHORT_WAIT = {"KMP_BLOCKTIME": "0"}

#: Variables by which a user sets the wait; if one is set, nothing is changed.
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_LIBRARY", *SHORT_WAIT)

_hook: _TorchHook | None = None


def set_spin_count() -> None:
    """Shorten the wait of PyTorch's threads, and limit their number to the container's cores, when
    PyTorch is imported. The user's settings are kept. If PyTorch is already imported, its library
    has read its settings, and this has no effect."""
    global _hook
    if _hook is None and "torch" not in sys.modules:
        _hook = _TorchHook()
        sys.meta_path.insert(0, _hook)


def spin_count_is_given() -> bool:
    """Return whether the user has set how the threads wait."""
    return any(name in os.environ for name in _WAITING)


def settings() -> dict[str, str]:
    """Return the variables that are set while PyTorch is imported."""
    added = {} if spin_count_is_given() else dict(SHORT_WAIT)
    if cores() < allowed_cores() and "OMP_NUM_THREADS" not in os.environ:
        added["OMP_NUM_THREADS"] = str(cores())
    return added


class _TorchHook:
    """An import hook that finds no module itself but is called when ``torch`` is imported."""

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
    """Set our environment while `loader` runs PyTorch's module; then disable `hook`."""
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
