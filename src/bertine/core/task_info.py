"""Read and write ``bertine.json``, which records what a model was trained to do."""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bertine.core.errors import BertineError
from bertine.core.files import read_json_object
from bertine.core.strict_json import Readable
from bertine.core.text import briefly

#: Bertine's file with the task that a model was trained for.
TASK = "bertine.json"
#: Version of the format of ``bertine.json``; other versions are refused.
TASK_FORMAT = 1
#: One piece between two special tokens.
_SHORTEST_INPUT = 3

Value = TypeVar("Value", bool, int, float, str)
_KINDS = {bool: "a truth value", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True)
class TaskInfo(Readable):
    """The contents of ``bertine.json``: what a model was trained to do.

    Attributes:
        name: the task as the command line calls it, e.g. "text" or "pretraining".
        labels: the classes in the order of the classifier's outputs; empty when there are none.
        text_columns: the one or two columns that the texts came from.
        label_column: the column that the labels came from.
        max_length: longest input in tokens in training; None: unknown.
        metrics: the metrics that judge the task; their mean is its single score.
        dataset: the public data set the model was trained on, e.g. "glue/CoLA".
        settings: further settings of prediction by name: the null threshold of spans, the threshold
            of many labels.
        training: facts of the training (seed, steps, rates, scores, ...), for the reader, and for
            what prediction must repeat (the format of sequences).
    """

    name: str
    labels: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    max_length: int | None = None
    metrics: tuple[str, ...] = ()
    dataset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object for ``bertine.json``."""
        return {"format": TASK_FORMAT} | super().to_dict()

    def input_length(self, positions: int, default: int | None = None) -> int:
        """Return the longest input of a model with `positions` positions: as in training; if that
        is unknown, `default` or the most that the model accepts."""
        return min(self.max_length or default or positions, positions)

    def setting(self, name: str, default: Value) -> Value:
        """Return the value of `name` in `settings`, which must have the type of `default`;
        `default` if there is none.

        Raises:
            BertineError: it has another type, or is a number that is not finite.
        """
        value: Any = self.settings.get(name, default)
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        finite = not isinstance(value, float) or math.isfinite(value)
        if type(value) is not type(default) or not finite:
            raise BertineError(
                f"bertine.json: {name} is {briefly(value)}, not {_KINDS[type(default)]}"
            )
        checked: Value = value
        return checked

    @classmethod
    def read(cls, path: Path) -> TaskInfo:
        """Read a ``bertine.json``.

        Raises:
            BertineError: the file is missing, not JSON, of a newer format, has an unknown key or a
                value of a wrong type.
        """
        # Scores of the training may be undefined and are written as NaN.
        values = read_json_object(path, lenient=True)
        written = values.pop("format", None)
        if written != TASK_FORMAT:
            raise BertineError(
                f"{path}: has format {briefly(written)}, but this Bertine reads {TASK_FORMAT}; "
                "use the Bertine that wrote it, or a newer one"
            )
        known = [f.name for f in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key[:80], known, n=1, cutoff=0.0)[0]
                raise BertineError(f"{path}: unknown key {briefly(key)}; did you mean {near!r}?")
        try:
            info = cls.from_dict(values)
        except ValueError as error:
            raise BertineError(f"{path}: {error}") from error
        if info.max_length is not None and info.max_length < _SHORTEST_INPUT:
            raise BertineError(
                f"{path}: max_length is {info.max_length}, but must be at least {_SHORTEST_INPUT}"
            )
        return info
