"""Look up what `bertine.contrib` adds: names, commands, kinds of models, readers of weights.

The core imports nothing of that package. It asks here for a table of names and the places where
they are implemented, and imports a place when it is needed. Without the package every table is
empty, so that its names are as unknown as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.names import implementation


@cache
def registered(name: str) -> Mapping[str, Any]:
    """Return a table of :mod:`bertine.contrib`, by its name there; {}: it is left out."""
    try:
        contrib = import_module("bertine.contrib")
    except ModuleNotFoundError:
        return {}
    held: Mapping[str, Any] = getattr(contrib, name, {})
    return held


def kind_of_model(path: Path | str) -> str | None:
    """Return the kind of the model of contrib at `path`, one of its ``MODELS``; None: another
    model, or nothing."""
    kinds = registered("MODELS").items()
    return next((kind for kind, jobs in kinds if implementation(jobs["recognize"])(path)), None)


def refuse_contrib(path: Path | str) -> None:
    """Refuse a model of contrib where one with layers and heads is needed.

    Raises:
        BertineError: it is one.
    """
    if (kind := kind_of_model(path)) is not None:
        known = registered("MODELS")[kind]
        raise BertineError(
            f"{path}: is {known['title']}, without layers and heads as they are needed here: use "
            f"it with {known['verbs']}"
        )


def job_of_model(model: object, job: str) -> Callable[..., Any] | None:
    """Return the function of contrib that does `job`, such as "convert", with `model`; None: that
    is no path of a model of contrib, or of a kind without this job."""
    kind = kind_of_model(model) if isinstance(model, str | Path) else None
    place = None if kind is None else registered("MODELS")[kind].get(job)
    return None if place is None else implementation(place)
