"""Arguments that several verbs have in common, stated once.

The arguments of ``finetune`` stand in its signature. ``lr_find`` and ``search`` take them over from
there, and what holds some of them, such as how data are read, is made of them by their names.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from bertine.datasets.reading import Reading
from bertine.errors import BertineError
from bertine.options.types import check_types, resolved_signature
from bertine.tasks.options import TableOptions
from bertine.tasks.spans.task import SpanLimits

Verb = TypeVar("Verb", bound=Callable[..., Any])
Kind = TypeVar("Kind")


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


def made(kind: type[Kind], given: Mapping[str, Any], **others: Any) -> Kind:
    """A dataclass of the arguments in `given` that have the names of its attributes, and of
    `others`, which go before those."""
    return kind(**{**_named(kind, given), **others})


def reading_of(given: Mapping[str, Any]) -> Reading:
    """How data are read, from the arguments of a verb by their names.

    Raises:
        BertineError: an option of tables is not known or out of range.
    """
    options = made(TableOptions, given)
    limits = SpanLimits.given(**_named(SpanLimits, given))
    return made(Reading, given, options=options, limits=limits)


def names_one_task(task: str, glue_task: str | None) -> bool:
    """Whether `task`, or of GLUE its `glue_task`, is one task and not all of GLUE."""
    return task != "glue" if glue_task is None else glue_task.lower() != "all"


def check_numbers(
    given: object, *, at_least_1: Sequence[str] = (), at_least_0: Sequence[str] = ()
) -> None:
    """Refuse attributes of `given` that are below 1, or below 0 or not finite; None may be any.

    Raises:
        BertineError: one is.
    """
    for name in at_least_1:
        value = getattr(given, name)
        if value is not None and value < 1:
            raise BertineError(f"{name} is {value}, but must be at least 1")
    for name in at_least_0:
        value = getattr(given, name)
        if value is not None and not 0 <= value < math.inf:
            finite = "" if math.isfinite(value) else " and finite"
            raise BertineError(f"{name} is {value:g}, but must be 0 or more{finite}")


def _named(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: given[each.name] for each in fields(kind) if each.name in given}
