"""Tables of columns in files and in memory, of every kind that is read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertine.data.in_memory import Source, as_data
from frames import FRAMES, Dataset

Columns = dict[str, list[Any]]


def _plain(value: Any) -> Any:
    """Return a value as programs write it into JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _csv(delimiter: str) -> Callable[[Path, Columns], Source]:
    def written(folder: Path, columns: Columns) -> Source:
        path = folder / ("data.tsv" if delimiter == "\t" else "data.csv")
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(columns)
            for row in zip(*columns.values(), strict=True):
                writer.writerow(
                    ["" if v is None else v.decode() if isinstance(v, bytes) else v for v in row]
                )
        return path

    return written


def _jsonl(folder: Path, columns: Columns) -> Source:
    path = folder / "data.jsonl"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(_plain(row)) + "\n" for row in rows), encoding="utf-8")
    return path


def _json(folder: Path, columns: Columns) -> Source:
    path = folder / "data.json"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text(json.dumps(_plain(rows), indent=1), encoding="utf-8")
    return path


def _arrow_table(columns: Columns) -> Any:
    """Make a table of Arrow; where its types do not fit, of what JSON has, then of texts."""
    made = {}
    for name, values in columns.items():
        for form in (lambda v: v, _plain, str):
            try:
                made[name] = pa.array([form(value) for value in values])
                break
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                continue
    return pa.table(made)


def _parquet(folder: Path, columns: Columns) -> Source:
    path = folder / "data.parquet"
    pq.write_table(_arrow_table(columns), path)
    return path


def _categories(folder: Path, columns: Columns) -> Source:
    """Write Parquet as pandas does with a Categorical: numbers, and beside them the texts."""
    path = folder / "data.parquet"
    table = _arrow_table(columns)
    for at, name in enumerate(table.column_names):
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_int64(column.type):
            table = table.set_column(at, name, column.dictionary_encode())
    pq.write_table(table, path)
    return path


def _class_labels(folder: Path, columns: Columns) -> Source:
    """Make a data set whose labels are numbers with names, where they are whole texts."""
    labels = columns.get("label", [])
    if not labels or not all(type(label) is str for label in labels):
        return as_data(Dataset(columns))  # type: ignore[return-value]
    names = sorted({*labels})
    numbers = [names.index(label) for label in labels]
    return as_data(Dataset({**columns, "label": numbers}, label=names))  # type: ignore[return-value]


def _in_memory(kind: str) -> Callable[[Path, Columns], Source]:
    def made(folder: Path, columns: Columns) -> Source:
        if kind.startswith("arrow"):
            table = _arrow_table(columns)
            return as_data(table if kind == "arrow table" else table.to_batches()[0])  # type: ignore[return-value]
        return as_data(FRAMES[kind](columns))  # type: ignore[return-value]

    return made


def _generator(folder: Path, columns: Columns) -> Source:
    rows = zip(*columns.values(), strict=True)
    return as_data(dict(zip(columns, row, strict=True)) for row in rows)  # type: ignore[return-value]


CONTAINERS: dict[str, Callable[[Path, Columns], Source]] = {
    **{kind: _in_memory(kind) for kind in FRAMES if kind != "columns of numpy"},
    "csv": _csv(","),
    "tsv": _csv("\t"),
    "semicolon csv": _csv(";"),
    "jsonl": _jsonl,
    "json": _json,
    "parquet": _parquet,
    "parquet of categories": _categories,
    "data set with names": _class_labels,
    "generator": _generator,
}
