"""Tell whether so little text is to come that measuring how to compute it fastest takes longer."""

from __future__ import annotations

import os
import select
import stat
import sys
from pathlib import Path
from typing import Any

from bertine.inference.compute.choosing import unmeasured_threads
from bertine.models.precision import resolve_device
from bertine.tables.streams import COMPRESSIONS

#: As much is computed in fp32 in the time in which other precisions are tried: about a thousand
#: tokens, since they are tried on some hundred and the weights are packed anew for each.
_FEW_BYTES = 4096


def unmeasured(
    model: object, size: int | None, device: str | None, precision: str
) -> dict[str, Any]:
    """Return how to compute a few texts without trying anything: ``precision`` and ``threads``, as
    arguments for loading. With more texts, or where it is said or decided already how to compute
    them, the `precision` alone, as it was given.

    Args:
        model: a model directory, or a model that is loaded already.
        size: bytes of text; None: not known.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
        precision: ``"auto"`` and others.
    """
    open_choice = isinstance(model, Path | str) and precision == "auto"
    few = size is not None and size <= _FEW_BYTES
    if not open_choice or not few or resolve_device(device).type != "cpu":
        return {"precision": precision}
    return {"precision": "fp32", "threads": unmeasured_threads()}


def bytes_to_come(input: object) -> int | None:
    """Return the size of a file, or of what is left of standard input; None: not known, as of a
    pipe whose other end is still open, of a compressed file and of a table in memory."""
    if not isinstance(input, Path | str):
        return None
    try:
        if str(input) != "-":
            path = Path(input)
            known = path.is_file() and path.suffix.lower() not in COMPRESSIONS
            return path.stat().st_size if known else None
        if sys.stdin is None:
            return None
        descriptor = sys.stdin.fileno()
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
        return _in_pipe(descriptor) if stat.S_ISFIFO(status.st_mode) else None
    except (OSError, ValueError):
        return None


def _in_pipe(descriptor: int) -> int | None:
    """Return what is left in a pipe whose other end was closed."""
    if not hasattr(select, "poll"):
        return None
    import array
    import fcntl
    import termios

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = any(event & select.POLLHUP for _, event in poll.poll(0))
    if not ended:
        return None
    waiting = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    return waiting[0]
