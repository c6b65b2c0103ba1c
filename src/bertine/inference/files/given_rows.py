"""Answers to a table in memory: its rows, with the answers beside them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertine.records.table_writer import AS_READ
from bertine.tables.given import GivenTable
from bertine.terminal.console import say


def answered_rows(given: Any, table: GivenTable, write: Callable[[Path], Any]) -> Any:
    """Return the rows of a table with their answers, and print the report.

    Args:
        given: the table as the user gave it, whose values stay as they are.
        table: the same, looked at.
        write: writes the answered rows to a file of JSON lines, and gives the report.

    Returns:
        Of a pandas frame the frame with the columns of the answers added, its index kept; of other
        tables a dictionary for each row.
    """
    with tempfile.TemporaryDirectory(prefix="bertine-predict-") as folder:
        file = Path(folder) / "rows.jsonl"
        report = write(file)
        with open(file, encoding="utf-8", errors=AS_READ) as lines:
            rows = [json.loads(line) for line in lines]
    for line in report.lines():
        say(line)
    if hasattr(given, "assign"):
        return given.assign(**{name: [row.get(name) for row in rows] for name in report.columns})
    for number, row in enumerate(rows):
        for name in row.keys() & set(table.columns) - set(report.columns):
            row[name] = table.cells[name][number]
    return rows
