"""What is too much, too slow or not asked for is refused, in one line, and hurts nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bertine.errors import BertineError
from bertine.serving.limits import Limits
from bertine.serving.schemas import request_schemas

from .conftest import Client, eventually, post, read_all, running

BODY = json.dumps({"texts": ["the cat"]}).encode()


@pytest.fixture(scope="module")
def tight(models: dict[str, Path]) -> Iterator[Client]:
    """A server with bounds that are soon met."""
    with running(
        {"text": models["text"], "fill-mask": models["fill-mask"]},
        max_body_bytes=2000,
        max_texts=4,
        max_characters=50,
        max_queue=8,
        max_connections=6,
        request_timeout=1.5,
        read_timeout=0.5,
        explain_characters=20,
        max_masks=2,
    ) as client:
        yield client


class Held:
    """Holds a model back, and tells how many batches have begun."""

    def __init__(self, client: Client, name: str = "text", operation: str = "predict") -> None:
        self.operations = client.service.batchers[name].operations
        self.operation, self.usual = operation, self.operations[operation]
        self.gate, self.begun = threading.Event(), 0

    def _wait(self, inputs: Sequence[Any]) -> Sequence[Any]:
        self.begun += 1
        assert self.gate.wait(20)
        return self.usual(inputs)

    def __enter__(self) -> Held:
        self.operations[self.operation] = self._wait  # type: ignore[index]
        return self

    def __exit__(self, *error: object) -> None:
        self.gate.set()
        self.operations[self.operation] = self.usual  # type: ignore[index]


def status(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


def fine(client: Client) -> bool:
    return client("/predict", {"texts": ["the cat"]}).status == 200


# What requests say


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/predict", {"texts": ["a"] * 5}, "texts: List should have at most 4 items"),
        ("/predict", {"texts": ["a" * 51]}, "texts[0]: String should have at most 50"),
        ("/predict", {"texts": []}, "texts: List should have at least 1 item"),
        ("/predict", {"texts": "a"}, "texts: Input should be a valid list"),
        ("/predict", {"texts": [7]}, "texts[0]: Input should be a valid string"),
        ("/predict", {"text": ["a"]}, "texts: Field required"),
        ("/predict", {"texts": ["a"], "modle": "x"}, "modle: Extra inputs"),
        ("/predict", {"texts": [["a", "b"]]}, "texts[0]: has 2 parts; give one text (text)"),
        ("/predict", {"texts": ["a"], "model": "fill-mask"}, "has no predict; ask text"),
        ("/fill-mask", {"texts": ["no mask"]}, "texts[0]: has no [MASK]"),
        ("/fill-mask", {"texts": ["[MASK] [MASK] [MASK]"]}, "has 3 [MASK], but at most 2"),
        ("/fill-mask", {"texts": ["[MASK]"], "top_k": 51}, "top_k: Input should be less"),
        ("/explain", {"text": "a" * 21}, "text: String should have at most 20"),
        ("/explain", {"text": "a", "pair": "b", "model": "text"}, "this model takes one text"),
        ("/attention", {"text": "a", "layer": 9}, "layer is 9, but the model has 0 to 1"),
        ("/v1/embeddings", {"input": [[1, 2]], "model": "text"}, "input: Input should be"),
        (
            "/v1/embeddings",
            {"input": "a", "model": "text", "dimensions": 7},
            "dimensions: the model has 32",
        ),
    ],
)
def test_what_is_not_taken_is_said_in_one_line(
    path: str, body: Any, said: str, tight: Client
) -> None:
    answer = tight(path, body)
    assert answer.status == 422
    assert said in answer.message


def test_the_first_of_many_mistakes_is_enough(tight: Client) -> None:
    # A megabyte holds half a million of them: to list them all would hold everybody up.
    schemas = request_schemas(Limits())
    for schema, key in ((schemas.predict, "texts"), (schemas.embed, "texts")):
        for wrong in ([0] * 200, [["a"] * 10 + [0] * 9000] * 20):
            with pytest.raises(ValidationError) as found:
                schema.model_validate({key: wrong})
            assert found.value.error_count() <= 2
    answer = tight("/predict", {f"key{n}": n for n in range(100)})
    assert answer.status == 422
    assert "has 100 keys" in answer.message


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["the cat"], "texts[0]: give a list of 3 to 5 texts: question, then the choices"),
        ([["q", "a", "b"], ["q", "a"]], "texts[1]: give a list of 3 to 5 texts"),
        ([["q", "a", "b", "c", "d", "e"]], "texts[0]: give a list of 3 to 5 texts"),
        ([["q", " ", "b"]], "texts[0]: has an empty choice"),
    ],
)
def test_choices_are_checked(texts: Any, said: str, ask: Client) -> None:
    answer = ask("/predict", {"texts": texts, "model": "choice"})
    assert answer.status == 422
    assert said in answer.message


def test_windows_count_as_inputs(ask: Client) -> None:
    texts = [["the cat", "the small dog barks . " * 200]] * 20
    answer = ask("/predict", {"texts": texts, "model": "spans"})
    assert answer.status == 422
    assert "inputs, but at most 512 are taken at a time" in answer.message
    one = ask("/predict", {"texts": texts[:1], "model": "spans"})
    assert one.status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 1900,
        b'{"texts": ["a"]} x',
        b'{"texts": ["\\ud800"]}',
        b'{"texts": ["\xed\xa0\x80"]}',
        b'{"texts": [NaN]}',
        b'{"texts": ["[MASK]"], "top_k": 1e999}',
        b'{"texts": ["[MASK]"], "top_k": ' + b"9" * 1500 + b"}",
        b'{"texts": ["[MASK]"], "top_k": -Infinity}',
        b'{"\\ud800": 1}',
        b'{"texts": {"a": ' * 100,
    ],
)
def test_what_is_no_json_is_422(body: bytes, tight: Client) -> None:
    for path in ("/predict", "/fill-mask", "/embed", "/v1/embeddings", "/explain", "/attention"):
        answer = tight(path, body)
        assert answer.status == 422, answer.body
        assert answer.message


@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "\x1b[2J", "\u202e", "\ufffe", "𝕬" * 20, "e\u0301" * 20, " " * 50]
)
def test_strange_texts_are_texts(text: str, tight: Client) -> None:
    for path in ("/predict", "/embed"):
        assert tight(path, {"texts": [text], "model": "text"}).status == 200


def test_other_paths_methods_and_types(tight: Client) -> None:
    assert "/docs" in tight("/nowhere").message
    assert tight("/nowhere").status == 404
    assert tight("/predict").status == 405
    assert tight("/predict", {"texts": ["a"], "model": "x"}).status == 404
    wrong = tight("/predict", BODY, **{"Content-Type": "text/plain"})
    assert wrong.status == 415
    assert "application/json" in wrong.message
    named = tight("/predict", BODY, **{"Content-Type": "application/json; charset=utf-8"})
    assert named.status == 200


def test_what_is_no_http_is_400_and_counted(tight: Client) -> None:
    before = tight.refused("no_http")
    answer = tight.raw(b"hello\r\n\r\n")
    assert status(answer) == 400
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == 400
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
    began = time.monotonic()
    for declared in (10**9, 10**30):
        answer = tight.raw(post("/predict", b"{", length=declared))
        assert answer == b"" or status(answer) in (400, 413)
    waits = tight.raw(post("/predict", b"", "expect: 100-continue", length=5000))
    assert status(waits) == 413
    assert time.monotonic() - began < 3


def test_a_slow_body_is_408_while_others_are_answered(tight: Client) -> None:
    with tight.connected() as connection:
        connection.sendall(post("/predict", b"{", length=500))
        assert fine(tight)
        assert status(read_all(connection)) == 408
    with tight.connected() as connection:  # a byte now and then does not help
        connection.sendall(post("/predict", b"", length=500))
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 3:
                connection.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() - began < 2.5


def test_slow_headers_and_silent_connections_are_closed(tight: Client) -> None:
    with tight.connected() as silent, tight.connected() as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nhost: localhost\r\n")
        began = time.monotonic()
        counts = [tight.refused("slow_headers"), tight.refused("silent")]
        assert status(read_all(slow)) == 408
        assert read_all(silent) == b""
        assert time.monotonic() - began < 3
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
            began = time.monotonic()
            with contextlib.suppress(OSError):  # it is closed before all of it is sent
                connection.sendall(begin)
                for _ in range(500):
                    connection.sendall(endless)
            answer = read_all(connection)
            assert answer == b"" or status(answer) == 431
            assert time.monotonic() - began < 5
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


# Load


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


def test_a_full_queue_is_429_and_says_when(tight: Client) -> None:
    body = {"texts": ["the cat"] * 4}
    with ThreadPoolExecutor(4) as pool, Held(tight) as held:
        first = pool.submit(tight, "/predict", body)
        eventually(lambda: held.begun == 1)
        others = [pool.submit(tight, "/predict", body) for _ in range(2)]
        eventually(lambda: tight.service.batchers["text"].waiting == 8)
        refused = tight("/predict", body)
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "try again in" in refused.message
        # The other model's queue is its own.
        held.gate.set()
        assert [done.result().status for done in (first, *others)] == [200] * 3
    assert fine(tight)


def test_too_late_is_504_and_leaves_nothing_behind(tight: Client) -> None:
    with ThreadPoolExecutor(1) as pool, Held(tight) as held:
        first = pool.submit(tight, "/predict", {"texts": ["the cat"]})
        eventually(lambda: held.begun == 1)
        late = tight("/predict", {"texts": ["the cat"] * 3})
        answer = first.result()
        assert [answer.status, late.status] == [504, 504]
        assert "no answer within 1.5 s" in answer.message
        assert tight.service.batchers["text"].waiting == 0
        assert tight("/health").status == 200
    assert fine(tight)


def test_who_leaves_is_no_longer_computed_for(tight: Client) -> None:
    with Held(tight) as held, tight.connected() as first:
        first.sendall(post("/predict", BODY))
        eventually(lambda: held.begun == 1)
        with tight.connected() as second:
            second.sendall(post("/predict", BODY))
            eventually(lambda: tight.service.batchers["text"].waiting == 1)
        eventually(lambda: tight.service.batchers["text"].waiting == 0)
    assert b'code="499"' in tight("/metrics").body
    assert fine(tight)


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
        assert found.endswith(b"]]}")
        assert client.refused("unread") == 0


def test_short_work_does_not_wait_for_long_work_in_the_thread_of_the_loop(tight: Client) -> None:
    gate = threading.Event()

    async def work() -> None:
        here = threading.get_ident()
        assert await tight.service.aside(1, threading.get_ident) == here
        long = asyncio.ensure_future(tight.service.aside(10**6, gate.wait, 20))
        await asyncio.sleep(0.01)
        # Both may want the tokenizer, which has a lock.
        assert await tight.service.aside(1, threading.get_ident) != here
        gate.set()
        assert await long
        while tight.service._long:
            await asyncio.sleep(0.001)
        assert await tight.service.aside(1, threading.get_ident) == here

    asyncio.run(asyncio.wait_for(work(), 20))


def test_a_fault_is_500_for_its_request_alone(tight: Client) -> None:
    operations = tight.service.batchers["text"].operations
    usual = operations["predict"]

    def broken(inputs: Sequence[Any]) -> Sequence[Any]:
        raise ZeroDivisionError("secret detail")

    operations["predict"] = broken  # type: ignore[index]
    try:
        answer = tight("/predict", {"texts": ["the cat"]})
    finally:
        operations["predict"] = usual  # type: ignore[index]
    assert answer.status == 500
    assert "secret" not in answer.message
    assert fine(tight)


# The key


def test_the_key_is_wanted_but_for_the_page_and_the_state(models: dict[str, Path]) -> None:
    with running({"text": models["text"]}, api_key="sesame-7") as client:
        for headers in ({}, {"Authorization": "Bearer sesame"}, {"Authorization": "sesame-7"}):
            answer = client("/predict", {"texts": ["a"]}, **headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer KEY" in answer.message
        right = {"Authorization": "Bearer sesame-7"}
        assert client("/predict", {"texts": ["a"]}, **right).status == 200
        assert client("/metrics").status == 401
        assert client("/v1/models").status == 401
        assert client("/v1/models", **right).status == 200
        for path in ("/", "/docs", "/health", "/ready"):
            assert client(path).status == 200
        # Nothing is read of a body that nobody is let in with.
        assert status(client.raw(post("/predict", b"", length=10**6))) == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_texts": 0},
        {"max_queue": 5, "max_texts": 6},
        {"request_timeout": 0.0},
        {"request_timeout": float("inf")},
        {"read_timeout": float("nan")},
        {"max_wait_ms": 1e13},
    ],
)
def test_bounds_that_leave_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BertineError, match=next(iter(wrong))):
        Limits(**wrong)
