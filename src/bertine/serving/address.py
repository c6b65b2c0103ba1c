"""Bound a server: its limits, its key, and the sockets that it listens at; needs no package."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Self

from bertine.core.errors import BertineError
from bertine.core.files import read_bounded
from bertine.core.names import option
from bertine.options.inference import Bounds

# Limits: the bounds of one request, and of all of them together.


class Limits(Bounds):
    """The bounds of a server, those that are options and fixed ones.

    Requests beyond them are answered with 413 (the body), 422 (its texts), 429 (the queue), 503
    (connections), 408 and 504 (time).

    Attributes:
        explain_characters: maximum characters of an explained text.
        explain_tokens: maximum tokens of an explained text; the rest is cut off, and counted.
        max_masks: maximum masks in one text.
        max_top_k: maximum candidates for a mask.
        max_embedding_inputs: maximum texts in a request to ``/v1/embeddings``, OpenAI's bound.
    """

    explain_characters: int = 2000
    explain_tokens: int = 128
    max_masks: int = 16
    max_top_k: int = 50
    max_embedding_inputs: int = 2048

    @classmethod
    def within(cls, bounds: Bounds) -> Self:
        """Return the limits of a server with these options."""
        return cls(**Bounds.of(bounds).values())


# Key: the secret that clients of a server must send.

#: The environment variable of the key: an argument would be visible in the list of processes.
API_KEY = "BERTINE_API_KEY"


#: The maximum bytes of a key file.
_MAX_KEY = 1 << 16


def read_api_key(file: Path | str | None) -> str | None:
    """Read the key from a file (without the white space around it), else from the environment.

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
        key = read_bounded(file, _MAX_KEY, pipes=True).decode("utf-8", "replace")
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BertineError(
            f"{source}: holds no key; write one of letters, digits and marks, on a line"
        )
    return key


# Sockets: opened in two steps, to reserve the port and, when the models are loaded, to listen.

#: Connections that wait to be accepted.
_BACKLOG = 2048


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to `host` and `port` without listening, so that a port in use is reported
    before anything is loaded.

    Raises:
        BertineError: no such address on this machine, or the port is in use or not allowed.
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
    """Listen at a socket of :func:`bound_socket`.

    Raises:
        BertineError: another process listens there in the meantime.
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
