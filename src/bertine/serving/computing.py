"""One thread for all that a server computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class ComputingThread:
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

    def run(self, work: Callable[[], Result]) -> Result:
        """Run `work` there; return or raise what it does.

        Raises:
            RuntimeError: :meth:`close` was called.
        """
        future: Future[Result] = Future()
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
