"""What comes slowly, without end, in the wrong shape or is not read holds nobody else up."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.serving.server import affordable_connections

from .conftest import BODY, Client, Held, eventually, fine, post, read_all, running, status


def test_what_is_no_http_is_400_and_counted(tight: Client) -> None:
    before = tight.refused("no_http")
    answer = tight.raw(b"hello\r\n\r\n")
    assert status(answer) == 400
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "400"
    assert tight.refused("no_http") == before + 1
    assert b'bertine_connections_refused_total{reason="no_http"}' in tight("/metrics").body


# Bodies


def test_a_body_that_is_too_large_is_413(tight: Client) -> None:
    body = json.dumps({"texts": ["a" * 2000]}).encode()
    answer = tight("/predict", body)
    assert answer.status == 413
    assert "more than 2000 bytes" in answer.message
    assert fine(tight)


def test_a_body_without_a_length_is_counted_as_it_comes(tight: Client) -> None:
    def chunked(chunks: int) -> bytes:
        head = (
            b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        return head + b"3e8\r\n" + (b" " * 1000 + b"\r\n3e8\r\n") * chunks

    small = chunked(0).replace(b"3e8\r\n", b"") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    assert status(tight.raw(small)) == 200
    assert status(tight.raw(chunked(3) + b" " * 1000 + b"\r\n0\r\n\r\n")) == 413
    # Far above the bound nobody waits for the end.
    assert status(tight.raw(chunked(40))) == 413


def test_a_length_that_is_too_large_is_not_waited_for(tight: Client) -> None:
    """Or it would be 408, as below."""
    for declared in (10**9, 10**30):
        answer = tight.raw(post("/predict", b"{", length=declared))
        assert answer == b"" or status(answer) in (400, 413)
    waits = tight.raw(post("/predict", b"", "expect: 100-continue", length=5000))
    assert status(waits) == 413


def test_a_slow_body_is_408_while_others_are_answered(tight: Client) -> None:
    with tight.connected() as connection:
        connection.sendall(post("/predict", b"{", length=500))
        assert fine(tight)
        assert status(read_all(connection)) == 408
    with tight.connected() as connection:  # a byte now and then does not help
        connection.sendall(post("/predict", b"", length=500))
        for _ in range(400):
            try:
                connection.sendall(b" ")
            except OSError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("it is not closed")


# Offers of another protocol


OFFER = ("upgrade: h2c", "connection: Upgrade, HTTP2-Settings", "http2-settings: AAMAAABkAAQAAP__")


def offering(*headers: str) -> bytes:
    """The head of a request as Java's client sends it, which would rather speak HTTP/2."""
    given = ["host: localhost", "content-type: application/json", *OFFER, *headers]
    return "\r\n".join(["POST /predict HTTP/1.1", *given, "", ""]).encode()


WHOLE = offering(f"content-length: {len(BODY)}") + BODY
CHUNKED = offering("transfer-encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
SOCKET = (
    b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
)


@pytest.mark.parametrize("request_", [WHOLE, CHUNKED, SOCKET], ids=["length", "chunks", "socket"])
@pytest.mark.parametrize("part", [1, 50, 1000], ids=["bytes", "parts", "whole"])
def test_an_offer_of_another_protocol_is_passed_over(
    request_: bytes, part: int, ask: Client, caplog: pytest.LogCaptureFixture
) -> None:
    last = WHOLE.replace(b"connection: Upgrade", b"connection: close, Upgrade")
    sent = request_ + request_ + last
    with ask.connected() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), part):
            connection.sendall(sent[at : at + part])
        connection.settimeout(5)
        answers = read_all(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == answers.count(b"HTTP/1.1") == 3
    assert answers.count(b'"predictions"') == (1 if request_ is SOCKET else 3)
    assert not caplog.records  # clients are not to fill the log


def test_what_is_wrong_behind_an_offer_is_400(tight: Client) -> None:
    answer = tight.raw(offering("transfer-encoding: gzip") + BODY)
    assert answer == b"" or status(answer) == 400
    assert fine(tight)


# Headers, and requests ahead of their answers


def test_slow_headers_and_silent_connections_are_closed(tight: Client) -> None:
    with tight.connected() as silent, tight.connected() as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nhost: localhost\r\n")
        counts = [tight.refused("slow_headers"), tight.refused("silent")]
        assert status(read_all(slow)) == 408
        assert read_all(silent) == b""
        assert [tight.refused("slow_headers"), tight.refused("silent")] == [n + 1 for n in counts]
    with tight.connected() as again:  # and between two requests
        again.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200" in again.recv(1000)
        again.sendall(b"GET /hea")
        assert status(read_all(again)) == 408


def test_endless_headers_are_refused(tight: Client) -> None:
    head = b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"x-a: " + b"b" * 100_000
    before = tight.refused("large_headers")
    answer = tight.raw(head)
    assert answer == b"" or status(answer) == 431
    assert tight.refused("large_headers") == before + 1
    assert fine(tight)


def test_endless_headers_of_a_next_request_and_endless_trailers_are_refused(tight: Client) -> None:
    endless = b"x-a: " + b"b" * 20_000
    chunked = (
        b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
    )
    with Held(tight) as held, tight.connected() as ahead, tight.connected() as trailing:
        ahead.sendall(post("/predict", BODY).replace(b"connection: close\r\n", b""))
        eventually(lambda: held.begun == 1)
        for connection, begin in ((ahead, b"GET /health HTTP/1.1\r\n"), (trailing, chunked)):
            with contextlib.suppress(OSError):  # it is closed before all of it is sent
                connection.sendall(begin)
                for _ in range(500):
                    connection.sendall(endless)
            answer = read_all(connection)
            assert answer == b"" or status(answer) == 431
    eventually(lambda: not tight.server.server_state.connections)
    assert fine(tight)


def left(client: Client) -> float:
    """Questions whose clients have left."""
    return float(client.service.metrics.requests.labels("/predict", "499")._value.get())


def test_requests_far_ahead_of_the_answers_are_not_kept(tight: Client) -> None:
    before, ended = left(tight), tight.refused("too_far_ahead")
    with Held(tight) as held, tight.connected() as connection:
        connection.sendall(post("/predict", BODY).replace(b"connection: close\r\n", b""))
        eventually(lambda: held.begun == 1)
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1000)
        assert read_all(connection) == b""
        eventually(lambda: not tight.server.server_state.connections)
        eventually(lambda: not tight.server.server_state.tasks)
    assert left(tight) == before + 1  # nor is what was begun worked on
    assert tight.refused("too_far_ahead") == ended + 1
    assert fine(tight)


