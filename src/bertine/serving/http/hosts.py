"""The names by which a server may be asked.

A page of another site can let the name of that site stand for this machine (DNS rebinding): a
browser then lets it ask a server on loopback, and read the answers. The name is still in the Host
header. An address cannot be made to stand for another, so addresses are taken as they are.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.serving.http.errors import ApiError

#: A name, an IPv4 address, or an IPv6 address in brackets; and a port, which does not matter.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::[0-9]{0,5})?")
#: What may be allowed: a name, or all the names under one.
_ALLOWED = re.compile(r"\*|(?:\*\.)?[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*")


class Hosts:
    """The hosts that a request may name: ``localhost`` and the names under it, addresses, the name
    that the server is bound to (of this machine, if it is bound to more than loopback), and the
    `allowed` ones.

    Args:
        bound: what was given as the address to listen at.
        allowed: names, ``*.example.com`` for all under it, ``*`` for every one.

    Raises:
        BertineError: one of `allowed` is none of these.
    """

    def __init__(self, bound: str = "localhost", allowed: Iterable[str] = ()) -> None:
        names = ["localhost", "*.localhost", bound, *allowed]
        for name in names[3:]:
            if not _is_address(name) and not _ALLOWED.fullmatch(name):
                raise BertineError(
                    f"allowed_hosts has {name!r}; give a name without scheme and port "
                    "(example.com, *.example.com, or * for every one)"
                )
        if _is_address(bound) and not ipaddress.ip_address(bound).is_loopback:
            names.append(socket.gethostname())
        names = [name.lower().rstrip(".") for name in names]
        self._any = "*" in names
        self._names = frozenset(names)
        self._ends = tuple(name[1:] for name in names if name.startswith("*."))
        # Clients name the same host again and again.
        self._known = functools.lru_cache(64)(self._is_known)

    def check(
        self, headers: Sequence[tuple[bytes, bytes]], version: str, close: bool = False
    ) -> None:
        """Refuse a request that names another host.

        Args:
            headers: of the request, their names in lower case.
            version: of HTTP; "1.0" does not ask for a Host header.
            close: whether the connection ends with a refusal.

        Raises:
            ApiError: not exactly one Host header (400), or one for another host (421).
        """
        named = [value for name, value in headers if name == b"host"]
        if len(named) != 1:
            if not named and version == "1.0":
                return  # no browser sends that
            raise ApiError(400, "send one Host header", close=close)
        if not self._known(named[0]):
            raise ApiError(
                421,
                f"this server does not answer as {named[0][:100].decode('latin-1')!a}; ask it as "
                f"localhost or by its address, or allow the name with {option('allowed_hosts')}",
                close=close,
            )

    def _is_known(self, host: bytes) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].decode().lower().rstrip(".")
        return (
            self._any
            or name in self._names
            or name.endswith(self._ends)
            or _is_address(name.strip("[]"))
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
