"""Prepare the process of a command: memory limits, streams, signals and address space."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from io import TextIOBase, TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from bertine.core.cpu import limiting_groups
from bertine.core.errors import BertineError
from bertine.core.text import ESCAPED, printable

# Memory: how much this process may use, and how much its libraries keep (freed blocks, oneDNN
# kernels).

#: cgroup v1 writes "no limit" as a number near 2 to the power of 63.
_NO_LIMIT = 2**60

# <malloc.h> of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8


def memory_limit() -> int | None:
    """Return the most bytes that this process can use: the machine's memory and swap, or less if
    its container (cgroup v1 and v2) or ``ulimit -v`` allows less. None if unknown."""
    limits = [
        limit for limit in (_of_machine(), _of_cgroup(), address_space_limit()) if limit is not None
    ]
    return min(limits, default=None)


def address_space_limit() -> int | None:
    """Return the limit of ``ulimit -v`` in bytes; None if there is no limit or the system has no
    such limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def check_memory(what: str, needed: int) -> None:
    """Refuse work that can never fit into memory.

    Args:
        what: what needs the memory, with its file, for the message: "config.json: the model".
        needed: bytes.

    Raises:
        BertineError: there is less memory.
    """
    limit = memory_limit()
    if limit is not None and needed > limit:
        from bertine.core.console import human_bytes

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
    """Read the numbers in a file of /proc, keyed by the word before them."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return {}
    split = (line.split() for line in lines)
    return {words[0]: int(words[1]) for words in split if len(words) > 1 and words[1].isdigit()}


def _of_cgroup() -> int | None:
    """Return the smallest limit of this process's control group and its parents."""
    files = ("memory.max", "memory.limit_in_bytes")  # version 2, version 1
    limits = [_number(group / file) for group in limiting_groups("memory") for file in files]
    return min((limit for limit in limits if limit is not None), default=None)


def _number(path: Path) -> int | None:
    try:
        value = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max", or no such file
        return None
    return value if value < _NO_LIMIT else None


def keep_freed_memory() -> bool:
    """Make glibc serve large blocks from the heap and never trim it.

    A training step, or a batch that is encoded, allocates and frees the same large tensors each
    time. By default glibc maps and unmaps them, so that the kernel clears every page again: about
    a third of a training step of a small model, a tenth of encoding. Peak memory is unchanged; it
    is just not returned between steps. All threads then share one heap: otherwise each thread that
    draws dropout's bits would keep its own heap, tens of megabytes that no other thread can use.

    Returns:
        Whether it took effect (False if the C library is not glibc).
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # a millisecond, which ``--help`` should not take

    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        kept = bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
        mallopt(_M_ARENA_MAX, 1)
        return kept
    return False


def release_freed_memory() -> None:
    """Return the memory that :func:`keep_freed_memory` keeps, where nothing is in it, to the
    system. It takes some milliseconds."""
    if sys.platform.startswith("linux"):
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


#: Most kernels in each cache, that of oneDNN and that of PyTorch's layer above it; the default of
#: both is 1024.
_KERNELS = 64


def bound_kernels() -> None:
    """Limit oneDNN's kernel caches, for a process that keeps meeting new shapes.

    A kernel is compiled for the exact sizes of a product. A batch of B texts of T tokens needs
    about fifteen kernels of a third to two thirds of a megabyte each, and texts of all lengths
    combine in thousands of ways: by default a process grows by hundreds of megabytes until the
    caches are full. Compiling the kernels of a batch again takes some milliseconds. The user's
    settings (``ONEDNN_PRIMITIVE_CACHE_CAPACITY``, ``LRU_CACHE_CAPACITY``) are kept. Call this
    before anything is computed: the sizes are read once.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(_KERNELS))


#: Address space that importing PyTorch and a small model take (measured: 0.64 GB; with less than
#: 0.9 GB an import or a thread fails, sometimes by a signal).
_ADDRESS_SPACE = 10**9


