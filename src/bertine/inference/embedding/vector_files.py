"""Write and read files of vectors (``.npy``, Parquet, JSON lines) and the metadata of their origin.

Parquet has the metadata in it, the others in a file of JSON beside them.

Files are written a part at a time, and completely or not at all. A ``.npy`` is numbers after a
header with the number of rows. The rows are appended and the header, for which room is left, is
written last, so memory holds one part and the number of rows need not be known before. With vectors
of tokens the texts differ in their number of vectors: a ``.npy`` has those of all texts one after
the other, and a second one (``NAME.offsets.npy``) the beginning of each text.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

import numpy as np

from bertine.core.errors import BertineError
from bertine.core.files import atomic_file, os_errors, read_json_object, write_json
from bertine.core.foreign_files import open_array
from bertine.core.names import option
from bertine.core.strict_json import Readable, parse_json
from bertine.core.text import row_at
from bertine.data.parquet import is_parquet, opened
from bertine.data.tables import TableRow
from bertine.data.writer import check_output, json_text
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.rows import joined, unused

# Metadata: the model and the settings that made a file of vectors.

#: Version of the layout of the metadata; a reader refuses other versions.
_FORMAT = 1
#: The key of the metadata in Parquet.
_KEY = "bertine"


def hashed(texts: Iterable[str]) -> bytes:
    """Return the bytes of texts that are hashed into the fingerprint of their table: each text
    after its length."""
    raws = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(len(raw).to_bytes(8, "little") + raw for raw in raws)


@dataclass(frozen=True)
class VectorMetadata(Readable):
    """The origin of a file of vectors: the model and the settings that made it.

    Attributes:
        model: the name of the model's folder, for messages.
        weights, tokenizer: SHA-256 of the model's weights and of its tokenizer, as hex digits.
        pooling: its modes, in the order in which their vectors are joined.
        layer: the layer whose states were pooled; 0 is the embeddings. None: several layers.
        keep: how many numbers of each vector were kept; None: all.
        normalize: whether the vectors have length 1.
        prompt: the text that was put before every text.
        max_length: the number of pieces at which texts were cut.
        precision: the precision of the computation, "fp32", "bf16" or "int8".
        dtype: the type of the numbers in the file, "fp32" or "fp16".
        rows: the number of texts.
        dimensions: the dimensions of a vector.
        texts: SHA-256 of the texts in their order (:func:`hashed`), as hex digits; "" in files of
            an older version.
        named: the model as it was named, to be opened again; "": it was in memory.
        text_column: the column of the texts.
        named_layer: the layer that was asked for; None: none was.
        document_column: the column with the number of the document that a text is a passage of,
            from 1; "": texts were not cut into passages.
    """

    model: str
    weights: str
    tokenizer: str
    pooling: tuple[str, ...]
    layer: int | None
    keep: int | None
    normalize: bool
    prompt: str
    max_length: int
    precision: str
    dtype: str
    rows: int
    dimensions: int
    texts: str = ""
    named: str = ""
    text_column: str = ""
    named_layer: int | None = None
    document_column: str = ""

    @classmethod
    def of(cls, embedder: Embedder, dtype: str) -> VectorMetadata:
        """Return the metadata of vectors by `embedder`, of no rows yet. Hashes the weights, which
        takes about a third of a second for bert-base."""
        pooling = embedder.pooling
        weights, tokenizer = embedder.fingerprints()
        return cls(
            model=embedder.name,
            weights=weights,
            tokenizer=tokenizer,
            pooling=pooling.modes,
            layer=embedder.encoder.pooled_layer,
            keep=pooling.dimensions,
            normalize=pooling.normalize,
            prompt=embedder.prompt,
            max_length=embedder.max_length,
            precision=embedder.precision,
            dtype=dtype,
            rows=0,
            dimensions=embedder.dimensions,
            named_layer=pooling.layer,
        )

    def write(self, vectors: Path | str) -> None:
        """Write the metadata file of `vectors`."""
        write_json(metadata_path(vectors), {"format": _FORMAT} | self.to_dict())

    @classmethod
    def read(cls, vectors: Path | str) -> VectorMetadata | None:
        """Read the metadata of `vectors`, in Parquet or in the file beside them; None where there
        is none: another program, or an older version, has made them.

        Raises:
            BertineError: the metadata are broken, or of another version.
        """
        path, text = Path(vectors), None
        if is_parquet(path) and path.is_file():
            with opened(path) as file:
                text = (file.metadata.metadata or {}).get(_KEY.encode())
        if text is None:
            path = metadata_path(vectors)
            if not path.exists():
                return None
        values = read_json_object(path) if text is None else parse_json(text, path)
        again = f"embed the texts again{', or remove this file' if text is None else ''}"
        if not isinstance(values, dict) or values.pop("format", None) != _FORMAT:
            raise BertineError(f"{path}: is of another version; {again}")
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise BertineError(
                f"{path}: does not say how vectors were made ({error}); {again}"
            ) from error

    def settings(self) -> dict[str, Any]:
        """Return the options with which a model makes vectors to compare with these."""
        single = self.pooling[0] if len(self.pooling) == 1 and self.pooling != ("tokens",) else None
        return {"pooling": single, "layer": self.named_layer, "dimensions": self.keep}

    def differing(self, other: VectorMetadata) -> list[str]:
        """Return what differs in the making of other vectors: a text has the same vector in both
        where nothing does."""
        if (self.weights, self.tokenizer) != (other.weights, other.tokenizer):
            return ["model"]
        names = ["pooling", "layer", "dimensions", "normalize", "prompt", "max_length"]
        names += ["precision", "dtype"]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def check(
        self, vectors: Path | str, embedder: Embedder, shape: Sequence[int] | None
    ) -> list[str]:
        """Check that an embedder gives vectors like these.

        Args:
            vectors: the file, for messages.
            embedder: the embedder to compare.
            shape: the shape of the array in the file; None: it is a table.

        Returns:
            Notes: a prompt that differs, unless the two are the model's prompts for documents and
            for queries.

        Raises:
            BertineError: another model, tokenizer, pooling or layer; the array does not match the
                metadata.
        """
        if shape is not None and tuple(shape) != (self.rows, self.dimensions):
            raise BertineError(
                f"{metadata_path(vectors)}: describes {self.rows:,} vectors of {self.dimensions}, "
                f"but {vectors} has the shape {list(shape)}; embed the texts again, or remove the "
                "description"
            )
        asked = VectorMetadata.of(embedder, self.dtype)
        if (asked.weights, asked.tokenizer) != (self.weights, self.tokenizer):
            raise BertineError(
                f"{vectors}: was made with another model ({self.model or 'without a name'}); give "
                "that one, or embed the texts again with this one"
            )
        for name, key in (("pooling", "pooling"), ("layer", "layer"), ("dimensions", "keep")):
            theirs, wanted = getattr(self, key), getattr(asked, key)
            if theirs != wanted:
                raise BertineError(
                    f"{vectors}: was made with {name} {_shown(theirs)}, but the query has "
                    f"{name} {_shown(wanted)}; choose the same for both"
                )
        if self.prompt != asked.prompt and (self.prompt, asked.prompt) != embedder.prompts.meant():
            before = f"before the texts of {vectors} stands {self.prompt!r}, before the query "
            return [before + repr(asked.prompt)]
        return []


def metadata_path(vectors: Path | str) -> Path:
    """Return the path of the metadata of `vectors`: ``vectors.npy.json``."""
    return Path(f"{vectors}.json")


def _shown(value: Any) -> str:
    return "+".join(value) if isinstance(value, tuple) else str(value)


#: The formats, by the suffix of the file.
SUFFIXES = (".npy", ".parquet", ".pq", ".jsonl")
DTYPES: dict[str, np.dtype[Any]] = {"fp32": np.dtype("<f4"), "fp16": np.dtype("<f2")}

_LARGEST = float(np.finfo(np.float16).max)
#: The types in a list that is a vector, or vectors; NaN is read as None.
_IN_VECTORS = (int, float, list, type(None))
#: The kinds of columns in Parquet, besides JSON.
_KINDS = {"text": str, "bool": bool, "int": int, "float": float}
#: The range of whole numbers that a column of each kind holds exactly.
_WHOLE = {"int": (-(2**63), 2**63 - 1), "float": (-(2**53), 2**53)}


@dataclass(frozen=True)
class VectorPart:
    """The vectors of N texts.

    Attributes:
        source: the name of their table, for messages.
        rows: the N rows of the table.
        vectors: N of [D], or for tokens N of [n, D]; in the type of the file.
        tokens: for vectors of tokens, N lists of n pieces.
    """

    source: str
    rows: Sequence[TableRow]
    vectors: Sequence[np.ndarray]
    tokens: Sequence[list[str]] | None = None


class VectorWriter(Protocol):
    """A writer of vectors, part after part.

    Attributes:
        origin: their metadata, set before the end; None: they are not described.
    """

    origin: VectorMetadata | None = None

    def write(self, part: VectorPart) -> None: ...


def check_vector_file(path: str | Path) -> str:
    """Return the suffix of a file of vectors, in lower case.

    Raises:
        BertineError: the suffix is not one of :data:`SUFFIXES`, or there is a folder of that name.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise BertineError(f"{path}: vectors are written to .npy, .parquet or .jsonl; name one")
    check_output(path)
    return suffix


