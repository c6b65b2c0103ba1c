"""Whatever is sent: no fault of the server, answers of the shape its OpenAPI says, and it lives.

``FUZZ_EXAMPLES=1000`` asks that many of each path in place of a few.
"""

from __future__ import annotations

import os
import random

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .conftest import Client, eventually, read_all

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "12"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
PATHS = {
    **dict.fromkeys(("/health", "/ready", "/metrics", "/v1/models"), "GET"),
    **dict.fromkeys(("/predict", "/fill-mask", "/embed", "/v1/embeddings", "/rerank"), "POST"),
    **dict.fromkeys(("/explain", "/attention", "/", "/v1/embed"), "POST"),
}


@pytest.mark.takes(3)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize("path", PATHS)
def test_requests_made_of_the_openapi(
    path: str, mode: schemathesis.GenerationMode, ask: Client
) -> None:
    """Those that keep to it and those that do not."""
    if PATHS[path] == "GET" and mode is schemathesis.GenerationMode.NEGATIVE:
        pytest.skip("takes nothing that could be wrong")
    api = schemathesis.openapi.from_url(f"http://127.0.0.1:{ask.port}/openapi.json")

    @given(case=api[path][PATHS[path]].as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=EXAMPLES < 100,
        suppress_health_check=list(HealthCheck),
    )
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS, timeout=40)

    check()
    assert ask("/predict", {"texts": ["the cat"]}).status == 200


def test_bytes_that_are_no_http(ask: Client) -> None:
    draw = random.Random(7)
    pieces = [
        b"GET ",
        b"POST /predict ",
        b"HTTP/1.1\r\n",
        b"\r\n",
        b"content-length: 5\r\n",
        b"content-length: -1\r\n",
        b"transfer-encoding: chunked\r\n",
        b"ffffffffffffffff\r\n",
        b"connection: upgrade\r\nupgrade: websocket\r\n",
        b"host: \xff\r\n",
        b"\0" * 10,
        b'{"texts": ["a"]}',
        b"/%ff%00/../..",
    ]
    for _ in range(60 if EXAMPLES < 100 else 600):
        data = b"".join(draw.choices(pieces, k=draw.randint(1, 8)))
        if draw.random() < 0.5:
            data = bytes(byte ^ (draw.random() < 0.03) for byte in data)
        with ask.connected(5) as connection:
            connection.sendall(data)
            if draw.random() < 0.3:
                continue  # gone at once
            connection.shutdown(1)
            connection.settimeout(0.05)
            try:
                answer = read_all(connection)
            except TimeoutError:
                continue  # it waits for the rest
            assert not answer.startswith(b"HTTP/1.1 5"), (data, answer)
    assert ask("/predict", {"texts": ["the cat"]}).status == 200
    eventually(lambda: not ask.server.server_state.connections)


def test_clients_that_leave_at_any_moment(ask: Client) -> None:
    body = b'{"texts": ["the old cat", "the soup"], "model": "text"}'
    request = (
        b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    ) + body
    for length in range(0, len(request) + 1, 3):
        with ask.connected() as connection:
            connection.sendall(request[:length])
    eventually(lambda: not any(batcher.waiting for batcher in ask.service.batchers.values()))
    eventually(lambda: not ask.server.server_state.connections)
    eventually(lambda: not ask.server.server_state.tasks)
    assert ask("/predict", {"texts": ["the cat"]}).status == 200
