"""Run the server until a signal ends it: ``serve``.

Packages, limits, key and port are checked before PyTorch and the models are loaded, which takes
seconds; so the modules that need PyTorch are imported inside the functions.
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

from bertine.core.console import Report, human_time, logger, plural
from bertine.core.errors import BertineError, require_packages
from bertine.options.inference import ServeOptions
from bertine.options.verbs import takes_options
from bertine.serving.address import API_KEY, Limits, bound_socket, listen, read_api_key

if TYPE_CHECKING:
    from bertine.serving.requests import Hosts


#: The packages that serving needs.
PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client")
#: The format of names of models, which occur in requests, metrics and answers.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
#: Seconds that the shutdown waits for a model that is being loaded.
_LOADING = 30.0


@dataclass(repr=False)
class ServeReport(Report):
    """The counts of a server until it ended.

    Attributes:
        requests: the number of answered requests, errors included.
        inputs: the number of computed texts (or windows of long ones).
        seconds: the time since it first accepted requests.
    """

    requests: int
    inputs: int
    seconds: float

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        return [
            f"answered {plural(self.requests, 'request')} in {human_time(self.seconds)}; "
            f"computed {self.inputs} inputs"
        ]


@takes_options()
def serve(models: Sequence[str | Path] | str | Path, *, options: ServeOptions) -> ServeReport:
    """Serve models over HTTP until SIGTERM or SIGINT; requests in progress are answered first.

    Args:
        models: model directories, each with or without a name (``NAME=DIR``); the first answers
            requests that name none.
        options: the options described below.

    Raises:
        BertineError: a package is missing, no such model, a name twice, a port in use, an empty
            key, a limit that leaves nothing to serve, an allowed host that is not a host name.
    """
    paths = named_models([models] if isinstance(models, str | Path) else models)
    key = read_api_key(options.api_key_file)
    require_packages("serving", PACKAGES)
    from bertine.serving.requests import Hosts

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
    from bertine.core.process import bound_kernels, keep_freed_memory
    from bertine.serving.app import create_app
    from bertine.serving.batcher import InferenceThread
    from bertine.serving.handles import ModelHandle, asked_of_labels, search_with
    from bertine.serving.server import Server
    from bertine.serving.service import Service

    limits = Limits.within(options)
    bound_kernels()
    keep_freed_memory()  # before there is another thread: each gets its heap at its start
    computing = InferenceThread()
    try:
        loaded = computing.run(
            lambda: [ModelHandle.load(name, path, options, limits) for name, path in paths.items()]
        )
        asked = asked_of_labels(options)
        if asked and all(model.tuned is None for model in loaded):
            raise BertineError(f"no model here gives labels; leave out {' and '.join(asked)}")
        if options.collection is not None:
            search_with(loaded, options.collection)
        service = Service(loaded, limits, computing)
    except BaseException:  # Ctrl-C too: Python must not end while a thread computes
        computing.close(_LOADING)
        raise
    try:
        where, number = listener.getsockname()[:2]
        shown = f"[{where}]" if ":" in where else where
        if key is None and not ipaddress.ip_address(where).is_loopback:
            logger.warning(
                f"other machines may reach {where}, and there is no key, so anybody there can use "
                f"the models; set {API_KEY}"
            )
        server = Server(create_app(service, key, hosts))
        listen(listener)  # from here on requests are accepted
        address = f"http://{shown}:{number}"
        logger.info(
            f"serving {', '.join(paths)}: page {address}/, API reference {address}/docs; "
            "Ctrl-C ends it"
        )
        # The objects loaded so far are permanent: collections need not visit them again.
        gc.collect()
        gc.freeze()
        began = time.monotonic()
        server.run([listener])
        seconds = time.monotonic() - began
    finally:
        service.close()
    return ServeReport(service.metrics.total_requests, service.metrics.total_inputs, seconds)


def named_models(models: Sequence[str | Path]) -> dict[str, Path]:
    """Assign names to models: ``MODEL`` and ``NAME=MODEL`` → paths by name, in their order. The
    default name is that of the folder (for a run's model that of the run).

    Raises:
        BertineError: no models, a name twice, or an invalid name.
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
