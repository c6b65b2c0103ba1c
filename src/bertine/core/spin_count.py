"""Shorten the wait of OpenMP's threads while other programs use the cores.

The time that threads poll for work is set when the library is loaded (:mod:`bertine.core.cpu`). But
GCC's library (libgomp) polls for only 100 turns as soon as it manages more threads than there are
cores, in all of its teams together. So while other programs use the cores, an idle team is kept in
addition to the one that computes; its threads sleep and cost nothing. When the other programs are
done, that team is ended. The computation and its number of threads do not change, so results are
equal to the last bit.

Source: ``do_spin`` and ``gomp_managed_threads`` in libgomp's ``config/linux/wait.h`` and
``team.c``. The libraries of LLVM and Intel have no such rule and are left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
import time
from pathlib import Path

from bertine.core import cpu
from bertine.core.cpu import allowed_cores, cores

# Contention: measure whether other programs use the cores of this process.

#: The fewest cores taken by other programs that count as contention.
_WORTH = 0.3
#: A process that uses less than this share of one core is idle.
_RESTED = 0.1
#: Shortest measured period in seconds; the system counts in hundredths.
_LEAST = 1.0


class CpuContention:
    """A monitor of other programs' CPU use while this process computes (Linux's ``/proc/stat``).

    Args:
        least: fewest seconds between two measurements; in between the last result is returned.
        most: most seconds between two measurements if this process was idle in between: after a
            longer idle time the last result is kept, too, because the load in that time no longer
            matters. A step that takes long because others slow it down is not idle time.
    """

    def __init__(self, least: float = _LEAST, most: float = math.inf) -> None:
        self._least, self._most = least, most
        self._at = time.monotonic()
        self._all, self._ours = busy_seconds(), time.process_time()
        self._used: float | None = None

    def cores_used(self) -> float | None:
        """Return the number of cores that other programs have used since the last measurement, if
        they took some from this process; None if they did not, or if it is unknown."""
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
        import torch  # this module is imported before it

        spare = max(0, cores() - torch.get_num_threads())
        self._used = others if others - spare > _WORTH else None
        return self._used

    def line(self) -> str | None:
        """Format :meth:`cores_used` for people, such as "1.0 of 2 cores"."""
        used = self.cores_used()
        return None if used is None else f"{used:.1f} of {cores()} cores"


def busy_seconds() -> float | None:
    """Return the busy seconds of the cores that this process may use, over all programs."""
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


#: Fewest and most seconds between two measurements of other programs.
_SHORT_WAITS_LEAST, _MOST = 0.5, 1.0
#: Most threads of an idle team. Only a process that computes with a few of very many cores would
#: need more; others seldom take its cores.
_MOST_THREADS = 32


class IdleTeam:
    """A thread that opens an OpenMP team and sleeps with it until the end.

    Args:
        library: GCC's OpenMP library.
        threads: size of the team.

    Raises:
        RuntimeError: the thread cannot be started.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._ended, opened = threading.Event(), threading.Event()

        def sleep() -> None:
            # Each thread of the team calls a function that only returns a number.
            nothing = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)
            library.GOMP_parallel(nothing, None, ctypes.c_uint(threads), ctypes.c_uint(0))
            opened.set()
            self._ended.wait()

        self._thread = threading.Thread(target=sleep, name="bertine idle team", daemon=True)
        self._thread.start()
        opened.wait()

    def end(self) -> None:
        """End the thread; the library then ends its team."""
        self._ended.set()
        self._thread.join()


class ShortWaits:
    """An idle team that is kept while other programs use the cores."""

    def __init__(self) -> None:
        self._others = CpuContention(_SHORT_WAITS_LEAST, _MOST)
        self._team: IdleTeam | None = None
        self._changing = threading.Lock()

    @property
    def on(self) -> bool:
        """Whether the wait is short now because of other programs."""
        return self._team is not None

    def adapt(self) -> None:
        """Measure whether other programs use the cores, and open or end the idle team. It measures
        at most twice a second; call it from the thread that computes."""
        if not self._changing.acquire(blocking=False):
            return  # another thread is doing it
        try:
            crowded = self._others.cores_used() is not None
            if crowded and self._team is None:
                import torch

                self._team = _idle_team(torch.get_num_threads())
            elif not crowded and self._team is not None:
                self._team.end()
                self._team = None
        finally:
            self._changing.release()


def _idle_team(computing: int) -> IdleTeam | None:
    """Open a team that brings the library's threads above the number of cores; None if that has no
    effect."""
    library = _libgomp()
    # The first thread of a second team is not counted.
    threads = max(2, allowed_cores() - computing + 2)
    if computing < 2 or threads > _MOST_THREADS or library is None or cpu.spin_count_is_given():
        return None
    with contextlib.suppress(RuntimeError):
        return IdleTeam(library, threads)
    return None


@functools.cache
def _libgomp() -> ctypes.CDLL | None:
    """Return GCC's OpenMP library through the copy that PyTorch is linked with; None if PyTorch
    uses another library."""
    import torch

    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return None
    # LLVM's library has GCC's entry points in addition to its own.
    is_gcc = hasattr(library, "GOMP_parallel") and not hasattr(library, "__kmpc_fork_call")
    return library if is_gcc else None


#: It begins to measure while PyTorch is imported: models are loaded right afterwards.
_waits = ShortWaits()


def adapt_spin_count() -> None:
    """Call :meth:`ShortWaits.adapt` for this process; called before a model is loaded, and before
    each step or batch."""
    _waits.adapt()
