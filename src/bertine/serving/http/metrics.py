"""Counts and times for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from bertine.serving.batcher import ComputedBatch
from bertine.serving.http.protocol import REFUSALS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of one server, in a registry of their own. Labels are bounded: paths, status
    codes, reasons, models and operations, never what a client sends."""

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
        self.queue = Gauge(
            "bertine_queue_inputs", "Inputs that wait", ("model",), registry=self.registry
        )
        refused = counter(
            "bertine_connections_refused",
            "Connections that were ended before there was a request to answer, or because the "
            "client does not read its answers",
            ("reason",),
        )
        self._refused = {reason: refused.labels(reason) for reason in REFUSALS}
        self.total_requests = 0
        self._inputs: dict[str, int] = {}  # of each model, whose thread alone counts them

    @property
    def total_inputs(self) -> int:
        """Computed by all models."""
        return sum(self._inputs.values())

    def answered(self, path: str, code: int, seconds: float) -> None:
        """Count one answer."""
        self.requests.labels(path, str(code)).inc()
        self.seconds.labels(path).observe(seconds)
        self.total_requests += 1

    def connection_refused(self, reason: str) -> None:
        """Count one of :data:`~bertine.serving.http.protocol.REFUSALS`."""
        self._refused[reason].inc()

    def batch_counter(self, model: str) -> Callable[[ComputedBatch], None]:
        """Return what counts the batches of `model`."""
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
        """Show how many inputs wait for `model` whenever somebody looks."""
        self.queue.labels(model).set_function(waiting)

    def text(self) -> bytes:
        """Return what ``/metrics`` answers."""
        return generate_latest(self.registry)
