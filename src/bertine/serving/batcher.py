"""Compute concurrent requests together: a queue and a thread for each model, and batches by cost.

The thread takes the longest input of the request that is due first, and with it inputs of similar
length from all waiting requests: the number with the highest throughput in tokens, padding and the
fixed cost of a batch included (:class:`CostModel`), within limits of tokens and of time. Filling
the limit instead would cost 64 clients a tenth of the throughput, in a simulation. The thread waits
for further requests, up to a bound in milliseconds, only if there were some just before: a single
client is answered at once.

Requests are scheduled by a clock of tokens (as in start-time fair queueing: Goyal, Vin and Cheng
1996). A request starts at the current time of the clock, advances by the tokens that are computed
for it, and is due when its next batch would be finished. So a single text waits for the current
batch, not for the hundreds of texts or the explanations that came before; and these proceed as if
all waiting requests shared the machine equally.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from bertine.core.process import release_freed_memory

# Cost of a batch: estimated from the batches that were computed.

#: The weight of an old batch when a new one is added: about the last fifty count.
_KEPT = 0.98
#: The number of batches before which the default overhead applies, and that overhead, in tokens:
#: about that of BERT-base and smaller models on a CPU.
_FEW, _USUAL = 20, 48.0
#: Tokens of a batch before anything is known.
_FIRST = 128.0
#: The squared relative spread of batch sizes below which nothing can be learned from them: a tenth.
_ALIKE = 0.01
#: More overhead than this, in tokens, makes no difference: batches are filled.
_MOST = 1e6


class CostModel:
    """The time of a batch as a fixed part and a part for each token, padding included: the line of
    least squares through the recent batches.

    Whether it is worth padding a text to compute it with longer ones depends on the ratio of the
    two parts, which differs between a small model and a large one, a CPU and a GPU.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Add the measurement of a batch.

        Args:
            tokens: the computed tokens, padding included.
            seconds: the time that it took.
        """
        self._batches += 1
        if self._batches == 1:
            return  # its time includes the first allocations
        self._n = _KEPT * self._n + 1
        self._x = _KEPT * self._x + tokens
        self._y = _KEPT * self._y + seconds
        self._xx = _KEPT * self._xx + tokens * tokens
        self._xy = _KEPT * self._xy + tokens * seconds

    def tokens_in(self, seconds: float) -> float:
        """Return the number of tokens, padding included, of a batch that takes `seconds`. If the
        fixed part alone takes longer, return those of a batch that takes twice as long as it."""
        return max(seconds * self._x / self._y, self.overhead) if self._y else _FIRST

    @property
    def overhead(self) -> float:
        """The fixed part, in tokens: the number that could be computed in its time."""
        spread = self._n * self._xx - self._x * self._x
        if self._batches < _FEW or spread < _ALIKE * self._n * self._xx:
            return _USUAL
        slope = (self._n * self._xy - self._x * self._y) / spread
        fixed = (self._y - slope * self._x) / self._n
        if slope <= 0:
            return _MOST
        return min(_MOST, max(0.0, fixed / slope))


# Inference thread: one thread for all computations of a server.

#: Seconds without work after which freed memory is returned to the system.
_RELEASED = 0.5

Computed = TypeVar("Computed")


class InferenceThread:
    """A thread that runs the work of others in the order of their requests: several models share
    the machine without one of them keeping it.

    It has to be a single thread, and models must be loaded in it too, because OpenMP keeps a team
    for each thread that has computed. As soon as all teams together are larger than the machine,
    libgomp's threads no longer wait actively for each other between the parts of a product, and a
    text takes 21 ms in place of 10 with BERT-base on two cores.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="computing", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Computed]) -> Computed:
        """Run `work` in the thread; return its result or raise its exception.

        Raises:
            RuntimeError: :meth:`close` was called.
        """
        future: Future[Computed] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the computing thread is closed")
            self._asked.put((future, work))
        return future.result()

    def close(self, timeout: float | None = None) -> None:
        """End the thread, after the work requested before; wait for that, at most `timeout` seconds
        (None: no limit)."""
        with self._lock:
            self._closed = True
            self._asked.put(None)
        self._thread.join(timeout)

    def _work(self) -> None:
        while (asked := self._next()) is not None:
            future, work = asked
            try:
                future.set_result(work())
            except BaseException as error:  # the error goes to the caller, and the thread continues
                future.set_exception(error)
            del asked, future, work  # no reference is kept while the thread is idle

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for the next work; None: there is no more."""
        try:
            return self._asked.get(timeout=_RELEASED)
        except Empty:
            release_freed_memory()
            return self._asked.get()


log = logging.getLogger("bertine.serving")

#: Lengths that differ by less count as equal.
_BATCHER_ALIKE = 4

#: The maximum seconds of a batch, unless a single input takes longer: a short text waits at most
#: this long for the batch before it.
_BATCH_SECONDS = 0.1

#: Maps inputs to a result for each, in their order.
Operation = Callable[[Sequence[Any]], Sequence[Any]]


class QueueFull(Exception):
    """The error for a request without room in the queue.

    Attributes:
        retry_after: seconds, whole and at least 1, after which there should be room.
    """

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class Closed(Exception):
    """The error for a request to a server that accepts no more."""


@dataclass(eq=False, slots=True)
class _Request:
    """The inputs of one request. `rest` are the inputs that are in no batch yet, as (cost, index),
    the longest last, with `tokens` tokens together; `left` inputs have no result yet. `turn` is its
    position on the batcher's clock."""

    operation: str
    inputs: Sequence[Any]
    costs: Sequence[int]
    future: asyncio.Future[list[Any]]
    arrived: float
    turn: int
    tokens: int
    results: list[Any]
    rest: list[tuple[int, int]]
    left: int
    given_up: bool = False


