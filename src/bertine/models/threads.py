"""With how many threads to compute: as many as PyTorch would take, or fewer where that is faster;
one in a process that was forked after its parent had computed.

A web server may load a model once and fork its workers then (gunicorn's ``--preload``), so that
they share its memory. The threads of OpenMP do not come along, but the library of GCC waits for
them without end. Such a process therefore computes with one thread, which is what several workers
on one machine need anyway, and says so once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch

from bertine.cores.launch import cores
from bertine.models.products import best_of
from bertine.terminal.console import say

#: Variables by which a user, or torchrun, says with how many threads to compute.
_GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

_computed = False  # with several threads, in this process
_forked = False  # after that
_said = False
_changing = threading.Lock()


def allowed_threads(threads: int) -> int:
    """Return how many threads may compute, at most `threads`: one in a process that was forked
    after its parent had computed."""
    global _computed, _said
    if not _forked:
        _computed = _computed or threads > 1
        return threads
    if threads > 1 and not _said:
        _said = True
        say(
            "this process was forked after the model had computed, so it computes with one thread; "
            "for more, load the model after the fork"
        )
    return 1


def _in_child() -> None:
    global _forked
    if _computed:
        _forked = True
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def threads_are_given() -> bool:
    """Tell whether the environment says with how many threads to compute."""
    return any(os.environ.get(name) for name in _GIVEN)


@contextlib.contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let PyTorch compute with `threads` of the calling thread's OpenMP team while it is
    entered."""
    threads, before = allowed_threads(threads), torch.get_num_threads()
    if before == threads:
        yield
        return
    with _changing:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        with _changing:
            torch.set_num_threads(before)


def seconds_by_threads(measure: Callable[[], float]) -> dict[int, float]:
    """Return the seconds that work takes with one thread, with half of those that PyTorch would
    take (``OMP_NUM_THREADS``, a container's cores), and with all of them.

    Args:
        measure: does the work, and returns its seconds.
    """
    most = min(torch.get_num_threads(), cores())
    counts = sorted({1, max(1, most // 2), most})
    if len(counts) == 1:
        return {most: 0.0}

    def with_threads(threads: int) -> float:
        with using_threads(threads):
            measure()  # the threads of the new team begin
            return measure()

    return dict(zip(counts, best_of([partial(with_threads, n) for n in counts]), strict=True))


def fastest_threads(seconds: Mapping[int, float], worth: float = 1.0) -> int:
    """Choose the number of threads that takes the least time.

    Args:
        seconds: by the number of threads.
        worth: how many times as fast fewer threads have to be to be taken, not all.
    """
    most, best = max(seconds), min(seconds, key=seconds.__getitem__)
    return best if seconds[best] * worth <= seconds[most] else most