def test_more_connections_than_there_may_be_are_503(tight: Client) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(tight.connected())
        eventually(lambda: len(tight.server.server_state.connections) == 6)
        before = tight.refused("too_many")
        with tight.connected() as connection:
            answer = read_all(connection)
        assert tight.refused("too_many") == before + 1
        assert status(answer) == 503
        assert b"retry-after: 1" in answer
        error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
        assert "too many connections" in error["message"]
    eventually(lambda: not tight.server.server_state.connections)
    assert fine(tight)


def test_connections_are_as_many_as_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    opened = len(os.listdir("/dev/fd"))
    allowed = opened + 40
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (allowed, allowed))
    assert 1 <= affordable_connections(512) <= 40
    assert f"this process may open {allowed} files (ulimit -n)" in capsys.readouterr().err
    assert affordable_connections(3) == 3
    assert not capsys.readouterr().err
    allowed = opened
    with pytest.raises(BertineError, match=r"files \(ulimit -n\), which leaves none"):
        affordable_connections(512)


def test_that_no_file_can_be_opened_is_said_once_a_minute(
    tight: Client, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    full = {"message": "", "exception": OSError(errno.EMFILE, "Too many open files")}
    for _ in range(3):
        tight.server._on_fault(loop, full)
    assert [record.getMessage() for record in caplog.records] == [
        "new connections wait: Too many open files (see ulimit -n)"
    ]
    tight.server._on_fault(loop, {"message": "another fault"})
    assert caplog.records[-1].getMessage() == "another fault"
    loop.close()


# Answers


@contextlib.contextmanager
def answers_waiting(client: Client, count: int, buffer: int = 4096) -> Iterator[socket.socket]:
    """A connection with a small buffer, and `count` large answers to be read from it."""
    request = post("/embed", json.dumps({"texts": ["the cat"] * 256}).encode())
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", client.port))
        for number in range(count):
            last = number == count - 1
            connection.sendall(request if last else request.replace(b"connection: close\r\n", b""))
        open_ones = client.server.server_state.connections
        eventually(lambda: any(each.transport.get_write_buffer_size() for each in open_ones))
        yield connection


def test_who_does_not_read_the_answers_is_let_go(models: dict[str, Path]) -> None:
    with running({"text": models["text"]}, read_timeout=0.5, send_buffer=8192) as client:
        with answers_waiting(client, 3):
            eventually(lambda: not client.server.server_state.connections)
        assert client.refused("unread") == 1
        assert fine(client)


@pytest.mark.slow
def test_who_reads_a_byte_now_and_then_is_let_go(models: dict[str, Path]) -> None:
    with running({"text": models["text"]}, read_timeout=0.5, send_buffer=8192) as client:
        with answers_waiting(client, 3) as connection:

            def ended() -> bool:
                connection.recv(20)
                return client.refused("unread") == 1

            eventually(ended)
        eventually(lambda: not client.server.server_state.connections)


def test_who_reads_slowly_gets_the_whole_answer(models: dict[str, Path]) -> None:
    with running({"text": models["text"]}, read_timeout=0.4, send_buffer=8192) as client:
        began, found = time.monotonic(), b""
        with answers_waiting(client, 4, buffer=32768) as connection:
            while part := connection.recv(8192):
                found += part
                time.sleep(0.05)
        assert time.monotonic() - began > 3 * 0.4  # more than one read_timeout in all
        assert found.count(b"HTTP/1.1 200") == 4
        assert found.endswith(b"]}")
        assert client.refused("unread") == 0
