"""Requests that come at the same time are computed together.

Every model has a queue and one thread. The thread takes the longest input of the request that is
due first, and with it inputs of similar length of all that wait: as many as give the most tokens
for the time, padding and what a batch costs by itself counted (:class:`CostModel`), within a budget
of tokens and of time. To fill the budget instead would cost 64 clients a tenth of the
throughput, in a simulation. A thread waits for company, by a bound in milliseconds, only when there
was some just before: a client that is alone is answered at once.

Requests take turns by a clock of tokens (as in start-time fair queueing: Goyal, Vin and Cheng
1996). One begins at the time of the clock when it comes, goes on by the tokens that are computed
for it, and is due when the next batch of it would be done. So a single text waits for the batch
that is being computed, not for the hundreds of texts or the explanations that came before; and
these go on as if all that wait shared the machine equally.
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
from queue import SimpleQueue
from typing import Any, TypeVar

# Estimate what a batch costs, learned from the batches that were computed.

#: How much an old batch still counts when a new one comes: the last fifty or so do.
_KEPT = 0.98
#: Batches before which the usual overhead is taken, and that overhead, in tokens: about what
#: BERT-base and smaller models have on a CPU.
_FEW, _USUAL = 20, 48.0
#: Tokens of a batch while nothing is known.
_FIRST = 128.0
#: Nothing can be learned from batches whose sizes differ by less than a tenth: squared.
_ALIKE = 0.01
#: So much overhead, in tokens, is as good as any more: batches are filled.
_MOST = 1e6


class CostModel:
    """The seconds of a batch as a fixed part and a part for each token, its padding among them: the
    line of least squares through the recent batches.

    Whether it is worth while to pad a text so that it goes along with longer ones depends on how
    the two parts compare, which is not the same for a small model and a large one, a CPU and a GPU.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Learn of a batch.

        Args:
            tokens: computed in it, padding among them.
            seconds: that it took.
        """
        self._batches += 1
        if self._batches == 1:
            return  # it also made what the others find there
        self._n = _KEPT * self._n + 1
        self._x = _KEPT * self._x + tokens
        self._y = _KEPT * self._y + seconds
        self._xx = _KEPT * self._xx + tokens * tokens
        self._xy = _KEPT * self._xy + tokens * seconds

    def tokens_in(self, seconds: float) -> float:
        """Return how many tokens, padding among them, a batch may have to take so many seconds; or
        as many as make it take twice its fixed part, where that alone is longer."""
        return max(seconds * self._x / self._y, self.overhead) if self._y else _FIRST

    @property
    def overhead(self) -> float:
        """The fixed part, in tokens: how many could be computed in its time."""
        spread = self._n * self._xx - self._x * self._x
        if self._batches < _FEW or spread < _ALIKE * self._n * self._xx:
            return _USUAL
        slope = (self._n * self._xy - self._x * self._y) / spread
        fixed = (self._y - slope * self._x) / self._n
        if slope <= 0:
            return _MOST
        return min(_MOST, max(0.0, fixed / slope))


# One thread for all that a server computes.

Computed = TypeVar("Computed")


class InferenceThread:
    """A thread that runs what others ask for, one after the other in the order in which they ask:
    several models share the machine without one of them keeping it.

    It has to be one thread, and models must be loaded in it too, because OpenMP keeps a team for
    each thread that ever computed. As soon as all teams together are larger than the machine,
    libgomp's threads no longer wait actively for each other between the parts of a product, and a
    text takes BERT-base on two cores 21 ms in place of 10.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="computing", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Computed]) -> Computed:
        """Run `work` there; return or raise what it does.

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
        """End the thread, after what was asked for before; wait for that, `timeout` seconds at the
        most (None: without an end)."""
        with self._lock:
            self._closed = True
            self._asked.put(None)
        self._thread.join(timeout)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, work = asked
            try:
                future.set_result(work())
            except BaseException as error:  # whoever asked is to hear of it, and the thread stays
                future.set_exception(error)
            del asked, future, work  # nothing is kept while there is nothing to do


log = logging.getLogger("bertine.serving")

#: Lengths that differ by less count as the same.
_BATCHER_ALIKE = 4

#: Seconds that a batch is to take at most, unless a single input takes longer: so long does a short
#: text wait for one that came before.
_BATCH_SECONDS = 0.1

#: Inputs → a result for each, in their order.
Operation = Callable[[Sequence[Any]], Sequence[Any]]


class QueueFull(Exception):
    """An error: there is no room for a request.

    Attributes:
        retry_after: seconds, whole and at least 1, after which there should be some.
    """

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class Closed(Exception):
    """The server takes no more requests."""


@dataclass(eq=False, slots=True)
class _Request:
    """All that one request wants computed. `rest` are the inputs that are in no batch yet, by their
    cost, (cost, index), the longest last, of so many `tokens`; `left` inputs have no result yet.
    `turn` is where it stands on the batcher's clock."""

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
    """A batch that was computed, for metrics.

    Attributes:
        operation: what was computed.
        inputs, requests, tokens: in it.
        seconds: that it took.
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
        operations: what it computes, by name. Called in one thread, so none of them needs to be
            safe for others.
        max_tokens: of a batch, with its padding, at the most; a larger input is a batch of its own.
        max_queue: inputs that may wait.
        max_wait: seconds to wait for company.
        computing: shared by the models of a machine.
        on_batch: called in its own thread after each batch, before its requests are answered.
        name: of its own thread, which makes batches and waits for them.
        unpadded: operations that compute no padding: what counts of theirs is the tokens, but with
            padding they must not be more than twice `max_tokens`, which attention has to hold.
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
        """Inputs in the queue."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether requests are taken and answered."""
        return self._thread.is_alive() and not self._closed

    async def submit(
        self, operation: str, inputs: Sequence[Any], costs: Sequence[int]
    ) -> list[Any]:
        """Compute results for the inputs of one request, in their order.

        A request that is given up (its task is cancelled) leaves the queue; what is being
        computed for it is thrown away.

        Args:
            operation: one of `operations`.
            inputs: N of them.
            costs: the tokens of each.

        Raises:
            QueueFull: the queue has no room for all of them.
            Closed: :meth:`close` was called.
            Exception: what the operation raises for these inputs alone.
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
        """Take no more requests, answer those that wait, and end the thread."""
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
        """Count the inputs of `request` that were not taken out of the queue."""
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
            except Exception:  # nothing that a request brings may end the thread
                log.exception("%s: a batch failed", self.name)
                self._settle([(request, RuntimeError("failed")) for request in _requests_of(batch)])
            with self._changed:
                self._company = len(_requests_of(batch)) > 1 or len(self._queue) > 1

    def _await_company(self) -> None:
        """Wait, holding the lock as a condition does, until the budget is full or the first
        request has waited long enough."""
        until = self._queue[0].arrived + self.max_wait
        while self._queue and self._tokens < self.max_tokens and not self._closed:
            left = until - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return

    def _budget(self, operation: str) -> float:
        """Return the tokens of a batch."""
        return min(self.max_tokens, self._paces[operation].tokens_in(_BATCH_SECONDS))

    def _due(self, request: _Request) -> float:
        """Return the time of the clock at which the next batch of a request would be done."""
        longest = request.rest[-1][0]
        return request.turn + min(request.tokens, max(longest, self._budget(request.operation)))

    def _take(self) -> list[tuple[_Request, int]]:
        """Take the next batch, (request, index of its input)."""
        requests = sorted(self._queue, key=self._due)
        first, pace, begun = requests[0], self._paces[requests[0].operation], requests[0].turn
        budget = self._budget(first.operation)
        anchor = first.rest[-1][0]
        candidates = [
            # Like lengths first; among these, those of the request that is due first.
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
        # By what is done, so that no stream of short ones keeps a long one waiting for ever.
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
            else:  # find whose mistake it is: the others are not to suffer for it
                for each in requests:
                    self._compute([(request, at) for request, at in batch if request is each])
            return
        seconds = time.monotonic() - began
        rate = tokens / max(seconds, 1e-6)
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate
        # Counted before it is answered: who has an answer and asks for the counts finds it there.
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
        # Together: to wake a loop is a system call.
        loops: dict[asyncio.AbstractEventLoop, list[tuple[_Request, Exception | None]]] = {}
        for request, error in finished:
            loops.setdefault(request.future.get_loop(), []).append((request, error))
        for loop, ours in loops.items():
            # A loop that has been closed has nobody left to answer.
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
