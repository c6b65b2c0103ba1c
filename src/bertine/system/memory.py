"""How much memory there is for this process, whether what is asked for fits into it, and what the
libraries below keep of it: freed blocks, kernels of oneDNN."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from bertine.cores.cpu_quota import limiting_groups
from bertine.errors import BertineError

#: cgroup v1 writes "no limit" as a number near 2 to the power of 63.
_NO_LIMIT = 2**60

# <malloc.h> of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8


def memory_limit() -> int | None:
    """Return the bytes that this process can have at most: the machine's memory and swap, or less
    where its container (cgroup v1 and v2) or ``ulimit -v`` allows less. None where nothing says
    it."""
    limits = [
        limit for limit in (_of_machine(), _of_cgroup(), address_space_limit()) if limit is not None
    ]
    return min(limits, default=None)


def address_space_limit() -> int | None:
    """Return what ``ulimit -v`` allows, in bytes; None: no limit, or no such thing on this
    system."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def check_memory(what: str, needed: int) -> None:
    """Refuse what can never fit into the memory.

    Args:
        what: needs it, with the file that says so, for the message: "config.json: the model".
        needed: bytes.

    Raises:
        BertineError: there is less memory.
    """
    limit = memory_limit()
    if limit is not None and needed > limit:
        from bertine.terminal.console import human_bytes

        raise BertineError(
            f"{what} needs {human_bytes(needed)} of memory, but this process can have "
            f"{human_bytes(limit)}"
        )


def _of_machine() -> int | None:
    fields = _fields(Path("/proc/meminfo"))
    if "MemTotal:" in fields:
        return 1024 * (fields["MemTotal:"] + fields.get("SwapTotal:", 0))
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of /proc, by the word before them."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return {}
    split = (line.split() for line in lines)
    return {words[0]: int(words[1]) for words in split if len(words) > 1 and words[1].isdigit()}


def _of_cgroup() -> int | None:
    """Return the smallest limit of this process's control group and of those around it."""
    files = ("memory.max", "memory.limit_in_bytes")  # of version 2, of version 1
    limits = [_number(group / file) for group in limiting_groups("memory") for file in files]
    return min((limit for limit in limits if limit is not None), default=None)


def _number(path: Path) -> int | None:
    try:
        value = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max", or no such file
        return None
    return value if value < _NO_LIMIT else None


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
    import ctypes  # a millisecond, which ``--help`` need not spend

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
