"""uvicorn's HTTP protocol with bounds on what a connection may keep waiting for.

uvicorn closes a connection that is idle between two requests. It waits for ever for the first
bytes, for the rest of the headers, and for a client that does not read its answer; and httptools
takes headers of any size. Each of these would let a few clients occupy all connections.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bertine.serving.errors import error_body

#: Of the request line and the headers, in bytes.
MAX_HEADERS = 32 << 10


def bounded_protocol(max_connections: int, timeout: float) -> type[HttpToolsProtocol]:
    """The protocol class of a server.

    Args:
        max_connections: that are open at once; more are answered with 503 and closed.
        timeout: seconds for the headers, and for reading the answer.
    """

    class BoundedProtocol(HttpToolsProtocol):
        """One connection."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._header_timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None
            self._header_bytes = 0
            self._refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                self._refuse(503, "too many connections; try again in a second", retry=True)
            else:
                self._await_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._header_timer, self._write_timer):
                if timer is not None:
                    timer.cancel()
            self._unset_keepalive_if_required()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._refused or self.transport.is_closing():
                return
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self._header_timer is None:
                self._await_headers()
            if self._header_timer is not None:
                self._header_bytes += len(data)
            super().data_received(data)
            # Bytes of a body may be among those counted, but then the headers were complete.
            if self._header_timer is not None and self._header_bytes > MAX_HEADERS:
                self._refuse(431, f"the headers have more than {MAX_HEADERS} bytes")

        def on_headers_complete(self) -> None:
            self._stop_header_timer()
            super().on_headers_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "this is not a request of HTTP/1.1")

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.transport.get_write_buffer_size():
                self._await_reading()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._await_reading()

        def resume_writing(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None
            super().resume_writing()

        def _await_headers(self) -> None:
            self._header_bytes = 0
            self._header_timer = self.loop.call_later(timeout, self._headers_late)

        def _stop_header_timer(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

        def _headers_late(self) -> None:
            self._header_timer = None
            if self._header_bytes:
                self._refuse(408, f"the headers did not come within {timeout:g} s")
            else:
                self.transport.abort()

        def _await_reading(self) -> None:
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(timeout, self._not_read)

        def _not_read(self) -> None:
            self._write_timer = None
            if self.transport.get_write_buffer_size():
                self.transport.abort()

        def _refuse(self, status: int, message: str, retry: bool = False) -> None:
            self._refused = True
            self._stop_header_timer()
            body = json.dumps(error_body(status, message)).encode()
            reasons = {
                400: "Bad Request",
                408: "Request Timeout",
                431: "Request Header Fields Too Large",
                503: "Service Unavailable",
            }
            lines = [
                f"HTTP/1.1 {status} {reasons[status]}",
                "content-type: application/json",
                f"content-length: {len(body)}",
                *(["retry-after: 1"] if retry else []),
                "connection: close",
            ]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
            self.transport.close()
            if self.transport.get_write_buffer_size():
                self._await_reading()

    return BoundedProtocol
