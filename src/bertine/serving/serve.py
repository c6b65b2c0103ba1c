"""``serve``: models behind HTTP until a signal ends it."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertine.console import counted, human_time, say, warn
from bertine.errors import BertineError
from bertine.files import os_errors
from bertine.models.memory import bound_kernels, keep_freed_memory
from bertine.serving.limits import Limits
from bertine.serving.served import Served, named_models

try:
    import uvicorn

    from bertine.serving.app import create_app
    from bertine.serving.computing import ComputingThread
    from bertine.serving.hosts import Hosts
    from bertine.serving.protocol import bounded_protocol
    from bertine.serving.service import Service
except ModuleNotFoundError as error:
    if error.name not in ("fastapi", "uvicorn", "httptools", "prometheus_client", "starlette"):
        raise
    raise BertineError(
        f"serving needs the package {error.name}; pip install 'bertine[serve]'"
    ) from error

#: The environment's name for the key: an argument would show in the list of processes.
API_KEY = "BERTINE_API_KEY"
#: Seconds between two requests after which a connection is closed.
_KEEP_ALIVE = 15
#: Seconds that the end waits for a model that is being loaded.
_LOADING = 30.0
#: Connections that wait to be accepted.
_BACKLOG = 2048


@dataclass
class ServeReport:
    """What a server did until it ended.

    Attributes:
        requests: answered, errors among them.
        inputs: texts (or windows of long ones) computed.
        seconds: from the first moment it took requests.
    """

    requests: int
    inputs: int
    seconds: float

    def lines(self) -> list[str]:
        """What a person reads in the terminal."""
        return [
            f"answered {counted(self.requests, 'request')} in {human_time(self.seconds)}; "
            f"computed {self.inputs} inputs"
        ]


def serve(
    models: Sequence[str | Path] | str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str | None = None,
    precision: str = "auto",
    api_key_file: Path | str | None = None,
    allowed_hosts: Sequence[str] | str | None = None,
    max_wait_ms: float = 5.0,
    max_batch_tokens: int = 768,
    max_queue: int = 1024,
    max_texts: int = 256,
    max_characters: int = 20_000,
    max_body_bytes: int = 1 << 20,
    max_connections: int = 512,
    request_timeout: float = 30.0,
    read_timeout: float = 10.0,
) -> ServeReport:
    """Answer over HTTP until SIGTERM or SIGINT; requests that have begun are answered first.

    Args:
        models: model directories, each with or without a name (``NAME=DIR``); the first answers
            requests that name none.
        host: an address of this machine; only loopback is reached from nowhere else.
        port: 0: a free one.
        device: as PyTorch calls it; None: the GPU if there is one.
        precision: ``"auto"``, ``"fp32"``, ``"bf16"`` or, on a CPU, ``"int8"``.
        api_key_file: a file with the key that requests must have as ``Authorization: Bearer KEY``;
            None: what the environment's BERTINE_API_KEY says, else no key.
        allowed_hosts: names that requests may have in their Host header beside localhost,
            addresses and `host`; ``*.example.com``: all under it; ``*``: every one.
        max_wait_ms: how long a request waits for others to be computed with.
        max_batch_tokens: computed together.
        max_queue: inputs that wait for a model.
        max_texts: in a request.
        max_characters: of a text.
        max_body_bytes: of a request.
        max_connections: open at once.
        request_timeout: seconds until the answer.
        read_timeout: seconds for a client to send its headers, and its body, and to take the next
            16 KB of the answer.

    Raises:
        BertineError: no such model, a name twice, a port that is taken, a key that is empty, a
            bound that leaves nothing to serve, an allowed host that is no name.
    """
    limits = Limits(
        max_body_bytes=max_body_bytes,
        max_texts=max_texts,
        max_characters=max_characters,
        max_queue=max_queue,
        max_connections=max_connections,
        max_batch_tokens=max_batch_tokens,
        max_wait_ms=max_wait_ms,
        request_timeout=request_timeout,
        read_timeout=read_timeout,
    )
    paths = named_models([models] if isinstance(models, str | Path) else models)
    key = read_api_key(api_key_file)
    allowed = [allowed_hosts] if isinstance(allowed_hosts, str) else allowed_hosts or ()
    hosts = Hosts(host, allowed)
    bound_kernels()
    with contextlib.closing(bound_socket(host, port)) as listener:
        keep_freed_memory()  # before there is another thread: each takes its heap at its start
        computing = ComputingThread()
        try:
            loaded = computing.run(
                lambda: [
                    Served.load(name, path, limits, device=device, precision=precision)
                    for name, path in paths.items()
                ]
            )
            service = Service(loaded, limits, computing)
        except BaseException:  # Ctrl-C too: Python must not end below a thread that computes
            computing.close(_LOADING)
            raise
        try:
            where, number = listener.getsockname()[:2]
            shown = f"[{where}]" if ":" in where else where
            if key is None and not ipaddress.ip_address(where).is_loopback:
                warn(
                    f"{where} may be reached from other machines, and there is no key: anybody "
                    f"there can ask; set {API_KEY}"
                )
            server = Server(service, key, hosts)
            listen(listener)  # from here on nobody is turned away
            say(
                f"serving {', '.join(paths)} at http://{shown}:{number}/ (page), /docs (what there "
                "is to ask); Ctrl-C ends it"
            )
            # What is loaded by now stays: collections need not look at it again and again.
            gc.collect()
            gc.freeze()
            began = time.monotonic()
            server.run([listener])
            seconds = time.monotonic() - began
        finally:
            service.close()
    return ServeReport(service.metrics.total_requests, service.metrics.total_inputs, seconds)


class Server(uvicorn.Server):
    """uvicorn over the models of `service`, with our bounds on connections, and an ordinary end
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
        """SIGTERM and SIGINT let requests be answered and end the server; a second SIGINT ends it
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


def read_api_key(file: Path | str | None) -> str | None:
    """The key of a file (white space around it does not count), else of the environment.

    Raises:
        BertineError: the file cannot be read, or a key is empty or has white space or characters
            beyond ASCII, which headers cannot carry.
    """
    if file is None:
        key, source = os.environ.get(API_KEY), API_KEY
        if key is None:
            return None
    else:
        source = str(file)
        with os_errors(file, "reading it"):
            key = Path(file).read_text(encoding="utf-8", errors="replace")
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BertineError(
            f"{source}: holds no key; write one of letters, digits and marks, on a line"
        )
    return key


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket at `host` and `port` that does not listen yet: a port that is taken is told before
    the models are loaded.

    Raises:
        BertineError: no such address on this machine, or the port is taken or not allowed.
    """
    if not 0 <= port < 1 << 16:
        raise BertineError(f"{host}:{port}: ports are 0 to 65535; choose another with --port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise BertineError(f"{host}:{port}: {_reason(error)}; choose another address") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise BertineError(
            f"{host}:{port}: {_reason(error)}; choose another with --host and --port"
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
            f"{where}:{number}: {_reason(error)}; choose another with --host and --port"
        ) from error


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
