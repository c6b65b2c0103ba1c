"""What several verbs do with their arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from bertine.datasets.reading import Reading
from bertine.options.finetuning import FinetuneOptions
from bertine.options.reading import SpanReading
from bertine.options.types import check_types, resolved_signature
from bertine.tasks.options import TableOptions
from bertine.tasks.spans.task import SpanLimits

Verb = TypeVar("Verb", bound=Callable[..., Any])


def with_options_of(other: Callable[..., Any], but: frozenset[str]) -> Callable[[Verb], Verb]:
    """Let a verb take the keyword arguments of `other`, all `but` some, besides its own, by the
    same names and with the same defaults: its signature shows them, the verb gets all of them in
    its last, ``**options``, and one that neither has is a TypeError. Types are checked
    (:func:`~bertine.options.types.check_types`)."""

    def wrap(verb: Verb) -> Verb:
        own = inspect.signature(verb)
        mine = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        known = {parameter.name for parameter in mine}
        theirs = [
            parameter
            for parameter in resolved_signature(other).parameters.values()
            if parameter.name not in known | but
        ]
        signature = own.replace(parameters=[*mine, *theirs])

        @functools.wraps(verb)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)  # refuses what neither knows
            bound.apply_defaults()
            return verb(*bound.args, **bound.kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return check_types(call)  # type: ignore[return-value]

    return wrap


def reading_of(options: FinetuneOptions) -> Reading:
    """Return how data are read, from the options of a verb.

    Raises:
        BertineError: an option of tables is not known or out of range.
    """
    limits = SpanLimits.given(**SpanReading.of(options).values())
    return Reading.of(
        options, options=TableOptions.of(options), limits=limits, whole=False, known=frozenset()
    )


def names_one_task(task: str, glue_task: str | None) -> bool:
    """Tell whether `task`, or of GLUE its `glue_task`, is one task and not all of GLUE."""
    return task != "glue" if glue_task is None else glue_task.lower() != "all"
