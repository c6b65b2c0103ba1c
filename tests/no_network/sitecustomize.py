"""Refuse connections that leave the machine: in the process of the tests, which runs this file, and
in those that they start, whose PYTHONPATH begins with its folder."""

import ipaddress
import socket
import sys
from typing import Any


class LeavesTheMachine(BaseException):
    """A connection to another machine; libraries cannot take it for a network that is down."""


def _is_here(host: Any) -> bool:
    host = host.decode() if isinstance(host, bytes) else host
    if host in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        if ipaddress.ip_address(host).is_loopback:
            return True
    except ValueError:
        return False
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as own:
        try:
            own.bind((host, 0))  # only to an address of this machine, as Ray uses it
        except OSError:
            return False
    return True


def _refuse(event: str, values: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = values[0]
    elif event == "socket.connect" and values[0].type & socket.SOCK_STREAM:
        host = values[1][0] if isinstance(values[1], tuple) else None  # a socket of this machine
    else:
        return
    if not _is_here(host):
        raise LeavesTheMachine(f"{event}: a test asks {host}")


sys.addaudithook(_refuse)
