"""uvicorn with our bounds on connections, and an ordinary end after a signal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

import uvicorn

from bertine.serving.app import create_app
from bertine.serving.http.hosts import Hosts
from bertine.serving.http.protocol import bounded_protocol
from bertine.serving.service import Service

#: Seconds between two requests after which a connection is closed.
_KEEP_ALIVE = 15


class Server(uvicorn.Server):
    """A uvicorn over the models of `service`, with our bounds on connections, and an ordinary end
    after a signal.

    Args:
        service: stays open when the server ends.
        api_key: None: no key.
        hosts: that requests may name; None: those of a server on loopback.
    """

    def __init__(
        self, service: Service, api_key: str | None = None, hosts: Hosts | None = None
    ) -> None:
        limits = service.limits
        super().__init__(
            uvicorn.Config(
                create_app(service, api_key, hosts or Hosts()),
                http=bounded_protocol(
                    limits.max_connections, limits.read_timeout, service.metrics.connection_refused
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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT end the server when requests are answered; a second SIGINT ends it
        at once. uvicorn would raise the signal again at the end, as if nobody had heard it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
