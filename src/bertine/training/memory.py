"""Keep freed memory in the process instead of giving it back to the kernel every step."""

from __future__ import annotations

import contextlib
import ctypes
import sys

# <malloc.h> of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8


def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from the heap and never to trim it.

    A training step allocates and frees the same large tensors each time. By default glibc maps
    and unmaps those from the kernel, which clears every page again: about a third of a step of a
    small model. Peak memory is unchanged; it is just not returned between steps. Threads share
    one heap from then on: those that draw dropout's bits would otherwise each keep one of their
    own, tens of megabytes that nobody else can use.

    Returns:
        Whether it took effect (False where the C library is not glibc).
    """
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        kept = bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
        mallopt(_M_ARENA_MAX, 1)
        return kept
    return False
