"""Read the JSON-lines log of a training run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import check_regular, os_errors
from bertine.terminal.console import warn

#: One line of the log, e.g. ``{"step": 20, "loss": 7.9, "mlm_loss": 7.2, ...}``.
LogRow = Mapping[str, Any]


def read_log(path: str | Path, *, mend: bool = False) -> list[dict[str, Any]]:
    """Read the lines of a log as they were written; none where there is no file yet.

    A last line that is cut short (killed while writing) is not a line yet and is left out.

    Args:
        mend: leave out a damaged line and warn of it, in place of raising: what a power cut leaves
            after the last checkpoint must not keep a run from going on.

    Raises:
        BertineError: the file cannot be read, or a complete line is not a JSON object with a
            number ``step``.
    """
    path = Path(path)
    if not path.exists():
        return []
    check_regular(path)
    with os_errors(path, "reading it"):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            int(entry["step"])
            if mend and "\\u" in line:  # a run that goes on writes the line again
                json.dumps(entry, ensure_ascii=False).encode()
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            if number == len(lines):  # without a line end
                break
            wrong = (
                "has half a surrogate pair"
                if isinstance(error, UnicodeEncodeError)
                else "is not a JSON object with a number 'step'"
            )
            problem = f"{path}: line {number} {wrong}"
            if not mend:
                raise BertineError(f"{problem}; remove the line or train again") from error
            warn(f"{problem}; it is left out")
            continue
        entries.append(entry)
    return entries


def by_step(log: Iterable[LogRow]) -> list[LogRow]:
    """Sort the lines of a log by their step and join those of one step, that of its training and
    that of its evaluation, which have different keys; of a key that is there twice the last value
    is kept."""
    rows: dict[int, dict[str, Any]] = {}
    for line in log:
        rows.setdefault(int(line["step"]), {}).update(line)
    return [rows[step] for step in sorted(rows)]


def pretraining_names(log: Iterable[LogRow], main: str = "mlm") -> list[LogRow]:
    """Give the main term of a pre-training log its own names.

    Where a loss has one term alone, the log calls it "loss" and "accuracy"; of a run with MLM
    alone these become "mlm_loss" and "mlm_accuracy" too. Lines that have the term's own names
    stay as they are. Not for logs of fine-tuning.

    Args:
        main: the term (:func:`bertine.terms.main_term`).
    """
    named: list[LogRow] = []
    for row in log:
        added = {
            f"{prefix}{main}_{name}": row[f"{prefix}{name}"]
            for prefix in ("", "eval_")
            for name in ("loss", "accuracy")
            if f"{prefix}{name}" in row and f"{prefix}{main}_loss" not in row
        }
        named.append({**row, **added})
    return named


def task_loss(log: Iterable[LogRow]) -> str:
    """Return the key of the task's own loss in a log of fine-tuning: "loss", or where a language
    model's is added to it ("lm_loss") that of the head, such as "classifier_loss"."""
    for row in log:
        if "lm_loss" in row:
            names = [key for key in row if key.endswith("_loss") and not key.startswith("eval_")]
            return next((name for name in names if name != "lm_loss"), "loss")
    return "loss"


def series(log: Iterable[LogRow], key: str) -> tuple[list[float], list[float]]:
    """List the steps and the values of the lines that have a finite number under `key`."""
    steps: list[float] = []
    values: list[float] = []
    for row in log:
        value = row.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            steps.append(float(row["step"]))
            values.append(float(value))
    return steps, values
