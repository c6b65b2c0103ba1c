"""Parse and check requests: their host and their body, with one-line errors."""

from __future__ import annotations

import difflib
import functools
import ipaddress
import json
import re
import socket
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from bertine.core.errors import BertineError
from bertine.core.names import option

# Errors: one format for all, with the keys, and their types, of OpenAI's errors: ``{"error":
# {"message", "type", "param", "code"}}``.

#: The error types by which a client may decide, named as OpenAI's clients know them where they have
#: one.
TYPES = {
    401: "authentication_error",
    404: "not_found",
    405: "not_found",
    408: "timeout",
    413: "too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "unavailable",
    504: "timeout",
}


class ApiError(HTTPException):
    """An answer that is an error.

    Args:
        status: the status of HTTP.
        message: one line with the advice.
        param: the faulty key of the request.
        retry_after: seconds until a new try.
        close: whether the connection ends, for example where the body was not read.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        close: bool = False,
    ) -> None:
        headers = {}
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        if close:
            headers["Connection"] = "close"
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, message, headers)
        self.param = param


def refused(param: str, message: str) -> ApiError:
    """Return the error of a request whose key `param` is at fault."""
    return ApiError(422, f"{param}: {message}", param=param)


def ending() -> ApiError:
    """Return the error of a server that is shutting down."""
    return ApiError(503, "the server is ending; ask another", retry_after=5)


def error_body(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """Return the JSON of an error. The code is a string, as OpenAI's typed clients fail on a
    number."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    line = " ".join(message.split())
    return {"error": {"message": line, "type": kind, "param": param, "code": str(status)}}


def error_response(error: Exception, meant: str = "") -> JSONResponse:
    """Return the answer for `error`: an :class:`ApiError`, Starlette's own (unknown path, wrong
    method), a user's mistake, or an internal fault, which is not described. `meant` is the path
    that an unknown one resembles."""
    if isinstance(error, BertineError):
        return JSONResponse(error_body(422, str(error)), 422)
    if not isinstance(error, HTTPException):
        return JSONResponse(error_body(500, "a fault of the server; its log says more"), 500)
    message = str(error.detail)
    if error.status_code in (404, 405) and message in ("Not Found", "Method Not Allowed"):
        phrase = HTTPStatus(error.status_code).phrase.lower()
        message = f"{phrase}: {f'send it to {meant}; ' if meant else ''}/docs lists the paths"
    body = error_body(error.status_code, message, getattr(error, "param", None))
    return JSONResponse(body, error.status_code, headers=error.headers)


# Hosts: the names under which a server may be addressed.
#
# A page of another site can resolve the name of that site to this machine (DNS rebinding): a
# browser then allows it to ask a server on loopback, and to read the answers. The name is still in
# the Host header. An address cannot be redirected like that, so addresses are accepted unchanged.

#: A name, an IPv4 address, or an IPv6 address in brackets; and a port, which is ignored.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::[0-9]{0,5})?")
#: The format of an allowed host: a name, or all the names under one.
_ALLOWED = re.compile(r"\*|(?:\*\.)?[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*")


class Hosts:
    """The hosts that a request may name: ``localhost`` and the names under it, addresses, the name
    that the server is bound to (of this machine, if it is bound to more than loopback), and the
    `allowed` ones.

    Args:
        bound: the address to listen at, as it was given.
        allowed: names, ``*.example.com`` for all names under it, ``*`` for every name.

    Raises:
        BertineError: one of `allowed` is none of these formats.
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
        # Clients send the same host again and again.
        self._known = functools.lru_cache(64)(self._is_known)

    def check(
        self, headers: Sequence[tuple[bytes, bytes]], version: str, close: bool = False
    ) -> None:
        """Refuse a request that names another host.

        Args:
            headers: the headers of the request, with names in lower case.
            version: the version of HTTP; "1.0" does not require a Host header.
            close: whether the connection ends with a refusal.

        Raises:
            ApiError: not exactly one Host header (400), or one for another host (421).
        """
        named = [value for name, value in headers if name == b"host"]
        if len(named) != 1:
            if not named and version == "1.0":
                return  # no browser sends such a request
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


#: The maximum number of keys of a body: each unknown one costs a search for the known one it
#: resembles.
_MAX_KEYS = 64
#: Characters of an unknown key that are compared and shown.
_BODY_MAX_KEY = 100
#: The similarity (0 to 1, difflib's ratio) from which a key counts as a misspelling of another.
_ALIKE = 0.6
#: The same where unknown keys are allowed, as for OpenAI: only clear misspellings are mistakes.
_VERY_ALIKE = 0.8


def parsed(body: bytes, schema: type[BaseModel]) -> Any:
    """Parse a body of strict JSON: UTF-8, no NaN, no lone surrogates, of bounded depth. The result
    can be serialized again.

    Args:
        body: the body of a request.
        schema: the class that it must match.

    Raises:
        ApiError: it is not JSON, has a key that the path does not take, or does not match `schema`
            (422).
    """
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(422, f"the body is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ApiError(422, "the body is not a JSON object; /docs shows one to copy")
    if len(content) > _MAX_KEYS:
        raise ApiError(422, f"the body has {len(content)} keys; /docs lists those of this path")
    _check_keys(content, schema)
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise _first_mistake(error) from None


def _check_keys(body: dict[str, Any], schema: type[BaseModel]) -> None:
    """Refuse the first key that the path does not accept, and suggest the one that was probably
    meant.

    Where unknown keys are allowed, only those that resemble a known one are refused.

    Raises:
        ApiError: there is such a key (422).
    """
    fields = schema.model_fields
    allowed = schema.model_config.get("extra") != "forbid"
    unused = [name for name in fields if name not in body]
    for key in body:
        if key in fields:
            continue
        alike = _VERY_ALIKE if allowed else _ALIKE
        near = difflib.get_close_matches(key[:_BODY_MAX_KEY].lower(), unused, 1, alike)
        if allowed and not near:
            continue
        hint = f"did you mean {near[0]!r}?" if near else f"this path takes {', '.join(fields)}"
        shown = json.dumps(key[:_BODY_MAX_KEY])[1:-1]  # it may have any characters
        raise ApiError(422, f"{shown}: unknown key; {hint}", param=shown or None)


def _first_mistake(error: ValidationError) -> ApiError:
    """Return the error for the first mistake: "texts[3]: String should have at most 20000
    characters".

    A value of several allowed types has a mistake for each of them. The relevant one belongs to the
    right type: it is the deeper one, or is not about a type.
    """
    mistakes = error.errors(include_url=False, include_context=False, include_input=False)
    alike = [mistake for mistake in mistakes if mistake["loc"][:1] == mistakes[0]["loc"][:1]]
    first = max(
        alike, key=lambda mistake: (len(mistake["loc"]), not mistake["type"].endswith("_type"))
    )
    place = _place(first["loc"])
    others = {_place(mistake["loc"]) for mistake in mistakes}
    more = sum(1 for other in others if other != place[: len(other)])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    # Keys come from the client: they may have any length and any characters.
    where = json.dumps(where[1:101])[1:-1]
    message = f"{where or 'the body'}: {first['msg']}" + (f" (and {more} more)" if more else "")
    return ApiError(422, message, param=where or None)


def _place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the place without pydantic's names for the members of a union, which are not
    identifiers, or are classes, while all keys are in lower case."""
    inside = (part for part in loc[1:] if isinstance(part, int) or _is_key(part))
    return *loc[:1], *inside


def _is_key(part: str) -> bool:
    return part.isidentifier() and part.islower()
