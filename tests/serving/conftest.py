"""Running servers over tiny models, and clients of plain sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from bertine.options.inference import ServeOptions
from bertine.serving.address import Limits, bound_socket
from bertine.serving.app import create_app
from bertine.serving.handles import ModelHandle, search_with
from bertine.serving.requests import Hosts
from bertine.serving.server import Server
from bertine.serving.service import Service

from .models import TASKS, write_task_model

#: Where the models of these tests compute.
ON_CPU: dict[str, Any] = {"device": "cpu", "precision": "fp32"}
#: A request of a text.
BODY = json.dumps({"texts": ["the cat"]}).encode()


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of an error, whose shape is checked."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == str(self.status)
        assert "\n" not in error["message"]
        return str(error["message"])


@dataclass
class Client:
    """Asks a server at a port of this machine."""

    port: int
    service: Service
    server: Server

    def __call__(
        self, path: str, body: Any = None, method: str | None = None, **headers: str
    ) -> Answer:
        """POST with a body (bytes as they are, else as JSON), GET without."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            given = {"Content-Type": "application/json"} if body is not None else {}
            given.update({name.replace("_", "-"): value for name, value in headers.items()})
            content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method or ("GET" if body is None else "POST"), path, content, given)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    @contextlib.contextmanager
    def connected(self, timeout: float = 30.0) -> Iterator[socket.socket]:
        """A plain connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            yield connection

    def refused(self, reason: str) -> float:
        """Connections that were ended for this."""
        found = self.service.metrics.registry.get_sample_value(
            "bertine_connections_refused_total", {"reason": reason}
        )
        assert found is not None, f"no count of {reason}"
        return found

    def raw(self, data: bytes, timeout: float = 30.0) -> bytes:
        """All that comes back until the server closes the connection."""
        with self.connected(timeout) as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def status(raw: bytes) -> int:
    """Of an answer as it came."""
    return int(raw.split(b" ", 2)[1])


def fine(client: Client) -> bool:
    """Whether it answers as usual."""
    return client("/predict", {"texts": ["the cat"]}).status == 200


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """The bytes of a request, after which the connection is to be closed."""
    size = len(body) if length is None else length
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {size}",
        "connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.contextmanager
def running(
    models: dict[str, Path],
    api_key: str | None = None,
    hosts: Hosts | None = None,
    send_buffer: int | None = None,
    options: ServeOptions | None = None,
    **limits: Any,
) -> Iterator[Client]:
    """A server in this process, on a free port, in a thread of its own; the kernel's buffer of
    answers may be made small."""
    bounds = Limits(**limits)
    asked = ServeOptions(**{**(options.values() if options else {}), **ON_CPU})
    served = [ModelHandle.load(name, path, asked, bounds) for name, path in models.items()]
    if asked.collection is not None:
        search_with(served, asked.collection)
    service = Service(served, bounds)
    server = Server(create_app(service, api_key, hosts or Hosts()))
    listener = bound_socket("127.0.0.1", 0)
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield Client(listener.getsockname()[1], service, server)
    finally:
        server.should_exit = True
        thread.join(20)
        service.close()
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of every task, and one of pre-training; the first classifies texts."""
    folder = tmp_path_factory.mktemp("served")
    return {kind: write_task_model(folder / kind, kind) for kind in [*TASKS, "fill-mask"]}


@pytest.fixture(scope="session")
def ask(models: dict[str, Path]) -> Iterator[Client]:
    """A server with the usual bounds over all the models."""
    with running(models) as client:
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


@pytest.fixture(scope="module")
def tight(models: dict[str, Path]) -> Iterator[Client]:
    """A server with bounds that are soon met."""
    with running(
        {"text": models["text"], "fill-mask": models["fill-mask"]},
        max_body_bytes=2000,
        max_texts=4,
        max_embedding_inputs=4,
        max_characters=50,
        max_queue=8,
        max_connections=6,
        request_timeout=1.5,
        read_timeout=0.5,
        explain_characters=20,
        max_masks=2,
    ) as client:
        yield client


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.01)
