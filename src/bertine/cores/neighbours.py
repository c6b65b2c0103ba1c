"""Whether other programs use the cores that this process computes with."""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path

import torch

from bertine.cores.launch import cores

#: Cores that others must take from this process, at least, to matter.
_WORTH = 0.3
#: A process that uses a smaller share of one core rests.
_RESTED = 0.1
#: Seconds that are looked at together, at least; the system counts in hundredths.
_LEAST = 1.0


class OtherPrograms:
    """A watch on other programs by what the system counts (Linux's ``/proc/stat``) while this
    process computes.

    Args:
        least: seconds between two looks, at least; in between the last answer stays.
        most: seconds between two looks, at most, if this process rested in between: after a longer
            rest the last answer stays, too, since what others did meanwhile is no longer of
            interest. A step that takes as long because others slow it down is no rest.
    """

    def __init__(self, least: float = _LEAST, most: float = math.inf) -> None:
        self._least, self._most = least, most
        self._at = time.monotonic()
        self._all, self._ours = busy_seconds(), time.process_time()
        self._used: float | None = None

    def cores_used(self) -> float | None:
        """Return how many cores other programs have used since the last look, if they take some
        from this process; None: they do not, or it is not known."""
        now = time.monotonic()
        if now - self._at < self._least:
            return self._used
        seconds, self._at = now - self._at, now
        everything, ours = busy_seconds(), time.process_time()
        if everything is None or self._all is None:
            return None
        worked = (ours - self._ours) / seconds
        others = (everything - self._all) / seconds - worked
        self._all, self._ours = everything, ours
        if seconds > self._most and worked < _RESTED:
            return self._used
        spare = max(0, cores() - torch.get_num_threads())
        self._used = others if others - spare > _WORTH else None
        return self._used

    def line(self) -> str | None:
        """Return :meth:`cores_used` for a person, such as "1.0 of 2 cores"."""
        used = self.cores_used()
        return None if used is None else f"{used:.1f} of {cores()} cores"


def busy_seconds() -> float | None:
    """Return how long the cores that this process may use have worked, all programs together."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    with contextlib.suppress(OSError, ValueError):
        ticks = 0
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, *counts = line.split()
            if name in allowed:
                user, nice, system, _idle, _waiting, *interrupts = map(int, counts[:8])
                ticks += user + nice + system + sum(interrupts)
        return ticks / os.sysconf("SC_CLK_TCK")
    return None
