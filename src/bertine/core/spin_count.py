"""Let OpenMP's threads wait more shortly for each other while other programs use the cores.

How long they wait actively is read when the library is loaded (:mod:`bertine.core.cpu`). But
GCC's library (libgomp) waits for 100 turns only as soon as it manages more threads than there are
cores, in all of its teams together. So while other programs use the cores, an idle team is kept
beside the one that computes; its threads sleep, and cost nothing. When the others have gone, the
team is ended. What is computed, and with how many threads, stays the same, so results do to the
last bit.

Source: ``do_spin`` and ``gomp_managed_threads`` in libgomp's ``config/linux/wait.h`` and
``team.c``. The libraries of LLVM and Intel have no such rule, and nothing is done with them.
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

import torch

from bertine.core import cpu
from bertine.core.cpu import allowed_cores, cores

# Whether other programs use the cores that this process computes with.

#: Cores that others must take from this process, at least, to matter.
_WORTH = 0.3
#: A process that uses a smaller share of one core rests.
_RESTED = 0.1
#: Seconds that are looked at together, at least; the system counts in hundredths.
_LEAST = 1.0


class CpuContention:
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


#: Seconds between two looks at what other programs do, at least and at most.
_SHORT_WAITS_LEAST, _MOST = 0.5, 1.0
#: Threads of an idle team, at most. More would be needed where a process computes with a few of
#: very many cores; others hardly come in its way there.
_MOST_THREADS = 32


class IdleTeam:
    """A thread that has opened a team of OpenMP and sleeps, and its team with it, until the end.

    Args:
        library: GCC's OpenMP library.
        threads: of the team.

    Raises:
        RuntimeError: no thread can be started.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._ended, opened = threading.Event(), threading.Event()

        def sleep() -> None:
            # Each thread of the team calls a function that does nothing but return a number.
            nothing = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)
            library.GOMP_parallel(nothing, None, ctypes.c_uint(threads), ctypes.c_uint(0))
            opened.set()
            self._ended.wait()

        self._thread = threading.Thread(target=sleep, name="bertine idle team", daemon=True)
        self._thread.start()
        opened.wait()

    def end(self) -> None:
        """End the thread; the library ends its team with it."""
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
        """Whether the threads wait shortly because of other programs."""
        return self._team is not None

    def adapt(self) -> None:
        """Look whether other programs use the cores, and keep a team or none accordingly. Costs
        nothing but twice a second; to be called by the thread that computes."""
        if not self._changing.acquire(blocking=False):
            return  # another thread is at it
        try:
            crowded = self._others.cores_used() is not None
            if crowded and self._team is None:
                self._team = _idle_team(torch.get_num_threads())
            elif not crowded and self._team is not None:
                self._team.end()
                self._team = None
        finally:
            self._changing.release()


def _idle_team(computing: int) -> IdleTeam | None:
    """Return a team that brings the library's threads to more than there are cores; None: of no
    use."""
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
    """Return GCC's OpenMP library, through PyTorch's own that is linked with it; None: it is
    another."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    except OSError:
        return None
    # LLVM's has the entry points of GCC's beside its own.
    is_gcc = hasattr(library, "GOMP_parallel") and not hasattr(library, "__kmpc_fork_call")
    return library if is_gcc else None


@functools.cache
def _of_this_process() -> ShortWaits:
    return ShortWaits()


def adapt_spin_count() -> None:
    """Call :meth:`ShortWaits.adapt` for this process; called before each step or batch."""
    _of_this_process().adapt()
