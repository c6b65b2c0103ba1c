"""Run uvicorn with bounded connections, and end as usual after a signal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.serving.guard import Guard
from bertine.serving.protocol import bounded_protocol

if sys.platform != "win32":
    import resource

log = logging.getLogger("bertine.serving")
#: Seconds between two requests after which a connection is closed.
_KEEP_ALIVE = 15
#: Files that a process opens in addition to its connections: logs, pages, modules imported late,
#: and connections that are being refused.
_SPARE_FILES = 16
#: The errors of accepting a connection when there is no room for another one.
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: Seconds between two lines of the log about that.
_SAID_EVERY = 60.0


class Server(uvicorn.Server):
    """uvicorn for an application, with bounded connections, and an ordinary end after a signal.

    Args:
        app: the application with its bounds, which counts refused connections.

    Raises:
        BertineError: the process may open too few files for any connection.
    """

    def __init__(self, app: Guard) -> None:
        limits = app.limits
        super().__init__(
            uvicorn.Config(
                app,
                http=bounded_protocol(
                    affordable_connections(limits.max_connections),
                    limits.read_timeout,
                    app.metrics.connection_refused,
                ),
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=int(limits.request_timeout) + 5,
            )
        )
        self._said_full = -_SAID_EVERY

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_fault)
        await super().serve(sockets)
        if self.force_exit:  # uvicorn keeps what is raised in a request
            raise KeyboardInterrupt

    def _on_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log once a minute that connections wait because no file can be opened: the event loop
        tries again every second, and would write a traceback for each waiting one."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._said_full >= _SAID_EVERY:
            self._said_full = time.monotonic()
            log.warning("new connections wait: %s (see ulimit -n)", error.strerror)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End the server after SIGTERM, SIGINT or SIGHUP (unless ignored, as under ``nohup``) when
        requests are answered. uvicorn would raise the signal again at the end, as if it were
        unhandled."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ending = {signal.SIGINT, signal.SIGTERM}
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            ending.add(signal.SIGHUP)
        before = {number: signal.signal(number, self.handle_exit) for number in ending}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server; at once after the second SIGINT."""
        super().handle_exit(sig, frame)
        if self.force_exit:
            raise KeyboardInterrupt


def affordable_connections(wanted: int) -> int:
    """Return how many connections may be open at once, at most `wanted`, within the files that this
    process may open (``ulimit -n``); log it where these are fewer.

    Raises:
        BertineError: there is room for no connection.
    """
    if sys.platform == "win32":
        return wanted
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = next((folder for folder in ("/proc/self/fd", "/dev/fd") if os.path.isdir(folder)), "")
    room = limit - (len(os.listdir(opened)) if opened else 0) - _SPARE_FILES
    if limit == resource.RLIM_INFINITY or room >= wanted:
        return wanted
    if room < 1:
        raise BertineError(
            f"this process may open {limit} files (ulimit -n), which leaves none for connections; "
            "raise the limit"
        )
    logger.info(
        f"at most {room} connections at once ({option('max_connections')} is {wanted}): this "
        f"process may open {limit} files (ulimit -n)"
    )
    return room
