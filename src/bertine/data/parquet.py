"""Read and write Parquet files as tables, part of a row group at a time, in bounded memory.

A table may consist of several files, its parts, in order; it is then named by a pattern
(``train-*-of-00002.parquet``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.files import read_bounded
from bertine.core.foreign_files import reading_outside
from bertine.core.strict_json import parse_yaml
from bertine.data.in_memory import plain_value
from bertine.data.streams import listed

SUFFIXES = (".parquet", ".pq")
#: The end of a part's file name on the Hugging Face hub, sometimes with a hash.
_PART = re.compile(r"-\d{5}-of-(\d{5})(?:-[0-9a-f]+)?\.parquet")
#: The advice about a damaged file.
_AGAIN = "write it again, as Parquet"
#: Rows converted to Python values at once.
_ROWS = 1024
#: Most rows of a written row group, and most characters of their JSON; the first limit reached ends
#: the group.
_WRITTEN_ROWS = 1 << 15
_WRITTEN_CHARACTERS = 1 << 25


def is_parquet(path: object) -> bool:
    """Return whether `path` is the path of a Parquet file, by its name; False for a table in
    memory."""
    return isinstance(path, str | Path) and Path(path).suffix.lower() in SUFFIXES


def open_parquet(path: str | Path) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Open a Parquet file; return its columns and a stream of its rows. Values are as in JSON
    (texts, numbers, truth values, lists, objects, None); any other kind (dates, decimals,
    infinities) becomes its text, and NaN, which marks a missing value in pandas, becomes None.

    Raises:
        BertineError: no such file, or not Parquet; while iterating, a damaged part.
    """
    first, *others = _parts_of(path)
    file = opened(first)
    columns = list(file.schema_arrow.names)
    for name in columns:
        if columns.count(name) > 1:
            raise BertineError(f"{first}: two columns are called {name!r}; rename one")

    def rows() -> Iterator[dict[str, Any]]:
        with file:
            yield from _rows(file, first)
        for part in others:
            with opened(part) as other:
                if (names := other.schema_arrow.names) != columns:
                    raise BertineError(
                        f"{part}: has the columns {listed(names)}, but {first.name}, which is of "
                        f"the same table, {listed(columns)}"
                    )
                yield from _rows(other, part)

    return columns, rows()


def _rows(file: Any, path: Path) -> Iterator[dict[str, Any]]:
    for batch in batches_of(file, path):
        yield from plain_rows(batch, path)


