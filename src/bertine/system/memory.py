"""How much memory there is for this process, and whether what is asked for fits into it."""

from __future__ import annotations

import os
from pathlib import Path

from bertine.cores.cpu_quota import limiting_groups
from bertine.errors import BertineError

#: cgroup v1 writes "no limit" as a number near 2 to the power of 63.
_NO_LIMIT = 2**60


def memory_limit() -> int | None:
    """The bytes that this process can have at most: the machine's memory and swap, or less where
    its container (cgroup v1 and v2) or ``ulimit -v`` allows less. None where nothing says it."""
    limits = [
        limit for limit in (_of_machine(), _of_cgroup(), address_space_limit()) if limit is not None
    ]
    return min(limits, default=None)


def address_space_limit() -> int | None:
    """What ``ulimit -v`` allows, in bytes; None: no limit, or no such thing on this system."""
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
    found = _fields(Path("/proc/meminfo"))
    if "MemTotal:" in found:
        return 1024 * (found["MemTotal:"] + found.get("SwapTotal:", 0))
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    """The numbers of a file of /proc, by the word before them."""
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