def as_dtype(vectors: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert `vectors` to the type of the file.

    Raises:
        BertineError: a number is too large for 16 bits, NaN or infinite.
    """
    if dtype.itemsize == 2 and vectors.size and not np.abs(vectors).max() <= _LARGEST:
        raise BertineError(
            f"a vector has a number beyond {_LARGEST:.0f}, the most of fp16; write fp32, or "
            "normalize"
        )
    return vectors.astype(dtype, copy=False)


@contextlib.contextmanager
def open_vector_writer(
    path: str | Path, columns: Sequence[str], dimensions: int, dtype: np.dtype[Any], tokens: bool
) -> Iterator[VectorWriter]:
    """Open a writer to `path`; the file is written completely or not at all.

    Args:
        columns: the columns of the rows; a ``.npy`` does not store them.
        dimensions: the dimensions of a vector, D.
        dtype: the type of the numbers, one of :data:`DTYPES`.
        tokens: whether each text has a vector for every token.

    Raises:
        BertineError: another suffix than :data:`SUFFIXES`, or the file cannot be written.
    """
    suffix = check_vector_file(path)
    writer: _JsonLines | _Npy | _Parquet
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(atomic_file(path))
        stack.enter_context(os_errors(path, "writing it"))
        if suffix == ".jsonl":
            text = stack.enter_context(open(temporary, "w", encoding="utf-8", newline=""))
            writer = _JsonLines(text, columns)
        elif suffix == ".npy":
            # Entered after the vectors' file, so it is complete before that file is.
            starts = None
            if tokens:
                at = stack.enter_context(atomic_file(Path(path).with_suffix(".offsets.npy")))
                starts = stack.enter_context(open_npy(at, np.dtype("<i8"), None))
            writer = _Npy(stack.enter_context(open_npy(temporary, dtype, dimensions)), starts)
        else:
            writer = _Parquet(temporary, columns, dimensions, dtype, tokens)
            stack.callback(writer.close)
        yield writer
        # The metadata of an earlier file must not describe this one.
        metadata_path(path).unlink(missing_ok=True)
    if writer.origin is not None and suffix in (".jsonl", ".npy"):
        writer.origin.write(path)


def open_vectors(path: Path | str, dimensions: int | None = None) -> np.ndarray:
    """Open the vectors of a ``.npy`` [N, D], on disk.

    Raises:
        BertineError: the file is not an array of numbers, or has another width than `dimensions`,
            where that is given.
    """
    table = open_array(path, "write it again, as an array of numbers")
    if table.ndim != 2 or table.dtype.kind != "f":
        raise BertineError(
            f"{path}: is an array {list(table.shape)} of {table.dtype}, but must have a vector "
            "of real numbers in each row"
        )
    if dimensions is not None and table.shape[1] != dimensions:
        raise BertineError(
            f"{path}: its vectors have {table.shape[1]} numbers, but the model's have "
            f"{dimensions}; name the model that made them, and the same {option('dimensions')}"
        )
    return table


def written_name(name: str, columns: Sequence[str]) -> str:
    """Return the name that :func:`open_vector_writer` has given to the column `name`, if the table
    with these columns has it."""
    return _unused(name, columns).removeprefix("embedded_")


def vector_column(columns: Sequence[str], row: TableRow) -> str | None:
    """Return the column in which :func:`open_vector_writer` has put vectors, of texts or of tokens;
    None: there is none.

    Args:
        columns: the columns of the table.
        row: the first row of the table.
    """
    for name in (written_name("vector", columns), written_name("vectors", columns)):
        value = row.values.get(name)
        if isinstance(value, list) and value and all(type(item) in _IN_VECTORS for item in value):
            return name
    return None


def vectors_of(
    source: str,
    rows: Sequence[TableRow],
    column: str,
    dimensions: int,
    advice: str = "as the model's vectors are; name the model that made them, or leave that column "
    "out, to have the texts embedded",
) -> np.ndarray:
    """Return the vectors fp32 [N, D] in a column of N rows of the table `source`; `advice` is for
    the message where they have another width.

    Raises:
        BertineError: a row has no vector, or one of another width.
    """
    vectors = np.empty((len(rows), dimensions), dtype=np.float32)
    for at, row in enumerate(rows):
        value = row.values.get(column)
        try:
            if not isinstance(value, list) or len(value) != dimensions:
                raise ValueError
            vectors[at] = value
        except (TypeError, ValueError, OverflowError):
            raise BertineError(
                f"{row_at(source, row.line)}: {column!r} is not {dimensions} numbers, {advice}"
            ) from None
    return vectors


class NpyRows:
    """A writer of the rows of a ``.npy``; see :func:`open_npy`."""

    def __init__(self, handle: BinaryIO, dtype: np.dtype[Any], width: int | None) -> None:
        self._handle, self._dtype, self._width = handle, dtype, width
        self.rows = 0
        self.write_header()

    def append(self, part: np.ndarray) -> None:
        """Append [N, D], or [N] where there is no width."""
        assert part.shape[1:] == (() if self._width is None else (self._width,))
        self._handle.write(part.astype(self._dtype, copy=False).tobytes())
        self.rows += len(part)

    def write_header(self) -> None:
        """Write the header, which has room for any number of rows."""
        shape = (self.rows,) if self._width is None else (self.rows, self._width)
        facts = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        self._handle.seek(0)
        np.lib.format.write_array_header_1_0(self._handle, facts)


@contextlib.contextmanager
def open_npy(path: Path, dtype: np.dtype[Any], width: int | None) -> Iterator[NpyRows]:
    """Open a ``.npy`` (format 1.0, C order, little-endian) to which rows are appended."""
    with open(path, "wb") as handle:
        rows = NpyRows(handle, dtype, width)
        yield rows
        rows.write_header()


class _Npy(VectorWriter):
    def __init__(self, vectors: NpyRows, starts: NpyRows | None) -> None:
        self._vectors, self._starts = vectors, starts
        if starts is not None:
            starts.append(np.zeros(1, dtype=np.int64))

    def write(self, part: VectorPart) -> None:
        if self._starts is None:
            self._vectors.append(np.stack(part.vectors))
            return
        ends = self._vectors.rows + np.cumsum([len(item) for item in part.vectors], dtype=np.int64)
        self._vectors.append(np.concatenate(part.vectors))
        self._starts.append(ends)


class _JsonLines(VectorWriter):
    """A writer of JSON lines that adds ``vector``, or for tokens ``tokens`` and ``vectors``, to
    each row."""

    def __init__(self, handle: TextIO, columns: Sequence[str]) -> None:
        self._handle = handle
        self._vector, self._vectors = _unused("vector", columns), _unused("vectors", columns)
        self._tokens = _unused("tokens", columns)

    def write(self, part: VectorPart) -> None:
        for at, (row, vector) in enumerate(zip(part.rows, part.vectors, strict=True)):
            if part.tokens is None:
                added: dict[str, Any] = {self._vector: _shortest(vector)}
            else:
                item = [_shortest(one) for one in vector]
                added = {self._tokens: part.tokens[at], self._vectors: item}
            self._handle.write(json_text(joined(part.source, row, added)) + "\n")


def _shortest(vector: np.ndarray) -> list[float]:
    """Return the shortest decimals that still read as the same numbers in their type."""
    return [float(str(value)) for value in vector]


class _Parquet(VectorWriter):
    """A writer of Parquet: the row's columns and a list of fixed size ``vector``; for tokens lists
    of ``tokens`` and ``vectors``. A column's type is that of the first part: texts, whole numbers,
    numbers, truth values; mixed types, lists and objects are written as JSON."""

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        dimensions: int,
        dtype: np.dtype[Any],
        tokens: bool,
    ) -> None:
        import pyarrow as pa

        self._path, self._columns = path, list(columns)
        number = pa.float16() if dtype.itemsize == 2 else pa.float32()
        self._vector = pa.list_(number, dimensions)
        self._fields = [pa.field(_unused("vector", columns), self._vector)]
        if tokens:
            self._fields = [
                pa.field(_unused("tokens", columns), pa.list_(pa.string())),
                pa.field(_unused("vectors", columns), pa.list_(self._vector)),
            ]
        self._kinds: dict[str, str] | None = None
        self._writer: Any = None

    def write(self, part: VectorPart) -> None:
        import pyarrow as pa

        if self._kinds is None:
            self._open(part.rows)
        assert self._kinds is not None
        for row in part.rows:
            if more := row.values.keys() - self._kinds.keys():
                raise BertineError(
                    f"{row_at(part.source, row.line)}: has a key {min(more)!r}, but the first row "
                    "has none, so Parquet has no column for it; write .jsonl"
                )
        arrays = [
            pa.array([_plain(part.source, row, name, kind) for row in part.rows], _arrow(kind))
            for name, kind in self._kinds.items()
        ]
        if part.tokens is None:
            arrays.append(self._lists(np.stack(part.vectors)))
        else:
            starts = np.cumsum([0, *map(len, part.vectors)]).astype(np.int32)
            flat = self._lists(np.concatenate(part.vectors))
            arrays += [
                pa.array(list(part.tokens), self._fields[0].type),
                pa.ListArray.from_arrays(pa.array(starts), flat),
            ]
        schema = self._writer.schema
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

    def _lists(self, table: np.ndarray) -> Any:
        import pyarrow as pa

        numbers = pa.array(np.ascontiguousarray(table).reshape(-1), self._vector.value_type)
        return pa.FixedSizeListArray.from_arrays(numbers, type=self._vector)

    def _open(self, rows: Sequence[TableRow]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._kinds = {
            name: _kind([row.values.get(name) for row in rows]) for name in self._columns
        }
        fields = [pa.field(name, _arrow(kind)) for name, kind in self._kinds.items()]
        # Vectors hardly compress, and dictionaries of their numbers only cost time.
        self._writer = pq.ParquetWriter(
            str(self._path),
            pa.schema([*fields, *self._fields]),
            compression="zstd",
            use_dictionary=self._columns or False,
        )

    def close(self) -> None:
        if self._writer is None:
            self._open([])
        if self.origin is not None:
            text = json.dumps({"format": _FORMAT} | self.origin.to_dict())
            self._writer.add_key_value_metadata({_KEY: text})
        self._writer.close()


def _kind(values: Sequence[Any]) -> str:
    """Return the kind of a column: text, bool, int, float, or json for anything else."""
    kinds = {type(value) for value in values if value is not None}
    names = (name for name, allowed in _KINDS.items() if kinds <= {allowed})
    return next(names, "float" if kinds == {int, float} else "json")


def _arrow(kind: str) -> Any:
    import pyarrow as pa

    kinds = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    return kinds.get(kind, pa.string())


def _plain(source: str, row: TableRow, column: str, kind: str) -> Any:
    """Convert a value to the type of its column.

    Raises:
        BertineError: the value is of another kind than those before, or a whole number that the
            column cannot hold exactly.
    """
    value = row.values.get(column)
    if value is None or kind == "json":
        return value if value is None else json.dumps(value)
    low, high = _WHOLE.get(kind, (1, 0))
    if not (low <= value <= high if type(value) is int else type(value) is _KINDS[kind]):
        raise BertineError(
            f"{row_at(source, row.line)}: the column {column!r} is of the kind {kind} in Parquet "
            f"by its first rows, but here is {str(value)[:40]!r}; write .jsonl"
        )
    return value


def _unused(name: str, columns: Sequence[str]) -> str:
    """Return `name`, or a variant of it that no column of the input has."""
    return unused(name, columns, "embedded_")
