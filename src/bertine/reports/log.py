"""Reading the JSON-lines log of a training run for its report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import os_errors

#: One line of the log, e.g. ``{"step": 20, "loss": 7.9, "mlm_loss": 7.2, ...}``.
LogRow = Mapping[str, Any]


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a log, in order of their step; of lines with the same step the last.

    A run that was killed and resumed writes some steps twice; they agree, so the last is kept.
    A last line without a line end (killed while writing) is not a line yet and is left out.

    Raises:
        BertineError: the file cannot be read, or a complete line is not a JSON object with a
            number ``step``.
    """
    path = Path(path)
    with os_errors(path, "reading it"):
        text = path.read_text(encoding="utf-8", errors="replace")
    complete = text[: text.rfind("\n") + 1]
    rows: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(complete.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows[int(row["step"])] = row
        except (ValueError, TypeError, KeyError) as error:
            raise BertineError(
                f"{path}: line {number} is not a JSON object with a number 'step'; "
                "remove the line or train again"
            ) from error
    return [rows[step] for step in sorted(rows)]


def series(log: Iterable[LogRow], key: str) -> tuple[list[float], list[float]]:
    """Steps and values of the lines that have a finite number under `key`."""
    steps: list[float] = []
    values: list[float] = []
    for row in log:
        value = row.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            steps.append(float(row["step"]))
            values.append(float(value))
    return steps, values
