"""Route work to the models of a server, their batchers and threads."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from bertine.core.errors import BertineError
from bertine.inference.embedding.index import NearestRows
from bertine.inference.explaining.explainer import Explanation
from bertine.inference.explaining.target import Unit
from bertine.serving.address import Limits
from bertine.serving.batcher import Batcher, Closed, InferenceThread, QueueFull
from bertine.serving.guard import Metrics
from bertine.serving.handles import ModelHandle
from bertine.serving.requests import ApiError, ending

Result = TypeVar("Result")

#: Characters (or numbers of an answer) from which on work is moved out of the thread of the event
#: loop, so that other requests do not wait for it.
_ASIDE = 20_000
#: Seconds until a partly computed request checks again for room in the queue.
_PATIENCE = 0.05
#: Units of an explanation that wait in the queue at a time, so that a long text does not fill it.
_TOGETHER = 64
#: Numbers of an output that count as one character of a text in that choice.
_NUMBERS = 16
#: Characters of an unknown model's name that are compared and shown.
_NAME = 100


class Service:
    """The models of a server and their batchers.

    Args:
        models: at least one; the first answers requests that name none.
        limits: the limits of the server.
        computing: the inference thread in which the models were loaded; closed with the service.
            None: a new one.
    """

    def __init__(
        self,
        models: Sequence[ModelHandle],
        limits: Limits,
        computing: InferenceThread | None = None,
    ) -> None:
        self.models = {model.name: model for model in models}
        self.first = models[0].name
        self.limits, self.metrics = limits, Metrics()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="aside")
        self._short = ThreadPoolExecutor(1, thread_name_prefix="aside-short")
        # One search at a time, which uses all cores, or one comparison.
        self._searching = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._long: set[Future[Any]] = set()  # running or waiting in `_pool`
        self._computing = computing or InferenceThread()
        self.batchers = {
            model.name: Batcher(
                model.operations,
                max_tokens=limits.max_batch_tokens,
                max_queue=limits.max_queue,
                max_wait=limits.max_wait_ms / 1000,
                computing=self._computing,
                on_batch=self.metrics.batch_counter(model.name),
                name=model.name,
                unpadded=model.unpadded,
            )
            for model in models
        }
        for name, batcher in self.batchers.items():
            self.metrics.watch_queue(name, lambda batcher=batcher: batcher.waiting)  # type: ignore[misc]
            if (watch := self.models[name].watch) is not None:
                self.metrics.watch_drift(name, watch)

    @property
    def ready(self) -> bool:
        """Whether every model answers."""
        return all(batcher.alive for batcher in self.batchers.values())

    def able(self, operation: str) -> list[ModelHandle]:
        """Return the models with this operation."""
        return [model for model in self.models.values() if operation in model.operations]

    def model(self, name: str | None, operation: str) -> ModelHandle:
        """Return the model for a request; without a name the first one with the operation.

        Raises:
            ApiError: there is no model of this name (404), or it lacks the operation (422).
        """
        able = self.able(operation)
        if name is None and able:
            return able[0]
        served = self.named(self.first if name is None else name)
        if operation not in served.operations:
            others = ", ".join(other.name for other in able[:20])
            raise ApiError(
                422,
                f"the model {served.name!r} is for {served.task!r} and has no {operation}"
                + (f"; ask {others}" if able else ""),
                param="model",
            )
        return served

    def named(self, name: str) -> ModelHandle:
        """Return the model of this name.

        Raises:
            ApiError: there is no such model (404).
        """
        if name not in self.models:
            near = difflib.get_close_matches(name[:_NAME], self.models, 1)
            known = ", ".join(list(self.models)[:20])
            hint = f"did you mean {near[0]!r}?" if near else f"there is {known}"
            raise ApiError(404, f"there is no model {name[:_NAME]!r} here; {hint}", param="model")
        return self.models[name]

    async def compute(
        self,
        served: ModelHandle,
        operation: str,
        inputs: Sequence[Any],
        costs: Sequence[int],
        *,
        patient: bool = False,
    ) -> list[Any]:
        """Compute results for `inputs` in the model's batcher.

        Args:
            served: the model.
            operation: one of the model's operations.
            inputs: the N inputs.
            costs: the tokens of each input.
            patient: wait while the queue is full, for a request that was partly computed.

        Raises:
            ApiError: too many inputs (422), a full queue (429), a server that is shutting down
                (503), invalid inputs (422).
        """
        most = max(self.limits.max_texts, self.limits.max_queue // 2)
        if len(inputs) > most:  # a single request must not fill the queue
            raise ApiError(
                422,
                f"the texts make {len(inputs)} inputs, but at most {most} are taken at a time; "
                "send fewer or shorter texts",
            )
        while True:
            try:
                return await self.batchers[served.name].submit(operation, inputs, costs)
            except QueueFull as error:
                if not patient:
                    raise ApiError(
                        429,
                        f"too many texts are waiting; try again in {error.retry_after} s",
                        retry_after=error.retry_after,
                    ) from None
            except Closed:
                raise ending() from None
            await asyncio.sleep(_PATIENCE)  # the request's deadline ends this loop

    async def aside(self, size: int, work: Callable[..., Result], *args: Any) -> Result:
        """Run ``work(*args)``, in another thread if its `size` is large, or if it might wait for
        such work: the tokenizer serves one caller at a time. Short work waits for the running work,
        but not for all the long work in the queue."""
        if size >= _ASIDE:
            future = self._pool.submit(work, *args)
            self._long.add(future)
            future.add_done_callback(self._long.discard)
        elif self._long:
            future = self._short.submit(work, *args)
        else:
            return work(*args)
        return await asyncio.wrap_future(future)

    async def search(
        self, served: ModelHandle, asked: np.ndarray, queries: Sequence[str], **options: Any
    ) -> NearestRows:
        """Search the collection of a model; return the nearest rows of each query.

        Args:
            served: the model, which has a collection.
            asked: the vectors of the queries, fp32 [Q, D] of length 1.
            queries: the queries, for a search by words.
            options: of :meth:`Collection.nearest`.

        Raises:
            BertineError: a condition cannot be read, or names another column; the package of the
                search by words is missing.
        """
        assert served.collection is not None
        work = partial(served.collection.current.nearest, asked, queries, **options)
        return await asyncio.wrap_future(self._searching.submit(work))

    async def drifts(self) -> list[dict[str, Any]]:
        """Compare what each model has answered with the texts of its training."""
        watches = {name: model.watch for name, model in self.models.items() if model.watch}
        comparing = [self._searching.submit(watch.compare) for watch in watches.values()]
        drifts = [await asyncio.wrap_future(result) for result in comparing]
        return [
            {"model": name, "drift": drift and drift.to_dict()}
            for name, drift in zip(watches, drifts, strict=True)
        ]

    async def explain(
        self,
        served: ModelHandle,
        parts: Sequence[str],
        method: str,
        label: str | None,
        word: str | None = None,
    ) -> Explanation:
        """Explain an answer, in many small units of work between those of other requests.

        Args:
            served: the model.
            parts: the texts that belong together.
            method, label, word: as
                :class:`~bertine.inference.explaining.explainer.Explainer` takes them.

        Raises:
            BertineError: an error of the explanation; the texts are too long.
            ApiError: see :meth:`compute`.
        """
        size, most = sum(map(len, parts)), self.limits.explain_characters
        if size > most:
            raise BertineError(
                f"the texts have {size} characters, but at most {most} are explained"
            )
        assert served.explainer is not None
        steps = served.explainer.steps(parts, method=method, label=label, word=word)
        units, explanation = await self.aside(size, _advance, steps, None)
        while explanation is None:
            results: list[Any] = []
            for start in range(0, len(units), _TOGETHER):
                some = units[start : start + _TOGETHER]
                costs = [unit.tokens for unit in some]
                results += await self.compute(served, "explain", some, costs)
            numbers = sum(getattr(result, "size", 1) for result in results)
            units, explanation = await self.aside(numbers // _NUMBERS, _advance, steps, results)
        return await self._with_nearest(served, parts, explanation)

    async def _with_nearest(
        self, served: ModelHandle, parts: Sequence[str], explanation: Explanation
    ) -> Explanation:
        """Add the nearest examples to an explanation, if the server shows any."""
        nearest = served.nearest
        if nearest is None:
            return explanation
        text = parts[0] if len(parts) == 1 else tuple(parts)
        prepared = await self.aside(sum(map(len, parts)), served.prepare, [text])
        cost = sum(prepared.costs)
        vectors = await self.compute(served, "nearest", [prepared.features], [cost])
        result = await self.aside(nearest.vectors.size // _NUMBERS, nearest.nearest, vectors[0])
        return replace(explanation, nearest=result)

    def close(self) -> None:
        """Answer the waiting requests, and end the threads."""
        for batcher in self.batchers.values():
            batcher.close(self.limits.request_timeout)
        self._computing.close(1.0)  # idle, unless a batch takes longer than a request may
        for pool in (self._pool, self._short, self._searching):
            pool.shutdown(wait=False, cancel_futures=True)


def _advance(
    steps: Generator[list[Unit], Sequence[Any] | None, Explanation], results: list[Any] | None
) -> tuple[list[Unit], Explanation | None]:
    """Return the next units of work, or the explanation."""
    try:
        return steps.send(results), None
    except StopIteration as end:
        return [], end.value