def plain_rows(batch: Any, path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record batch or a table of Arrow, with the values of
    :func:`open_parquet`.

    Raises:
        BertineError: a damaged part of the file `path`.
    """
    with reading_outside(path, _AGAIN):
        values = [_values(column) for column in batch.columns]
    for row in zip(*values, strict=True):
        yield dict(zip(batch.schema.names, map(plain_value, row), strict=True))


def batches_of(file: Any, path: Path | str, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Yield the rows of an open Parquet file as record batches, with some or all of its columns.

    Raises:
        BertineError: a damaged part of the file `path`.
    """
    batches = file.iter_batches(batch_size=_ROWS, columns=columns)
    while True:
        with reading_outside(path, _AGAIN):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def find_parts(folder: Path, name: str) -> Path | None:
    """Find the Parquet table `name` in a folder laid out as on the Hugging Face hub: one or several
    files ``NAME-00000-of-00002.parquet``, or a folder ``NAME`` of Parquet files.

    Returns:
        The file, or the pattern of several files; None if there is none.

    Raises:
        BertineError: some of the parts are missing.
    """
    files = sorted(folder.glob(f"{name}-?????-of-?????*.parquet"))
    if not files:
        files = sorted((folder / name).glob("*.parquet"))
        return (folder / name / "*.parquet") if len(files) > 1 else files[0] if files else None
    count = _PART.fullmatch(files[0].name.removeprefix(name))
    if count is None:
        return None
    there = {file.name.removeprefix(name)[1:6] for file in files}
    missing = [f"{part:05}" for part in range(int(count[1])) if f"{part:05}" not in there]
    if missing:
        raise BertineError(
            f"{folder}: has {len(there)} of the {int(count[1])} parts of {name}; the first that is "
            f"missing is {name}-{missing[0]}-of-{count[1]}.parquet"
        )
    return files[0] if len(files) == 1 else folder / f"{name}-*-of-{count[1]}*.parquet"


def _parts_of(path: str | Path) -> list[Path]:
    """Return the files of a table: those of a pattern, or the single file."""
    path = Path(path)
    return (sorted(path.parent.glob(path.name)) if "*" in path.name else []) or [path]


def opened(path: str | Path) -> Any:
    """Open one Parquet file: a ``pyarrow.parquet.ParquetFile``.

    Raises:
        BertineError: no such file, or not Parquet.
    """
    import pyarrow.parquet as pq

    with reading_outside(path, _AGAIN):
        return pq.ParquetFile(str(path))


def count_rows(path: str | Path) -> int:
    """Return the number of rows recorded in a Parquet file.

    Raises:
        BertineError: no such file, or not Parquet.
    """
    count = 0
    for part in _parts_of(path):
        with opened(part) as file:
            count += int(file.metadata.num_rows)
    return count


def class_names(path: str | Path, column: str) -> tuple[str, ...]:
    """Read the class names of the numbers in a column, or in its lists, if the `datasets` library
    has stored them with the table (its ``ClassLabel``), or the card of the data set has them; empty
    if there are none.

    Raises:
        BertineError: no such file, or not Parquet.
    """
    with opened(_parts_of(path)[0]) as file:
        metadata = file.schema_arrow.metadata or {}
    try:
        info = json.loads(metadata.get(b"huggingface", b"{}"))
        feature = info["info"]["features"][column]
        if isinstance(feature, list):  # the old form of lists
            feature = feature[0]
        names = feature.get("feature", feature)["names"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return () if metadata.get(b"huggingface") else _names_on_card(Path(path), column)
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if texts else ()


#: The card of a data set, which is in the folder of its files or above it, and its largest size.
CARD = "README.md"
_CARD_BYTES, _ABOVE = 2**22, 3


def read_card(folder: Path) -> dict[str, Any]:
    """Read the YAML at the beginning of a data set's card; empty without it, and with a note if it
    cannot be read."""
    if not (folder / CARD).is_file():
        return {}
    raw = read_bounded(folder / CARD, _CARD_BYTES)
    front = re.match(rb"---[ \t]*\r?\n(.*?)^---", raw, re.DOTALL | re.MULTILINE)
    try:
        content = parse_yaml(front[1], folder / CARD) if front else {}
    except BertineError as error:
        logger.info(f"{error}; the card is not used")
        return {}
    return content if isinstance(content, dict) else {}


def _names_on_card(path: Path, column: str) -> tuple[str, ...]:
    """Read the class names of a column from the card of a data set of the Hugging Face hub."""
    folders = [*path.parents][:_ABOVE]
    card = next((card for folder in folders if (card := read_card(folder))), {})
    about = card.get("dataset_info")
    listed = about if isinstance(about, list) else [about]
    entries = [entry for entry in listed if isinstance(entry, dict)]
    for entry in entries:
        if len(entries) > 1 and entry.get("config_name") not in path.parts[-_ABOVE:]:
            continue
        features = entry.get("features")
        for feature in features if isinstance(features, list) else ():
            try:
                if feature["name"] == column:
                    names = feature["dtype"]["class_label"]["names"]
                    return tuple(str(names[key]) for key in sorted(names, key=int))
            except (LookupError, TypeError, ValueError):
                continue
    return ()


def write_parquet(rows: Path, target: Path, columns: Sequence[str]) -> list[str]:
    """Convert JSON lines to a Parquet file whose columns are in order of occurrence, `columns`
    first. The file is read twice: a column's type must hold all of its values. If no type does,
    they are written as JSON.

    Returns:
        The columns that are written as JSON.

    Raises:
        BertineError: the rows cannot be written.
    """
    import pyarrow as pa

    kinds: dict[str, Any] = dict.fromkeys(columns, pa.null())
    as_json: set[str] = set()
    for part in _parts(rows):
        for name in dict.fromkeys(name for row in part for name in row):
            kind = None if name in as_json else _common(kinds.get(name, pa.null()), part, name)
            if kind is None:
                as_json.add(name)
            kinds[name] = kind
    # Parquet has no type for objects without keys.
    as_json |= {name for name, kind in kinds.items() if "struct<>" in str(kind)}
    while True:
        kinds |= dict.fromkeys(as_json, pa.string())
        refused = _write(rows, target, kinds, as_json)
        if refused is None:
            return [name for name in kinds if name in as_json]
        as_json.add(refused)


def _common(kind: Any, part: Sequence[dict[str, Any]], name: str) -> Any:
    """Find the Arrow type that holds the values of some rows and those of `kind`; None if there is
    none."""
    import pyarrow as pa

    values = _array([row.get(name) for row in part])
    if values is None:
        return None
    both = [pa.schema([("values", one)]) for one in (kind, values.type)]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _array(values: list[Any], kind: Any = None) -> Any:
    """Convert values to an Arrow array of type `kind` (None: inferred); None if they have no type
    or do not fit."""
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def _write(rows: Path, target: Path, kinds: dict[str, Any], as_json: Container[str]) -> str | None:
    """Write columns of these types; return the name of a column with a value that does not fit
    after all (such as a whole number that would be rounded)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pa.schema(list(kinds.items()))
        with pq.ParquetWriter(str(target), schema) as writer:
            for part in _parts(rows):
                arrays = []
                for name, kind in kinds.items():
                    values = [row.get(name) for row in part]
                    if name in as_json:
                        values = [None if v is None else json.dumps(v) for v in values]
                    arrays.append(_array(values, kind))
                    if arrays[-1] is None:
                        return name
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    except (pa.ArrowException, UnicodeEncodeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BertineError(
            f"the rows cannot be written as Parquet ({reason}); name the output .jsonl"
        ) from error
    return None


def mixed_note(path: str | Path, columns: Sequence[str]) -> str:
    """Return a note on the columns that :func:`write_parquet` has written as JSON."""
    named = ", ".join(map(repr, columns))
    return f"{path}: no Parquet type holds all values of {named}, so they are written as JSON"


def _parts(rows: Path) -> Iterator[list[dict[str, Any]]]:
    part: list[dict[str, Any]] = []
    characters = 0
    with open(rows, encoding="utf-8", newline="\n") as handle:
        for line in handle:
            part.append(json.loads(line))
            characters += len(line)
            if len(part) >= _WRITTEN_ROWS or characters >= _WRITTEN_CHARACTERS:
                yield part
                part, characters = [], 0
    if part:
        yield part


def _values(column: Any) -> list[Any]:
    """Convert an Arrow array to Python values; to texts if Python has no such value (times in
    nanoseconds, years after 9999), and to bytes for texts that are not UTF-8."""
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist()
    except pa.ArrowException:
        raise
    except UnicodeDecodeError:
        values = column.cast(_bytes_of(column.type)).to_pylist()
    except (ValueError, OverflowError, LookupError):
        values = column.cast(pa.string()).to_pylist()
    return values


def _bytes_of(kind: Any) -> Any:
    """Return the Arrow bytes type for texts or lists of texts; another type is not changed."""
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_bytes_of(kind.value_type))
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pa.large_binary() if texts else kind
