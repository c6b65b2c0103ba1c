"""Bound what a connection may keep waiting: the parser, and uvicorn's HTTP protocol.

uvicorn closes a connection that is idle between two requests. But it waits for ever for the first
bytes, for the rest of the headers, and for a client that does not read its answer; httptools
accepts headers of any size, trailers too; and all requests that are sent ahead of the answers are
kept. Each of these would allow a few clients to occupy all connections, or the memory.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bertine.serving.requests import error_body

# Parser: httptools for a server that speaks only HTTP/1.1.
#
# Java's HTTP client, and others, offer HTTP/2 with their requests (``Upgrade: h2c``). A server may
# proceed as if nothing had been offered (RFC 9110, section 7.8). httptools reads such a request as
# one without a body, and the body as data of the other protocol: uvicorn would answer a request
# that it has not read, and read its body as the next one.

#: The headers that determine how a body is read.
_FRAMING = (b"content-length", b"transfer-encoding")


class PlainParser:
    """A parser of httptools that ignores offers of another protocol.

    After the head of a request with an offer, it continues with a new parser that was fed a
    synthetic head, which announces only the body. So `protocol`, one of uvicorn's, receives
    ``on_message_complete`` twice: it must ignore it while ``should_upgrade()`` holds, and
    ``on_headers_complete`` while :attr:`repeats` does.

    Attributes:
        repeats: whether it is reading the synthetic head.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol, self.repeats = protocol, False
        self._begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse the next data.

        Raises:
            httptools.HttpParserError: the data is not HTTP/1.1.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self._expect_body()
            else:
                return

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self._protocol)
        # As in uvicorn: data after a last request does not prevent its answer.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _expect_body(self) -> None:
        protocol = self._protocol
        head = protocol.url, protocol.headers, protocol.scope, protocol.expect_100_continue
        framing = [name + b": " + value for name, value in protocol.headers if name in _FRAMING]
        self._begin()
        self.repeats = True
        try:
            self._parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""]))
        finally:
            self.repeats = False
            protocol.url, protocol.headers, protocol.scope, protocol.expect_100_continue = head


if sys.platform == "linux":
    import fcntl
    import termios

#: The maximum size of the request line and the headers, in bytes.
MAX_HEADERS = 32 << 10
#: The maximum number of requests sent ahead of the answers, on one connection.
MAX_AHEAD = 128
#: The bytes of its answers that a client must read (or all there are) within each `timeout`.
LEAST_READ = 16 << 10

#: The reasons for ending a connection before the application sees a request, and the status that
#: the client gets, if any.
REFUSALS: dict[str, int | None] = {
    "too_many": 503,
    "no_http": 400,
    "slow_headers": 408,
    "large_headers": 431,
    "silent": None,  # nothing was received
    "too_far_ahead": None,
    "unread": None,  # the client does not read its answers
}


def bounded_protocol(
    max_connections: int, timeout: float, on_refused: Callable[[str], None]
) -> type[HttpToolsProtocol]:
    """Make the protocol class of a server.

    Args:
        max_connections: the maximum of open connections; further ones are answered with 503 and
            closed.
        timeout: seconds for the headers, and for reading the next `LEAST_READ` bytes of the
            answers.
        on_refused: called with one of `REFUSALS` for every connection that is ended for this
            reason.
    """

    class BoundedProtocol(HttpToolsProtocol):
        """A connection with bounds."""

        parser: PlainParser  # type: ignore[assignment]

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.parser = PlainParser(self)
            self._header_timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None
            # Bytes since the last complete headers or part of a body, which the parser keeps.
            self._unheard = 0
            self._refused = False
            self._answering: RequestResponseCycle | None = None
            self._due = 0  # the bytes that the client must have read when the write timer ends

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self._outgoing = _Outgoing(transport)
            super().connection_made(self._outgoing)  # type: ignore[arg-type]
            if len(self.connections) > max_connections:
                self._refuse("too_many", "too many connections; try again in a second", retry=True)
            else:
                self._await_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._header_timer, self._write_timer):
                if timer is not None:
                    timer.cancel()
            self._unset_keepalive_if_required()
            # uvicorn reports the latest request, which may not have been started.
            if self._answering is not None and not self._answering.response_complete:
                self._answering.disconnected = True
                self._answering.message_event.set()
            super().connection_lost(exc)

        def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
            self._answering = cycle
            super()._start_asgi_task(cycle, app)

        def data_received(self, data: bytes) -> None:
            if self._refused or self.transport.is_closing():
                return
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self._header_timer is None:
                self._await_headers()
            self._unheard += len(data)
            super().data_received(data)
            # Headers, those of the next request while this one is computed, or trailers. Data after
            # a complete part in the same chunk is not counted; it is never much.
            if self._unheard > MAX_HEADERS and not self._refused:
                self._refuse("large_headers", f"the headers have more than {MAX_HEADERS} bytes")

        def on_headers_complete(self) -> None:
            if self.parser.repeats:
                return
            self._unheard = 0
            self._stop_header_timer()
            super().on_headers_complete()
            if len(self.pipeline) > MAX_AHEAD:
                self._abort("too_far_ahead")
                raise ConnectionAbortedError  # stops the parser, which has more of them

        def on_body(self, body: bytes) -> None:
            self._unheard = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self.parser.should_upgrade():
                return  # its body is still incomplete
            self._unheard = 0
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            if not self._refused:
                self._refuse("no_http", "this is not a request of HTTP/1.1")

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
            self._unheard = 0
            self._header_timer = self.loop.call_later(timeout, self._headers_late)

        def _stop_header_timer(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

        def _headers_late(self) -> None:
            self._header_timer = None
            if self._unheard:
                self._refuse("slow_headers", f"the headers did not come within {timeout:g} s")
            else:
                self._abort("silent")

        def _await_reading(self) -> None:
            if self._write_timer is None:
                self._due = min(self._outgoing.taken() + LEAST_READ, self._outgoing.written)
                self._write_timer = self.loop.call_later(timeout, self._look_at_reading)

        def _look_at_reading(self) -> None:
            self._write_timer = None
            if not self.transport.get_write_buffer_size():
                return
            if self._outgoing.taken() < self._due:
                self._abort("unread")
            else:
                self._await_reading()

        def _abort(self, reason: str) -> None:
            if not self._refused:
                self._refused = True
                on_refused(reason)
            self.transport.abort()

        def _refuse(self, reason: str, message: str, retry: bool = False) -> None:
            self._refused = True
            on_refused(reason)
            self._stop_header_timer()
            status = REFUSALS[reason]
            assert status is not None
            body = json.dumps(error_body(status, message)).encode()
            lines = [
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
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


class _Outgoing:
    """A transport that counts the bytes written to it.

    Attributes:
        written: the bytes so far.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def taken(self) -> int:
        """Count the bytes that have left the buffer here and, where it is known, the kernel's,
        which is megabytes on a fast line."""
        return self.written - self._transport.get_write_buffer_size() - self._in_kernel()

    def _in_kernel(self) -> int:
        if sys.platform != "linux":
            return 0
        try:
            descriptor = self._transport.get_extra_info("socket").fileno()
            count = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
        except OSError:
            return 0
        return int.from_bytes(count, sys.byteorder)
