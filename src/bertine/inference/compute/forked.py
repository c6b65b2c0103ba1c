"""Go on computing in a process that was forked after its parent had computed.

A web server may load a model once and fork its workers then (gunicorn's ``--preload``), so that
they share its memory. The threads of OpenMP do not come along, but the library of GCC waits for
them without end. Such a process therefore computes with one thread, which is what several workers
on one machine need anyway, and says so once.
"""

from __future__ import annotations

import os

import torch

from bertine.terminal.console import say

_computed = False  # with several threads, in this process
_forked = False  # after that
_said = False


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
