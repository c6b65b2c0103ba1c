"""The process that a command runs in: its standard streams, signals and address space."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from io import TextIOBase, TextIOWrapper
from types import FrameType
from typing import Any, TextIO, cast

from bertine.errors import BertineError
from bertine.system.memory import address_space_limit
from bertine.terminal.text import ESCAPED, printable

#: What importing PyTorch takes of the address space, and a small model (measured: 0.64 GB; with
#: less than 0.9 GB an import or a thread fails, sometimes by a signal).
_ADDRESS_SPACE = 10**9


class Terminated(KeyboardInterrupt):
    """The exception that SIGTERM and SIGHUP raise. Treated as Ctrl-C is: whatever is half done is
    removed.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    @property
    def status(self) -> int:
        """The exit status, as shells count it: 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + self.number


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM and SIGHUP while a command runs."""
    for handled in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(handled, signal.SIG_IGN)  # a second one must not interrupt the tidying up
    raise Terminated(number)


@contextlib.contextmanager
def prepared_process() -> Iterator[None]:
    """Make the streams and signals of this process safe while a command runs.

    - A standard stream that was closed (``<&-``) is empty, a closed output is an error as soon as
      a result is written to it, and no file that is opened later gets its number, where a library
      would print into it.
    - What is printed to a terminal has its control characters shown; to a file or a pipe it goes
      as it is. What the encoding of stdout lacks (a console in cp1252, half a character of a file
      name) is escaped.
    - SIGTERM and SIGHUP raise :class:`Terminated`, unless they are ignored (``nohup``) or handled.
    - Matplotlib is not asked for the backend of a notebook from which the command was started: it
      may be a package that this Python has not, and a command only writes its plots to files.
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
    """Refuse to import PyTorch into less address space (``ulimit -v``) than it takes.

    Raises:
        BertineError: there is less.
    """
    limit = address_space_limit()
    if limit is not None and limit < _ADDRESS_SPACE:
        from bertine.terminal.console import human_bytes

        raise BertineError(
            f"the address space is limited to {human_bytes(limit)} (ulimit -v), but PyTorch alone "
            f"needs about {human_bytes(_ADDRESS_SPACE)}; raise the limit"
        )


def out_of_memory(error: BaseException) -> str | None:
    """Return one line for an error that says that memory has run out; None for every other
    error."""
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
    """Open the null device as 0, 1 and 2 where these are closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, so this one.
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)


def _handle_signals() -> dict[int, Any]:
    """Install :func:`raise_terminated`; what handled these signals before."""
    before: dict[int, Any] = {}
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGHUP"):
        return before
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, raise_terminated)
    return before


class _ClosedOutput(TextIOBase):
    """Standard output where there is none (``>&-``)."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        if text:
            raise BertineError("standard output is closed, and the results were to go there")
        return 0


class _TerminalOutput(TextIOBase):
    """Standard output that is a terminal: results hold texts from outside, and a file name or a
    label must not move the cursor or turn the direction of writing."""

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
