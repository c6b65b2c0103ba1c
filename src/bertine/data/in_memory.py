"""Accept tables in memory, and published data sets by name, in place of a file.

No library is imported: the data are recognized by their methods. Accepted are pandas and polars
frames, Arrow tables and record batches, ``datasets.Dataset``, anything else with the Arrow
interface ``__arrow_c_stream__``, sequences of dictionaries, and dictionaries of columns. A
dictionary of such tables under the names of the parts (``train``, ``validation``, ``test``), such
as a ``datasets.DatasetDict``, is a data set with these parts.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertine.core.errors import BertineError
from bertine.core.names import implementation
from bertine.core.published import PublishedName
from bertine.core.text import Index, row_at

#: The name of data in memory in messages, in place of a file's name.
NAME = "data"
#: What fetches a published data set, which needs the readers of files.
_PUBLISHED = "bertine.data.published:published_data"
#: The names of the parts in memory, and of files in a data folder without their suffixes.
SPLIT_NAMES = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
#: The default ``repr`` of a Python object that has no text.
_ADDRESS = re.compile(r"<.* at 0x[0-9a-f]+>", re.DOTALL)
#: The accepted kinds, for messages.
_KINDS = (
    "a path, a pandas or polars data frame, an Arrow table, a datasets.Dataset, a list of "
    "dictionaries, or a dictionary of columns"
)


@dataclass(frozen=True)
class InMemoryTable:
    """Rows in memory that can be read repeatedly.

    Attributes:
        name: for messages, in place of the path of a file.
        columns: the column names, in order.
        cells: the values of each column.
        class_names: the names of the numbers in a column, if the data have them
            (``datasets.ClassLabel``).
    """

    name: str
    columns: tuple[str, ...]
    cells: Mapping[str, Sequence[Any]] = field(repr=False)
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.name

    def __len__(self) -> int:
        return len(self.cells[self.columns[0]]) if self.columns else 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dictionaries of texts, numbers, truth values, lists, dictionaries and
        None. Missing values (NaN, ``pandas.NA``) become None, other values their text.

        Raises:
            BertineError: a value is an object without a text (a generator).
        """
        cells = zip(*(self.cells[name] for name in self.columns), strict=True)
        for number, values in enumerate(cells):
            try:
                plain = [plain_value(value) for value in values]
            except BertineError as error:
                raise BertineError(f"{row_at(self.name, Index(number))}: {error}") from error
            yield dict(zip(self.columns, plain, strict=True))


#: The source of examples that their readers accept.
Source = Path | str | InMemoryTable


@dataclass(frozen=True)
class DataParts:
    """A data set with its parts, in memory or in the files of a published one; None for a missing
    part.

    Attributes:
        name: for messages; of a published one the name, with which it is read again.
        alone: whether `train` is a part that was named, whatever it is called there.
    """

    train: Source | None = None
    validation: Source | None = None
    test: Source | None = None
    name: str = NAME
    alone: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def published(self) -> PublishedName | None:
        """The name of a published data set; None for tables in memory."""
        return PublishedName.parse(self.name)


#: A table of any kind that :func:`as_table` accepts; the libraries are not imported, so not named.
TableLike = Any
#: The data argument of a verb after :func:`as_data`.
Data = Path | str | InMemoryTable | DataParts


def as_data(data: Any, name: str = NAME) -> Data:
    """Return `data` as a path, :class:`InMemoryTable` or :class:`DataParts`; such an object is
    returned unchanged. The name of a published data set (``hf:NAME``) becomes its parts, which are
    fetched if they are not in the cache.

    Args:
        name: the argument's name, for messages.

    Raises:
        BertineError: it is of no accepted kind, has no columns or no rows, or its columns differ in
            length; or what :func:`~bertine.data.published.published_data` raises.
    """
    if isinstance(data, str | Path) and (published := PublishedName.parse(data)) is not None:
        parts: DataParts = implementation(_PUBLISHED)(published)
        return parts
    if isinstance(data, str | Path | InMemoryTable | DataParts):
        return data
    if isinstance(data, os.PathLike):
        return Path(os.fspath(data))
    if isinstance(data, Mapping) and data and any(map(_is_table, data.values())):
        return _parts(data, name)
    return as_table(data, name)


def as_source(data: Any, name: str) -> Source:
    """Return `data` as a path or one table; see :func:`as_data`.

    Raises:
        BertineError: it has several parts, or an error of :func:`as_data`.
    """
    source = as_data(data, name)
    if not isinstance(source, DataParts):
        return source
    there = {part: table for part in SPLIT_NAMES if (table := getattr(source, part)) is not None}
    if len(there) == 1:
        return next(iter(there.values()))
    what, which = name, "give one table"
    if (published := source.published) is not None:
        part = f"{published.part}/{list(there)[-1]}".strip("/")
        what, which = source.name, f"name one, as in {replace(published, part=part, revision=None)}"
    raise BertineError(f"{what} has several parts; {which}")


def reads_again(source: Source) -> bool:
    """Return whether a source can be read repeatedly; standard input and pipes can be read only
    once. True for a missing file, which its reader refuses."""
    if isinstance(source, InMemoryTable):
        return True
    path = Path(source)
    return str(path) != "-" and (path.is_file() or not path.exists())