class Terminated(KeyboardInterrupt):
    """The exception raised on SIGTERM and SIGHUP. It is handled like Ctrl-C: unfinished output is
    removed.

    Attributes:
        number: the signal number.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    @property
    def status(self) -> int:
        """The exit status by shell convention: 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + self.number


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM and SIGHUP while a command runs."""
    for handled in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(handled, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise Terminated(number)


@contextlib.contextmanager
def prepared_process() -> Iterator[None]:
    """Make this process's streams and signals safe while a command runs.

    - A closed standard input (``<&-``) is empty; a closed output raises an error as soon as a
      result is written to it. No file opened later gets their numbers, where a library would print
      into it.
    - Control characters are escaped in output to a terminal; output to a file or a pipe is not
      changed. Characters that stdout's encoding lacks (a cp1252 console, surrogates in a file name)
      are escaped.
    - SIGTERM and SIGHUP raise :class:`Terminated`, unless they are ignored (``nohup``) or handled.
    - Matplotlib does not use the backend of a notebook that started the command: its package may be
      missing here, and a command only writes plots to files.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    backend = os.environ.pop("MPLBACKEND", None)
    _fill_closed_numbers()
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _ClosedOutput())
    elif isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=ESCAPED)
    if sys.stdout.isatty():
        sys.stdout = cast(TextIO, _TerminalOutput(sys.stdout))
    handled = _handle_signals()
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        sys.stdin, sys.stdout, sys.stderr = before
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def check_address_space() -> None:
    """Refuse to import PyTorch if the address space (``ulimit -v``) is too small.

    Raises:
        BertineError: it is too small.
    """
    limit = address_space_limit()
    if limit is not None and limit < _ADDRESS_SPACE:
        from bertine.core.console import human_bytes

        raise BertineError(
            f"the address space is limited to {human_bytes(limit)} (ulimit -v), but PyTorch alone "
            f"needs about {human_bytes(_ADDRESS_SPACE)}; raise the limit"
        )


def out_of_memory(error: BaseException) -> str | None:
    """Describe an out-of-memory error in one line; None for every other error."""
    if isinstance(error, MemoryError):
        detail = " ".join(str(error).split())
        what = f" ({detail})" if detail else ""
        return f"there is not enough memory{what}; free some, or give less at a time"
    text = str(error)
    if isinstance(error, RuntimeError) and (
        "DefaultCPUAllocator" in text or type(error).__name__ == "OutOfMemoryError"
    ):
        line = text.splitlines()[0].rpartition("] ")[2] or text.splitlines()[0]
        return f"there is not enough memory ({line}); use smaller batches or a smaller model"
    if isinstance(error, ImportError | OSError | RuntimeError) and (
        "failed to map segment" in text
        or "annot allocate memory" in text
        or "can't start new thread" in text
    ):
        return f"there is not enough memory ({' '.join(text.split())}); see ulimit -v and ulimit -u"
    return None


def _fill_closed_numbers() -> None:
    """Open the null device as 0, 1 and 2 if these are closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, so this one.
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)


def _handle_signals() -> dict[int, Any]:
    """Install :func:`raise_terminated`; return the previous handlers."""
    before: dict[int, Any] = {}
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGHUP"):
        return before
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, raise_terminated)
    return before


class _ClosedOutput(TextIOBase):
    """A replacement for a closed standard output (``>&-``)."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        if text:
            raise BertineError("standard output is closed, and the results were to go there")
        return 0


class _TerminalOutput(TextIOBase):
    """A standard output that is a terminal: escapes outside text in results, since a file name or a
    label must not move the cursor or reverse the writing direction."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    @property
    def buffer(self) -> Any:
        return self._terminal.buffer

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._terminal.write(printable(text))
        return len(text)

    def flush(self) -> None:
        self._terminal.flush()


# Programs outside the command ``bertine``, such as recipes.


def run_program(work: Callable[[Sequence[str]], None]) -> int:
    """Call `work` with the command line arguments.

    Returns:
        The exit status: 0; 2 after a user's mistake, reported in one line on stderr; 130 after
        Ctrl-C.
    """
    try:
        with prepared_process():
            work(sys.argv[1:])
    except BertineError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
