"""``serve``: models behind HTTP until a signal ends it.

What can be wrong without a model (packages, bounds, key, port) is checked before PyTorch and the
models are loaded, which takes seconds; so the modules that need PyTorch are imported in between.
"""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertine.names import AnswerPrecision
from bertine.options.types import check_types
from bertine.packages import require_packages
from bertine.serving.http.keys import API_KEY, read_api_key
from bertine.serving.http.limits import Limits
from bertine.serving.http.sockets import bound_socket, listen
from bertine.serving.names import named_models
from bertine.terminal.console import counted, human_time, say, warn
from bertine.terminal.shown import Shown

if TYPE_CHECKING:
    from bertine.serving.http.hosts import Hosts

#: The packages that serving needs.
PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")
#: Seconds that the end waits for a model that is being loaded.
_LOADING = 30.0


@dataclass(repr=False)
class ServeReport(Shown):
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


@check_types
def serve(
    models: Sequence[str | Path] | str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str | None = None,
    precision: AnswerPrecision = "auto",
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
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; None: the GPU if there is one.
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
        BertineError: a package is missing, no such model, a name twice, a port that is taken, a key
            that is empty, a bound that leaves nothing to serve, an allowed host that is no name.
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
    require_packages("serving", PACKAGES)
    from bertine.serving.http.hosts import Hosts

    allowed = [allowed_hosts] if isinstance(allowed_hosts, str) else allowed_hosts or ()
    hosts = Hosts(host, allowed)
    with contextlib.closing(bound_socket(host, port)) as listener:
        return _serve_at(listener, paths, limits, device, precision, key, hosts)


def _serve_at(
    listener: socket.socket,
    paths: Mapping[str, Path],
    limits: Limits,
    device: str | None,
    precision: AnswerPrecision,
    key: str | None,
    hosts: Hosts,
) -> ServeReport:
    """Load the models and answer at `listener` until a signal."""
    from bertine.serving.computing import ComputingThread
    from bertine.serving.served import Served
    from bertine.serving.server import Server
    from bertine.serving.service import Service
    from bertine.system.memory import bound_kernels, keep_freed_memory

    bound_kernels()
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
                f"other machines may reach {where}, and there is no key, so anybody there can use "
                f"the models; set {API_KEY}"
            )
        server = Server(service, key, hosts)
        listen(listener)  # from here on nobody is turned away
        address = f"http://{shown}:{number}"
        say(
            f"serving {', '.join(paths)}: page {address}/, API reference {address}/docs; "
            "Ctrl-C ends it"
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