def as_table(data: Any, name: str = NAME) -> InMemoryTable:
    """Return `data` as one table; see :func:`as_data`.

    Raises:
        BertineError: it is of no accepted kind, has no columns or no rows, or its columns differ in
            length.
    """
    if isinstance(data, InMemoryTable):
        return data
    table = _converted(data, name)
    if table is None:
        kind = type(data).__name__
        article = "an" if kind[:1].lower() in "aeiou" else "a"
        raise BertineError(f"{name} is {article} {kind}, but must be {_KINDS}")
    repeated = [column for column in table.columns if table.columns.count(column) > 1]
    if repeated:
        raise BertineError(f"{name}: two columns are called {repeated[0]!r}; rename one")
    if not len(table):
        raise BertineError(f"{name}: has no rows")
    return table


def is_frame(value: Any) -> bool:
    """Return whether a value has named columns, like data frames and dictionaries of columns."""
    named = hasattr(value, "columns") or hasattr(value, "column_names")
    return named or isinstance(value, Mapping)


def _is_table(value: Any) -> bool:
    """Return whether a value in a dictionary is a table, not a column."""
    return is_frame(value) or _is_rows(value)


def _is_rows(value: Any) -> bool:
    sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return sequence and len(value) > 0 and all(isinstance(row, Mapping) for row in value)


def _parts(data: Mapping[Any, Any], name: str) -> DataParts:
    part_of = {alias: part for part, names in SPLIT_NAMES.items() for alias in names}
    tables: dict[str, Any] = {}
    for key, value in data.items():
        part = part_of.get(str(key))
        if part is None:
            raise BertineError(
                f"{name}: the part {key!r} is not known; the parts are train, validation and test"
            )
        if part in tables:
            raise BertineError(f"{name}: has the part {part} twice; leave one out")
        tables[part] = as_table(value, f"{name}[{key!r}]")
    return DataParts(**tables)


def _converted(data: Any, name: str) -> InMemoryTable | None:
    """Convert `data` of any accepted kind to a table; None for another kind."""
    if hasattr(data, "collect") and hasattr(data, "columns"):
        raise BertineError(f"{name} is a lazy frame; give the collected one ({name}.collect())")
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas
        columns = tuple(map(str, data.columns))
        values = [data.iloc[:, number].tolist() for number in range(len(columns))]
        return InMemoryTable(name, columns, dict(zip(columns, values, strict=True)))
    if hasattr(data, "features") and hasattr(data, "column_names"):  # datasets
        return _dataset(data, name)
    if hasattr(data, "get_columns") and hasattr(data, "columns"):  # polars
        series = data.get_columns()
        cells = {str(column.name): column.to_list() for column in series}
        return InMemoryTable(name, tuple(cells), cells)
    if hasattr(data, "schema") and hasattr(data, "to_pydict"):  # an Arrow table or record batch
        return _arrow(data, name)
    if _is_rows(data):
        return _rows(data, name)
    if isinstance(data, Mapping):
        return _columns(data, name)
    if hasattr(data, "__arrow_c_stream__"):
        import pyarrow as pa

        return _arrow(pa.table(data), name)
    return None


def _dataset(data: Any, name: str) -> InMemoryTable:
    columns = tuple(map(str, data.column_names))
    values = {column: list(data[column]) for column in columns}
    names: dict[str, tuple[str, ...]] = {}
    for column, feature in dict(data.features).items():
        inner = getattr(feature, "feature", feature)  # the feature of a list's items
        labels = getattr(inner, "names", None)
        if isinstance(labels, list | tuple) and all(isinstance(label, str) for label in labels):
            names[str(column)] = tuple(labels)
    return InMemoryTable(name, columns, values, names)


def _arrow(data: Any, name: str) -> InMemoryTable:
    columns = tuple(map(str, data.schema.names))
    values = {column: data.column(number).to_pylist() for number, column in enumerate(columns)}
    return InMemoryTable(name, columns, values)


def _rows(data: Sequence[Mapping[Any, Any]], name: str) -> InMemoryTable:
    """Convert a list of rows to a table. Its columns are the keys of all rows; a row without a key
    has None there."""
    columns = tuple(dict.fromkeys(str(key) for row in data for key in row))
    return InMemoryTable(name, columns, {key: [row.get(key) for row in data] for key in columns})


def _columns(data: Mapping[Any, Any], name: str) -> InMemoryTable | None:
    columns: dict[str, list[Any]] = {}
    for key, values in data.items():
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
            return None
        columns[str(key)] = values.tolist() if hasattr(values, "tolist") else list(values)
    lengths = {key: len(values) for key, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{key!r} {length}" for key, length in lengths.items())
        raise BertineError(f"{name}: the columns have different lengths ({shown})")
    return InMemoryTable(name, tuple(columns), columns)


def plain_value(value: Any) -> Any:
    """Convert a value to a JSON value; NaN, which marks a missing value in pandas, becomes None."""
    if value is None or isinstance(value, str | bool):
        # Also NumPy's str, which is a subclass.
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list | tuple):
        return [plain_value(inner) for inner in value]
    if isinstance(value, set | frozenset):  # their order is random
        return [plain_value(inner) for inner in sorted(value, key=str)]
    if isinstance(value, Mapping):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return plain_value(value.tolist())
    if isinstance(value, bytes):
        # Texts without a declared text type. Bytes that are not UTF-8 become lone surrogates, which
        # the table repairs and counts.
        return value.decode("utf-8", "surrogateescape")
    text = str(value)
    if _ADDRESS.search(text):
        raise BertineError(
            f"a value is {text[:60]} ({type(value).__name__}), which is no text, number, list or "
            "dictionary; give what it stands for"
        )
    return text
