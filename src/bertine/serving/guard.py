"""Guard the application (host, key, body size, request time) and count its answers for Prometheus.

A body is read here as a whole before anything parses it: counted as it arrives (a declared length
is trusted only if it is too large), within a time limit. Then the handler of the path has until the
request's deadline; if the client leaves before, the work is cancelled. Handlers are called from
here: FastAPI describes their paths, but its way to them costs more than the rest of a request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from functools import partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from starlette.exceptions import HTTPException
from starlette.responses import Response

from bertine.core.errors import BertineError
from bertine.serving.address import Limits
from bertine.serving.batcher import ComputedBatch
from bertine.serving.drift import Watch
from bertine.serving.protocol import REFUSALS
from bertine.serving.requests import ApiError, Hosts, ending, error_response

# Metrics: counts and times for Prometheus.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of one server, in a registry of their own. Labels are bounded: paths, status
    codes, reasons, models and operations, never data from a client."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.requests = counter(
            "bertine_requests",
            "Answered requests (499: the client left before)",
            ("path", "code"),
        )
        self.seconds = histogram(
            "bertine_request_seconds",
            "From the headers of a request to the end of its answer",
            ("path",),
            buckets=_SECONDS,
        )
        self.inputs = counter(
            "bertine_inputs",
            "Texts (or windows of long ones) computed",
            ("model", "operation"),
        )
        self.tokens = counter(
            "bertine_tokens",
            "Tokens computed, as far as they are known before",
            ("model", "operation"),
        )
        self.batch_seconds = histogram(
            "bertine_batch_seconds",
            "Time to compute a batch, waiting for other models included",
            ("model",),
            buckets=_SECONDS,
        )
        self.batch_requests = histogram(
            "bertine_batch_requests",
            "Requests computed together",
            ("model",),
            buckets=_SIZES,
        )
        gauge = partial(Gauge, registry=self.registry)
        self.queue = gauge("bertine_queue_inputs", "Inputs that wait", ("model",))
        self.answers = gauge("bertine_answers", "Answers that were counted", ("model", "label"))
        self.unfamiliar = gauge(
            "bertine_unfamiliar", "Counted texts that are unlike those of the training", ("model",)
        )
        self.accuracy = gauge(
            "bertine_estimated_accuracy",
            "Estimated without labels from the counted answers",
            ("model",),
        )
        refused = counter(
            "bertine_connections_refused",
            "Connections that were ended before there was a request to answer, or because the "
            "client does not read its answers",
            ("reason",),
        )
        self._refused = {reason: refused.labels(reason) for reason in REFUSALS}
        self.total_requests = 0
        self._inputs: dict[str, int] = {}  # one for each model, counted only by its thread

    @property
    def total_inputs(self) -> int:
        """The number of inputs computed by all models."""
        return sum(self._inputs.values())

    def answered(self, path: str, code: int, seconds: float) -> None:
        """Count one answer."""
        self.requests.labels(path, str(code)).inc()
        self.seconds.labels(path).observe(seconds)
        self.total_requests += 1

    def connection_refused(self, reason: str) -> None:
        """Count one of :data:`~bertine.serving.protocol.REFUSALS`."""
        self._refused[reason].inc()

    def batch_counter(self, model: str) -> Callable[[ComputedBatch], None]:
        """Return the function that counts the batches of `model`."""
        seconds = self.batch_seconds.labels(model)
        requests = self.batch_requests.labels(model)
        self._inputs[model] = 0

        def count(batch: ComputedBatch) -> None:
            seconds.observe(batch.seconds)
            requests.observe(batch.requests)
            self.inputs.labels(model, batch.operation).inc(batch.inputs)
            self.tokens.labels(model, batch.operation).inc(batch.tokens)
            self._inputs[model] += batch.inputs

        return count

    def watch_queue(self, model: str, waiting: Callable[[], int]) -> None:
        """Show the number of inputs that wait for `model` at the time of each scrape."""
        self.queue.labels(model).set_function(waiting)

    def watch_drift(self, model: str, watch: Watch) -> None:
        """Show the counts of answers, and the accuracy estimated from them, at the time of each
        scrape."""
        self.accuracy.labels(model).set_function(watch.accuracy)
        self.unfamiliar.labels(model).set_function(lambda: watch.sketch.unfamiliar)
        for number, label in enumerate(watch.labels):
            self.answers.labels(model, label).set_function(
                lambda number=number: float(watch.sketch.labels[number])  # type: ignore[misc]
            )

    def text(self) -> bytes:
        """Return the text of ``/metrics``."""
        return generate_latest(self.registry)


log = logging.getLogger("bertine.serving")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
#: Maps the body of a request to its answer.
Answer = Callable[[bytes], Coroutine[Any, Any, Response]]

#: Paths that need no key, except for POST: they reveal nothing of the models' answers.
OPEN = frozenset({"/", "/docs", "/openapi.json", "/health", "/ready"})
#: The status of a request whose client left before its answer; nginx's number.
GONE = 499
#: The part of a body that is too large which is read and discarded, as a multiple of the limit: a
#: client that is still sending would not see the reason why the connection was closed.
_THROWN_AWAY = 16


class _Gone(Exception):
    """The error for a client that has left."""


class Guard:
    """An ASGI application around another one.

    Args:
        app: the application, for all but the `answers`.
        answers: the handlers of POST, by path.
        limits: the limits of size and time.
        api_key: the key that requests must have as ``Authorization: Bearer KEY``; None: no key.
        hosts: the hosts that requests may name.
        metrics: the metrics that count every answer.
        paths: the paths with a count of their own; the others have one in common.
    """

    def __init__(
        self,
        app: App,
        answers: Mapping[str, Answer],
        limits: Limits,
        api_key: str | None,
        hosts: Hosts,
        metrics: Metrics,
        paths: frozenset[str],
    ) -> None:
        self.app, self.answers, self.limits, self.hosts = app, answers, limits, hosts
        self.metrics, self.paths = metrics, paths
        self._key = None if api_key is None else _digest(api_key.encode())

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        answered = _Answered(send)
        try:
            await self._serve(scope, receive, answered, began + self.limits.request_timeout)
        except _Gone:
            answered.status = GONE
        except asyncio.CancelledError:  # the server ends at once
            if not answered.status:
                await error_response(ending())(scope, receive, answered)
        except Exception as error:
            if not isinstance(error, HTTPException | BertineError):
                log.exception("%s: a fault", scope["path"])
            if not answered.status:
                await error_response(error)(scope, receive, answered)
        finally:
            self.metrics.answered(
                self._counted_as(scope["path"]), answered.status or 500, time.monotonic() - began
            )

    async def _serve(
        self, scope: MutableMapping[str, Any], receive: Receive, send: _Answered, deadline: float
    ) -> None:
        if scope["method"] == "HEAD":  # as for GET (RFC 9110, 9.3.2); uvicorn leaves the body out
            scope = {**scope, "method": "GET"}
        headers = dict(scope["headers"])
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        self.hosts.check(scope["headers"], scope["http_version"], close=has_body)
        self._check_key(scope, headers, close=has_body)
        answer = self.answers.get(scope["path"]) if scope["method"] == "POST" else None
        if answer is None:
            send.close = has_body  # the client has left
            await self.app(scope, receive, send)
            return
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        body = await self._body(headers, receive)
        if kind != b"application/json":
            raise ApiError(415, "send JSON, with the header Content-Type: application/json")
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"identity", b""):
            raise ApiError(415, "send the body as it is, without a Content-Encoding")
        response = await self._in_time(answer(body), receive, deadline)
        # From here on the connection watches that the client reads.
        await response(scope, receive, send)

    def _counted_as(self, path: str) -> str:
        """Return the name under which a path is counted; there are no more names than the server
        has paths."""
        if path in self.paths:
            return path
        return "/v1/models/{model}" if path.startswith("/v1/models/") else "other"

    def _check_key(
        self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes], close: bool
    ) -> None:
        if self._key is None or (scope["path"] in OPEN and scope["method"] != "POST"):
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        # Digests, so that the timing does not even reveal the key's length.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(
            _digest(given.strip()), self._key
        ):
            raise ApiError(
                401, "send the key of this server as Authorization: Bearer KEY", close=close
            )

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Read the whole body.

        Raises:
            ApiError: the body is too large (413), or too slow (408).
            _Gone: the client left.
        """
        limit = self.limits.max_body_bytes
        declared = headers.get(b"content-length", b"")
        length = int(declared) if declared.isdigit() and len(declared) < 19 else 0
        waits = headers.get(b"expect", b"").lower() == b"100-continue"
        if length > limit and (waits or length > _THROWN_AWAY * limit):
            raise self._too_large()
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self.limits.read_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size <= limit:
                        body += chunk
                    elif size > _THROWN_AWAY * limit:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise ApiError(
                408,
                f"the body did not come within {self.limits.read_timeout:g} s; send it faster",
                close=True,
            ) from None
        if size > limit:
            raise self._too_large()
        return bytes(body)

    def _too_large(self) -> ApiError:
        limit = self.limits.max_body_bytes
        return ApiError(
            413, f"the body has more than {limit} bytes; send fewer or shorter texts", close=True
        )

    async def _in_time(
        self, work: Coroutine[Any, Any, Response], receive: Receive, deadline: float
    ) -> Response:
        """Await the result of `work`, unless the client leaves or the time is over before.

        Raises:
            ApiError: the time is over (504).
            _Gone: the client left.
        """
        task = asyncio.current_task()
        assert task is not None
        working, gone = True, False

        async def leave() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            if working:
                gone = True
                task.cancel()

        leaves = asyncio.ensure_future(leave())
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())) as timer:
                return await work
        except TimeoutError:
            if not timer.expired():
                raise
            raise ApiError(
                504,
                f"no answer within {self.limits.request_timeout:g} s; send fewer or shorter texts, "
                "or try again later",
                retry_after=1,
            ) from None
        except asyncio.CancelledError:
            if not gone or task.uncancel():
                raise  # the client was not the cause
            raise _Gone from None
        finally:
            working = False
            leaves.cancel()


class _Answered:
    """A ``send`` that records the status, and may announce the end of the connection."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.close = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
            if self.close:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
