"""Writing examples that are in memory to files, for runs in other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.files import atomic_file
from bertine.records.table_writer import json_text
from bertine.tables.given import GivenParts, GivenTable


def write_given(data: GivenTable | GivenParts, folder: Path) -> Path:
    """Write tables as JSON lines, ``train.jsonl`` and so on; numbers of classes become their names.

    Returns:
        The file of the one table, or the folder of several parts.
    """
    if isinstance(data, GivenTable):
        return _write(data, folder / "train.jsonl")
    for name in ("train", "validation", "test"):
        table = getattr(data, name)
        if table is not None:
            _write(table, folder / f"{name}.jsonl")
    return folder


def _write(table: GivenTable, path: Path) -> Path:
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as handle:
        for row in table.rows():
            for column, names in table.class_names.items():
                row[column] = _named(row[column], names)
            handle.write(json_text(row) + "\n")
    return path


def _named(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if type(value) is int:
        return names[value] if 0 <= value < len(names) else None
    return value
