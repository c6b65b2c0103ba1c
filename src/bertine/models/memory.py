"""What the libraries below keep in memory: freed blocks, kernels of oneDNN."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

# <malloc.h> of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8


def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from the heap and never to trim it.

    A training step, or a batch that is encoded, allocates and frees the same large tensors each
    time. By default glibc maps and unmaps those from the kernel, which clears every page again:
    about a third of a training step of a small model, a tenth of encoding. Peak memory is
    unchanged; it is just not returned between steps. Threads share one heap from then on: those
    that draw dropout's bits would otherwise each keep one of their own, tens of megabytes that
    nobody else can use.

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


#: Kernels that each of the caches of oneDNN and of PyTorch's layer above it keeps; both keep 1024
#: by themselves.
_KERNELS = 256


def bound_kernels() -> None:
    """Let oneDNN keep few kernels, for a process that meets ever new shapes.

    A kernel is compiled for the very sizes of a product. A batch of B texts of T tokens needs about
    fifteen, of a third of a megabyte to two thirds each, and texts of all lengths come together in
    thousands of ways: by default a process grows by hundreds of megabytes until the caches are
    full. To compile those of a batch again takes some milliseconds. Settings of the user's
    (``ONEDNN_PRIMITIVE_CACHE_CAPACITY``, ``LRU_CACHE_CAPACITY``) stay. To be called before anything
    is computed: the sizes are read once.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(_KERNELS))
