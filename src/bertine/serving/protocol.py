"""uvicorn's HTTP protocol with bounds on what a connection may keep waiting for.

uvicorn closes a connection that is idle between two requests. It waits for ever for the first
bytes, for the rest of the headers, and for a client that does not read its answer; httptools takes
headers of any size, trailers too; and requests that are sent ahead of the answers are all kept.
Each of these would let a few clients occupy all connections, or the memory.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.serving.requests import error_body

# httptools' parser for a server that speaks HTTP/1.1 and nothing else.
#
# Java's HTTP client, and others, offer HTTP/2 with the requests that they send (``Upgrade:
# h2c``). A server may go on as if nothing had been offered (RFC 9110, section 7.8). httptools
# takes such a request for one without a body, and the body for what comes in the other protocol:
# uvicorn would answer a request that it has not read, and take its body for the next one.

#: What says how a body is to be read.
_FRAMING = (b"content-length", b"transfer-encoding")


class PlainParser:
    """A parser of httptools that passes over offers of another protocol.

    Behind the head of a request with an offer, it goes on with a parser that has been given a head
    of ours, in which only the body is announced. So `protocol`, one of uvicorn's, hears
    ``on_message_complete`` twice: it is not to listen while ``should_upgrade()`` holds, nor to
    ``on_headers_complete`` while :attr:`repeats` does.

    Attributes:
        repeats: whether it reads a head of ours.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol, self.repeats = protocol, False
        self._begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse what came next.

        Raises:
            httptools.HttpParserError: it is not HTTP/1.1.
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
        # As uvicorn has it: what comes behind a last request does not keep it from an answer.
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


# Open the socket of a server in two steps: take the port, and listen when the models are there.

#: Connections that wait to be accepted.
_BACKLOG = 2048


def bound_socket(host: str, port: int) -> socket.socket:
    """Take `host` and `port` with a socket that does not listen yet, so that a port that is taken
    is reported before anything is loaded.

    Raises:
        BertineError: no such address on this machine, or the port is taken or not allowed.
    """
    if not 0 <= port < 1 << 16:
        raise BertineError(
            f"{host}:{port}: ports are 0 to 65535; choose another with {option('port')}"
        )
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise BertineError(f"{host}:{port}: {_reason(error)}; choose another address") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise BertineError(
            f"{host}:{port}: {_reason(error)}; choose another with "
            f"{option('host')} and {option('port')}"
        ) from error
    return listener


def listen(listener: socket.socket) -> None:
    """Take connections at a socket of :func:`bound_socket`.

    Raises:
        BertineError: another process has come to listen there since.
    """
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        where, number = listener.getsockname()[:2]
        raise BertineError(
            f"{where}:{number}: {_reason(error)}; choose another with "
            f"{option('host')} and {option('port')}"
        ) from error


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


if sys.platform == "linux":
    import fcntl
    import termios

#: Of the request line and the headers, in bytes.
MAX_HEADERS = 32 << 10
#: Requests that a client may have sent ahead of the answers, on one connection.
MAX_AHEAD = 128
#: Of its answers a client has to take so much, in bytes, or all there is, within each `timeout`.
LEAST_READ = 16 << 10

#: Why a connection was ended before the application had a say in it, and the status that the
#: client gets, if any.
REFUSALS: dict[str, int | None] = {
    "too_many": 503,
    "no_http": 400,
    "slow_headers": 408,
    "large_headers": 431,
    "silent": None,  # nothing came at all
    "too_far_ahead": None,
    "unread": None,  # the client does not read its answers
}


def bounded_protocol(
    max_connections: int, timeout: float, on_refused: Callable[[str], None]
) -> type[HttpToolsProtocol]:
    """Make the protocol class of a server.

    Args:
        max_connections: that are open at once; more are answered with 503 and closed.
        timeout: seconds for the headers, and for taking the next `LEAST_READ` of the answers.
        on_refused: called with one of `REFUSALS` for every connection that is ended for it.
    """

    class BoundedProtocol(HttpToolsProtocol):
        """One connection."""

        parser: PlainParser  # type: ignore[assignment]

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.parser = PlainParser(self)
            self._header_timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None
            # Since the last headers or part of a body was complete: these are kept by the parser.
            self._unheard = 0
            self._refused = False
            self._answering: RequestResponseCycle | None = None
            self._due = 0  # bytes that the client must have taken when the write timer ends

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
            # uvicorn tells the request that came last, which may not have been begun.
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
            # Headers, those of the next request while this one is computed, or trailers. What
            # follows a complete part in the same data is not counted, which is never much.
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
                raise ConnectionAbortedError  # ends the parser, which has more of them

        def on_body(self, body: bytes) -> None:
            self._unheard = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self.parser.should_upgrade():
                return  # its body is still to come
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
    """A transport that counts what is written to it.

    Attributes:
        written: bytes so far.
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
        """Count the bytes that are the client's: neither in the buffer here nor, where it is
        known, in the kernel's, which is megabytes on a fast line."""
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
