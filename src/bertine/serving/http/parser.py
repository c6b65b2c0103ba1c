"""httptools' parser for a server that speaks HTTP/1.1 and nothing else.

Java's HTTP client, and others, offer HTTP/2 with the requests that they send (``Upgrade: h2c``). A
server may go on as if nothing had been offered (RFC 9110, section 7.8). httptools takes such a
request for one without a body, and the body for what comes in the other protocol: uvicorn would
answer a request that it has not read, and take its body for the next one.
"""

from __future__ import annotations

from typing import Any

import httptools

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
