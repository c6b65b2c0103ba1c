"""Explanations between other requests: each is many small units of work in the model's queue."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from bertine.errors import BertineError
from bertine.inference.explaining.attribution import Unit
from bertine.inference.explaining.explanation import Explanation
from bertine.serving.served import Served
from bertine.serving.service import Service

#: Units that wait in the queue at a time, so that a long text does not fill it.
_TOGETHER = 64
#: Numbers of an output that count as one of a text's characters: choosing who computes aside.
_EACH = 16


async def explained(
    service: Service, served: Served, parts: Sequence[str], method: str, label: str | None
) -> Explanation:
    """The explanation of an answer.

    Args:
        parts: the texts that belong together.
        method, label: as :meth:`bertine.inference.explaining.explainer.Explainer.explain` takes
        them.

    Raises:
        BertineError: what explaining raises; the texts are too long.
        ApiError: what :meth:`Service.compute` raises.
    """
    size, most = sum(map(len, parts)), service.limits.explain_characters
    if size > most:
        raise BertineError(f"the texts have {size} characters, but at most {most} are explained")
    steps = served.explainer.steps(parts, method=method, label=label)
    units, done = await service.aside(size, _advance, steps, None)
    while done is None:
        results: list[Any] = []
        for at in range(0, len(units), _TOGETHER):
            some = units[at : at + _TOGETHER]
            costs = [unit.tokens for unit in some]
            results += await service.compute(served, "explain", some, costs)
        numbers = sum(getattr(result, "size", 1) for result in results)
        units, done = await service.aside(numbers // _EACH, _advance, steps, results)
    return done


def _advance(
    steps: Generator[list[Unit], Sequence[Any] | None, Explanation], results: list[Any] | None
) -> tuple[list[Unit], Explanation | None]:
    """The next units of work, or the explanation."""
    try:
        return steps.send(results), None
    except StopIteration as end:
        return [], end.value
