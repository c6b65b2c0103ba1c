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
    """The lines of a log in order of their step, those of a step put together.

    A step may have a line of its training and one of its evaluation, with different keys; and a
    run that was killed and resumed writes some steps twice: of a key that is there twice the last
    value is kept. A last line without a line end (killed while writing) is not a line yet and is
    left out.

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
            rows.setdefault(int(row["step"]), {}).update(row)
        except (ValueError, TypeError, KeyError) as error:
            raise BertineError(
                f"{path}: line {number} is not a JSON object with a number 'step'; "
                "remove the line or train again"
            ) from error
    return [rows[step] for step in sorted(rows)]


def pretraining_names(log: Iterable[LogRow]) -> list[LogRow]:
    """The lines of a pre-training log with MLM under its own names.

    Where a loss has one term alone, the log calls it "loss" and "accuracy"; of an MLM-only run
    these become "mlm_loss" and "mlm_accuracy" too. Lines that have MLM's own names stay as they
    are. Not for logs of fine-tuning.
    """
    named: list[LogRow] = []
    for row in log:
        added = {
            f"{prefix}mlm_{name}": row[f"{prefix}{name}"]
            for prefix in ("", "eval_")
            for name in ("loss", "accuracy")
            if f"{prefix}{name}" in row and f"{prefix}mlm_loss" not in row
        }
        named.append({**row, **added})
    return named


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
