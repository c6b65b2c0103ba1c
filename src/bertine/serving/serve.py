"""``serve``: models behind HTTP until a signal ends it.

What can be wrong without a model (packages, bounds, key, port) is checked before PyTorch and the
models are loaded, which takes seconds; so the modules that need PyTorch are imported in between.
"""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertine.errors import BertineError
from bertine.options.serving import ServeOptions
from bertine.options.verbs import takes_options
from bertine.packages import require_packages
from bertine.serving.http.keys import API_KEY, read_api_key
from bertine.serving.http.limits import Limits
from bertine.serving.http.sockets import bound_socket, listen
from bertine.terminal.console import counted, human_time, say, warn
from bertine.terminal.shown import Shown

if TYPE_CHECKING:
    from bertine.serving.http.hosts import Hosts

#: The packages that serving needs.
PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")
#: Names of models; they stand in requests, metrics and answers.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
#: Seconds that the end waits for a model that is being loaded.
_LOADING = 30.0


@dataclass(repr=False)
class ServeReport(Shown):
    """The report of what a server did until it ended.

    Attributes:
        requests: answered, errors among them.
        inputs: texts (or windows of long ones) computed.
        seconds: from the first moment it took requests.
    """

    requests: int
    inputs: int
    seconds: float

    def lines(self) -> list[str]:
        """Return what a person reads in the terminal."""
        return [
            f"answered {counted(self.requests, 'request')} in {human_time(self.seconds)}; "
            f"computed {self.inputs} inputs"
        ]


@takes_options()
def serve(models: Sequence[str | Path] | str | Path, *, options: ServeOptions) -> ServeReport:
    """Answer over HTTP until SIGTERM or SIGINT; requests that have begun are answered first.

    Args:
        models: model directories, each with or without a name (``NAME=DIR``); the first answers
            requests that name none.
        options: what the other arguments say.

    Raises:
        BertineError: a package is missing, no such model, a name twice, a port that is taken, a key
            that is empty, a bound that leaves nothing to serve, an allowed host that is no name.
    """
    paths = named_models([models] if isinstance(models, str | Path) else models)
    key = read_api_key(options.api_key_file)
    require_packages("serving", PACKAGES)
    from bertine.serving.http.hosts import Hosts

    allowed = options.allowed_hosts or ()
    hosts = Hosts(options.host, [allowed] if isinstance(allowed, str) else allowed)
    with contextlib.closing(bound_socket(options.host, options.port)) as listener:
        return _serve_at(listener, paths, options, key, hosts)


def _serve_at(
    listener: socket.socket,
    paths: Mapping[str, Path],
    options: ServeOptions,
    key: str | None,
    hosts: Hosts,
) -> ServeReport:
    """Load the models and answer at `listener` until a signal."""
    from bertine.serving.computing import ComputingThread
    from bertine.serving.served import asked_of_labels
    from bertine.serving.served_table import load_served
    from bertine.serving.server import Server
    from bertine.serving.service import Service
    from bertine.system.memory import bound_kernels, keep_freed_memory

    limits = Limits.within(options)
    bound_kernels()
    keep_freed_memory()  # before there is another thread: each takes its heap at its start
    computing = ComputingThread()
    try:
        loaded = computing.run(
            lambda: [
                load_served(
                    name,
                    path,
                    limits,
                    device=options.device,
                    precision=options.precision,
                    deciding=options,
                    near=options,
                    batch_invariant=options.batch_invariant,
                )
                for name, path in paths.items()
            ]
        )
        asked = asked_of_labels(options, options)
        if asked and all(model.predictor is None for model in loaded):
            raise BertineError(f"no model here gives labels; leave out {' and '.join(asked)}")
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


def named_models(models: Sequence[str | Path]) -> dict[str, Path]:
    """Name models: ``MODEL`` and ``NAME=MODEL`` → paths by name, in their order; a model that has
    no name given has that of its folder (of a run's model the run's).

    Raises:
        BertineError: no models, a name twice, or one that is none.
    """
    if not models:
        raise BertineError("there is no model to serve; name a model directory")
    paths: dict[str, Path] = {}
    for given in models:
        text = str(given)
        name, equals, rest = text.partition("=")
        if not equals or Path(text).exists():
            path = Path(text)
            resolved = path.resolve()
            own = resolved.parent if resolved.name == "model" and resolved.parent.name else resolved
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", own.name).lstrip("-._") or "model"
        else:
            path = Path(rest)
        if not _NAME.fullmatch(name):
            raise BertineError(
                f"{text}: {name!r} is not a name for a model; use letters, digits and . _ : / - "
                "(NAME=MODEL)"
            )
        if name in paths:
            raise BertineError(f"two models are called {name!r}; name one of them (NAME=MODEL)")
        paths[name] = path
    return paths
