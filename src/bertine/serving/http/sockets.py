"""Open the socket of a server in two steps: take the port, and listen when the models are there."""

from __future__ import annotations

import socket

from bertine.errors import BertineError
from bertine.options.names import option

#: Connections that wait to be accepted.
_BACKLOG = 2048


def bound_socket(host: str, port: int) -> socket.socket:
    """Take `host` and `port` with a socket that does not listen yet, so that a port that is taken
    is reported before anything is loaded.

    Raises:
        BertineError: no such address on this machine, or the port is taken or not allowed.
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
    """Take connections at a socket of :func:`bound_socket`.

    Raises:
        BertineError: another process has come to listen there since.
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
