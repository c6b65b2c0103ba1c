"""One shape for everything that goes wrong, with the keys, and their types, of OpenAI's errors:
``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from bertine.errors import BertineError

#: What a client may decide by, under the names that OpenAI's clients know where they have one.
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
        status: of HTTP.
        message: one line that says what to do.
        param: the key of the request that is at fault.
        retry_after: seconds after which it may be tried again.
        close: whether the connection ends with it, as where the body was not read.
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


def ending() -> ApiError:
    """Make the answer of a server that takes no more requests."""
    return ApiError(503, "the server is ending; ask another", retry_after=5)


def error_body(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """Return the JSON of an error. The code is a string, as OpenAI's typed clients fail on a
    number."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    line = " ".join(message.split())
    return {"error": {"message": line, "type": kind, "param": param, "code": str(status)}}


def error_response(error: Exception, meant: str = "") -> JSONResponse:
    """Return the answer for `error`: ours, Starlette's own (unknown path, wrong method), a user's
    mistake, or a fault, which is not described. `meant` is the path that an unknown one resembles.
    """
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
