"""Tables in memory of every kind that is taken, without the libraries: what is used of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa


class PandasFrame:
    """As much of a pandas data frame as is used: columns, and cells by place."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = list(columns)
        self._cells = [np.array(values, dtype=object) for values in columns.values()]

    @property
    def iloc(self) -> PandasFrame:
        return self

    def __getitem__(self, place: tuple[slice, int]) -> Any:
        return self._cells[place[1]]

    def assign(self, **columns: list[Any]) -> PandasFrame:
        there = zip(self.columns, self._cells, strict=True)
        return PandasFrame({name: cells.tolist() for name, cells in there} | columns)


class PolarsFrame:
    """As much of a polars data frame as is used: its series."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = list(columns)
        self._series = [_Series(name, values) for name, values in columns.items()]

    def get_columns(self) -> list[_Series]:
        return self._series


class _Series:
    def __init__(self, name: str, values: list[Any]) -> None:
        self.name, self._values = name, values

    def to_list(self) -> list[Any]:
        return self._values


class Dataset:
    """As much of a ``datasets.Dataset`` as is used."""

    def __init__(self, columns: dict[str, list[Any]], **names: list[str]) -> None:
        self.column_names, self._columns = list(columns), columns
        self.features = {name: _Feature(names.get(name)) for name in columns}

    def __getitem__(self, column: str) -> list[Any]:
        return self._columns[column]


class _Feature:
    def __init__(self, names: list[str] | None) -> None:
        if names is not None:
            self.names = names


#: By kind: what makes a table of columns.
FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": PandasFrame,
    "polars": PolarsFrame,
    "datasets": Dataset,
    "arrow table": pa.table,
    "arrow batch": lambda columns: pa.RecordBatch.from_pydict(columns),
    "rows": lambda columns: [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ],
    "columns": dict,
    "columns of numpy": lambda columns: {k: np.array(v) for k, v in columns.items()},
}
