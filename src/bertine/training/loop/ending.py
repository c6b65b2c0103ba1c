"""The end of a run before its last step, asked for by whoever started it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ASKED: ContextVar[Callable[[int], bool] | None] = ContextVar("ends_runs", default=None)


@contextmanager
def ending_when(over: Callable[[int], bool]) -> Iterator[None]:
    """End runs that are trained in this context when `over` says so: the model is written as it is
    then, with a learning rate that has not come down.

    Args:
        over: called after every step with the number of steps that are done; of several processes
            each has one.
    """
    token = _ASKED.set(over)
    try:
        yield
    finally:
        _ASKED.reset(token)


def end_is_asked(done: int, in_any: Callable[[bool], bool] = bool) -> bool:
    """Tell whether a run is to end after so many steps.

    Args:
        in_any: asks all processes of the run whether it is to in any of them.
    """
    over = _ASKED.get()
    return over is not None and in_any(over(done))