@dataclass(frozen=True)
class ComputedBatch:
    """The facts of a computed batch, for metrics.

    Attributes:
        operation: the name of the operation.
        inputs, requests, tokens: their numbers in the batch.
        seconds: the time that it took.
    """

    operation: str
    inputs: int
    requests: int
    tokens: int
    seconds: float


@dataclass
class Batcher:
    """The queue and the thread of one model.

    Args:
        operations: the operations, by name. They are called in one thread, so none needs to be
            thread-safe.
        max_tokens: the maximum tokens of a batch, padding included; a larger input is a batch of
            its own.
        max_queue: the maximum number of waiting inputs.
        max_wait: seconds to wait for further requests.
        computing: the inference thread, shared by the models of a machine.
        on_batch: called in its own thread after each batch, before its requests are answered.
        name: the name of its own thread, which makes batches and waits for them.
        unpadded: operations that compute no padding: they are limited by tokens, but with padding
            to at most twice `max_tokens`, which attention has to hold in memory.
    """

    operations: Mapping[str, Operation]
    max_tokens: int
    max_queue: int
    max_wait: float
    computing: InferenceThread
    on_batch: Callable[[ComputedBatch], None] | None = None
    name: str = "model"
    unpadded: Collection[str] = ()

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[_Request] = deque()
        self._waiting = self._tokens = 0
        self._closed = self._company = False
        self._clock = 0  # tokens
        self._rate = 0.0  # tokens a second, the recent ones counting most
        self._paces = {operation: CostModel() for operation in self.operations}
        self._thread = threading.Thread(target=self._work, name=f"batcher-{self.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of inputs in the queue."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether requests are accepted and answered."""
        return self._thread.is_alive() and not self._closed

    async def submit(
        self, operation: str, inputs: Sequence[Any], costs: Sequence[int]
    ) -> list[Any]:
        """Compute results for the inputs of one request, in their order.

        A cancelled request leaves the queue; results that are being computed for it are discarded.

        Args:
            operation: one of `operations`.
            inputs: the N inputs.
            costs: the tokens of each input.

        Raises:
            QueueFull: the queue has no room for all of them.
            Closed: :meth:`close` was called.
            Exception: the error of the operation for these inputs alone.
        """
        if not inputs:
            return []
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        size = len(inputs)
        rest = sorted(zip(costs, range(size), strict=True))
        with self._changed:
            if self._closed:
                raise Closed
            if self._waiting + size > self.max_queue:
                raise QueueFull(self._retry_after())
            now, tokens, results = time.monotonic(), sum(costs), [None] * size
            request = _Request(
                *(operation, inputs, costs, future, now, self._clock, tokens, results, rest, size)
            )
            self._queue.append(request)
            self._waiting += size
            self._tokens += tokens
            self._changed.notify()
        try:
            return await future
        finally:
            if not future.done() or future.cancelled():
                self._give_up(request)

    def close(self, timeout: float | None = None) -> None:
        """Accept no more requests, answer those that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    def _retry_after(self) -> int:
        seconds = self._tokens / self._rate if self._rate else 1.0
        return min(60, max(1, math.ceil(seconds)))

    def _give_up(self, request: _Request) -> None:
        with self._changed:
            request.given_up = True
            if request in self._queue:
                self._queue.remove(request)
                self._forget(request)

    def _forget(self, request: _Request) -> None:
        """Remove from the count the inputs of `request` that were not taken out of the queue."""
        self._waiting -= len(request.rest)
        self._tokens -= sum(cost for cost, _ in request.rest)
        request.rest = []

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                if self._company:
                    self._await_company()
                if not self._queue:
                    continue
                batch = self._take()
            try:
                self._compute(batch)
            except Exception:  # no request may end the thread
                log.exception("%s: a batch failed", self.name)
                self._settle([(request, RuntimeError("failed")) for request in _requests_of(batch)])
            with self._changed:
                self._company = len(_requests_of(batch)) > 1 or len(self._queue) > 1

    def _await_company(self) -> None:
        """Wait, holding the lock as a condition does, until the budget is full or the first request
        has waited long enough."""
        until = self._queue[0].arrived + self.max_wait
        while self._queue and self._tokens < self.max_tokens and not self._closed:
            left = until - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return

    def _budget(self, operation: str) -> float:
        """Return the maximum tokens of a batch."""
        return min(self.max_tokens, self._paces[operation].tokens_in(_BATCH_SECONDS))

    def _due(self, request: _Request) -> float:
        """Return the time of the clock at which the next batch of a request would be done."""
        longest = request.rest[-1][0]
        return request.turn + min(request.tokens, max(longest, self._budget(request.operation)))

    def _take(self) -> list[tuple[_Request, int]]:
        """Take the next batch, as pairs (request, index of its input)."""
        requests = sorted(self._queue, key=self._due)
        first, pace, begun = requests[0], self._paces[requests[0].operation], requests[0].turn
        budget = self._budget(first.operation)
        anchor = first.rest[-1][0]
        candidates = [
            # Similar lengths first; among these, those of the request that is due first.
            (abs(cost - anchor) // _BATCHER_ALIKE, place, cost, index)
            for place, request in enumerate(requests)
            if request.operation == first.operation
            for cost, index in request.rest
        ]
        batch: list[tuple[_Request, int]] = []
        longest = tokens = size = 0
        best, unpadded = 0.0, first.operation in self.unpadded
        for _, place, cost, index in sorted(candidates):
            longest = max(longest, cost)
            tokens += cost
            padded = longest * (len(batch) + 1)
            computed = max(tokens, -(-padded // 2)) if unpadded else padded
            if batch and computed > budget:
                break
            batch.append((requests[place], index))
            if (share := tokens / (computed + pace.overhead)) >= best:
                best, size = share, len(batch)
        batch = batch[:size]
        chosen: dict[_Request, set[int]] = {}
        for request, index in batch:
            chosen.setdefault(request, set()).add(index)
        for request, indices in chosen.items():
            request.rest = [entry for entry in request.rest if entry[1] not in indices]
            tokens = sum(request.costs[index] for index in indices)
            request.turn += tokens
            request.tokens -= tokens
        # By operation, so that a stream of short ones does not keep a long one waiting for ever.
        self._clock = max(self._clock, begun if first.rest else first.turn)
        self._queue = deque(request for request in self._queue if request.rest)
        taken = sum(request.costs[index] for request, index in batch)
        self._waiting -= len(batch)
        self._tokens -= taken
        return batch

    def _compute(self, batch: list[tuple[_Request, int]]) -> None:
        batch = [(request, at) for request, at in batch if not request.given_up]
        if not batch:
            return
        began = time.monotonic()
        operation = batch[0][0].operation
        costs = [request.costs[at] for request, at in batch]
        tokens = sum(costs)
        requests = _requests_of(batch)
        try:
            inputs = [request.inputs[at] for request, at in batch]
            results, taken = self.computing.run(lambda: _timed(self.operations[operation], inputs))
            computed = tokens if operation in self.unpadded else max(costs) * len(batch)
            self._paces[operation].add(computed, taken)
        except Exception as error:
            if len(requests) == 1:
                self._settle([(requests[0], error)])
            else:  # find the faulty request: the others must not fail with it
                for item in requests:
                    self._compute([(request, at) for request, at in batch if request is item])
            return
        seconds = time.monotonic() - began
        rate = tokens / max(seconds, 1e-6)
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate
        # Counted before it is answered: a client that has its answer finds it in the counts.
        if self.on_batch is not None:
            self.on_batch(ComputedBatch(operation, len(batch), len(requests), tokens, seconds))
        finished: list[tuple[_Request, Exception | None]] = []
        for (request, at), result in zip(batch, results, strict=True):
            request.results[at] = result
            request.left -= 1
            if not request.left:
                finished.append((request, None))
        self._settle(finished)

    def _settle(self, finished: Sequence[tuple[_Request, Exception | None]]) -> None:
        """Answer requests, in the thread of their event loop."""
        with self._changed:
            for request, error in finished:
                if error is not None and request in self._queue:
                    self._queue.remove(request)
                    self._forget(request)
        # Together: waking a loop is a system call.
        loops: dict[asyncio.AbstractEventLoop, list[tuple[_Request, Exception | None]]] = {}
        for request, error in finished:
            loops.setdefault(request.future.get_loop(), []).append((request, error))
        for loop, ours in loops.items():
            # A closed loop has no client waiting for an answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_answer, ours)


def _timed(operation: Operation, inputs: Sequence[Any]) -> tuple[Sequence[Any], float]:
    began = time.monotonic()
    return operation(inputs), time.monotonic() - began


def _answer(finished: Sequence[tuple[_Request, Exception | None]]) -> None:
    for request, error in finished:
        if request.future.done():
            continue
        if error is None:
            request.future.set_result(request.results)
        else:
            request.future.set_exception(error)


def _requests_of(batch: Sequence[tuple[_Request, int]]) -> list[_Request]:
    """Return each request of a batch once, in their order."""
    return list(dict.fromkeys(request for request, _ in batch))
