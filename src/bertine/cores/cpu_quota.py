"""How much of the CPU a container may use: the quota of its control groups, and where these are.

A container on a machine with 64 cores may be given the time of two. Linux then lets it run on all
64 (``sched_getaffinity``, ``os.cpu_count``), but stops it as soon as its time is used up; with 64
threads it spends that time waiting for itself. Sources: the kernel's documentation of ``cpu.max``
(control groups, version 2) and of ``cpu.cfs_quota_us`` (version 1).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

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
