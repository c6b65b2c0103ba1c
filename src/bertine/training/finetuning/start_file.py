"""``start.json``: what a fine-tuning run was asked for, kept for the diagnosis of its report.

Unlike ``run.json``, which has every setting as it was resolved, it has the arguments as the user
gave them, so that a report can name the command to run next.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertine.files import write_json
from bertine.runs.files import START
from bertine.training.finetuning.plan import Wishes
from bertine.training.finetuning.setup import Prepared

#: Arguments that a command to run next does not repeat.
_LEFT_OUT = ("out", "resume")


def write_start(
    folder: Path, verb: Callable[..., Any], given: Mapping[str, Any], prepared: Prepared
) -> None:
    """Write ``start.json`` into the `folder` of a run.

    Args:
        folder: of the run.
        verb: the function that was called.
        given: all its arguments, by name; those that are not the defaults are kept.
        prepared: what the run starts from.
    """
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(verb).parameters.items()
    }
    arguments = {
        name: _json(value)
        for name, value in given.items()
        if name not in _LEFT_OUT and value != defaults.get(name)
    }
    if not isinstance(given["data"], str | Path):
        arguments.pop("data", None)  # examples in memory
    usual = Wishes().plan(prepared.loaded.config, len(prepared.train.examples))
    start = {
        "arguments": arguments,
        "constant_loss": prepared.task.constant_loss(
            prepared.train.examples, prepared.train.features
        ),
        "hidden_size": prepared.loaded.config.hidden_size,
        "usual_epochs": usual.epochs,
        "usual_batch_size": usual.batch_size,
        "usual_learning_rate": usual.learning_rate,
    }
    write_json(folder / START, start)


def _json(value: Any) -> Any:
    """An argument as a JSON value."""
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
