"""Tensor bundles, which is what ``tf.train.Saver`` writes (V2): ``PREFIX.index``, a table of the
tensors, and ``PREFIX.data-SSSSS-of-NNNNN``, their values one after the other
(tensorflow/core/util/tensor_bundle, ``tensor_bundle.proto``). Read without TensorFlow, the data
mapped into memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertine.errors import BertineError
from bertine.files import check_regular, os_errors, read_bounded
from bertine.interop.tensorflow.crc32c import masked_crc32c
from bertine.interop.tensorflow.table import read_table
from bertine.protobuf import fields, signed
from bertine.terminal.text import briefly

Array = npt.NDArray[np.generic]

INDEX_SUFFIX = ".index"
#: An index of bert-large with its optimizer's state has 80 kB.
_MOST_BYTES = 1 << 22
_MOST_SHARDS, _MOST_DIMENSIONS, _MOST_VALUES = 1000, 8, 1 << 40
#: Numbers of types (``types.proto``) → name, type in memory. The bits of a bfloat16 are the upper
#: half of those of a float32.
_DTYPES: dict[int, tuple[str, np.dtype[np.generic]]] = {
    1: ("float32", np.dtype("<f4")),
    2: ("float64", np.dtype("<f8")),
    3: ("int32", np.dtype("<i4")),
    4: ("uint8", np.dtype("u1")),
    5: ("int16", np.dtype("<i2")),
    6: ("int8", np.dtype("i1")),
    9: ("int64", np.dtype("<i8")),
    10: ("bool", np.dtype("?")),
    14: ("bfloat16", np.dtype("<u2")),
    17: ("uint16", np.dtype("<u2")),
    19: ("float16", np.dtype("<f2")),
    22: ("uint32", np.dtype("<u4")),
    23: ("uint64", np.dtype("<u8")),
}
#: What the names of a checkpoint of TensorFlow 2's objects have.
_OBJECTS = ("_CHECKPOINTABLE_OBJECT_GRAPH", "/.ATTRIBUTES/")


@dataclass(frozen=True)
class Entry:
    """A tensor of a bundle: where it is, and what.

    Attributes:
        dtype: its name, as NumPy and PyTorch have it; "type 7" of one that is no numbers.
        shape: of the tensor.
        shard: number of the data file.
        offset: of the first byte there.
        size: bytes.
        crc: masked CRC-32C of the bytes.
        kind: the type in memory; None of one that is no numbers.
    """

    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    kind: np.dtype[np.generic] | None = field(default=None, repr=False)


class Bundle:
    """The tensors of a checkpoint.

    Attributes:
        index: the file that lists them.
        entries: by their names.

    Raises:
        BertineError: the index is missing, damaged or cut short; it is of a machine of another
            endianness, of TensorFlow 2's objects, or has variables in parts.
    """

    def __init__(self, index: Path) -> None:
        self.index = index
        data = read_bounded(index, _MOST_BYTES)
        if len(data) > _MOST_BYTES:
            raise BertineError(
                f"{index}: is larger than {_MOST_BYTES:,} bytes, which no checkpoint's index is"
            )
        try:
            self.shards, self.entries = _read_index(data)
        except ValueError as error:
            raise BertineError(
                f"{index}: cannot be read as the index of a TensorFlow checkpoint: {error}; copy "
                "it again"
            ) from error
        except BertineError as error:
            raise BertineError(f"{index}: {error}") from error
        self._maps: dict[int, npt.NDArray[np.uint8]] = {}

    def data_file(self, shard: int) -> Path:
        """Return the data file of the number `shard`."""
        prefix = self.index.name.removesuffix(INDEX_SUFFIX)
        return self.index.with_name(f"{prefix}.data-{shard:05d}-of-{self.shards:05d}")

    def files(self) -> list[Path]:
        """Return the index and the data files."""
        return [self.index, *(self.data_file(shard) for shard in range(self.shards))]

    def array(self, name: str) -> Array:
        """Return the tensor `name`, after its CRC was compared. It may be a part of the file,
        mapped; writing to it changes a copy of this process. bfloat16 is widened to float32.

        Raises:
            BertineError: the data file is missing, cut short or damaged, or the tensor is of no
                numbers.
        """
        entry = self.entries[name]
        file = self.data_file(entry.shard)
        if entry.kind is None:
            raise BertineError(
                f"{self.index}: {briefly(name)} is of {entry.dtype}, not of numbers; save the "
                "checkpoint again without it"
            )
        data = self._mapped(entry.shard)[entry.offset : entry.offset + entry.size]
        if masked_crc32c(data) != entry.crc:
            raise BertineError(
                f"{file}: the CRC of {briefly(name)} is not the one in {self.index.name}; the file "
                "is damaged, or of another checkpoint; copy it again"
            )
        values = data.view(entry.kind).reshape(entry.shape)
        if entry.dtype == "bfloat16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values

    def _mapped(self, shard: int) -> npt.NDArray[np.uint8]:
        if shard not in self._maps:
            file = self.data_file(shard)
            check_regular(file)
            if not file.is_file():
                raise BertineError(f"{file}: missing, but {self.index.name} has tensors in it")
            ends = (e.offset + e.size for e in self.entries.values() if e.shard == shard)
            wanted, there = max(ends, default=0), file.stat().st_size
            if there < wanted:
                raise BertineError(
                    f"{file}: is cut short: it has {there:,} bytes, but {self.index.name} has "
                    f"tensors up to byte {wanted:,}; copy it again"
                )
            with os_errors(file, "reading it"):
                self._maps[shard] = (
                    np.memmap(file, np.uint8, "c") if there else np.empty(0, np.uint8)
                )
        return self._maps[shard]


def _read_index(data: bytes) -> tuple[int, dict[str, Entry]]:
    """Read the number of data files, and the tensors by name.

    Raises:
        ValueError: it is damaged.
        BertineError: it is a checkpoint of a kind that is not read; the file is not named.
    """
    shards, entries = None, {}
    for key, value in read_table(data):
        if key == b"":
            shards = _read_header(value)
            continue
        if shards is None:
            raise ValueError("it has no header")
        if key.startswith(b"\0"):
            continue  # a part of a variable; the variable itself follows
        name = key.decode("utf-8")
        if any(mark in name for mark in _OBJECTS):
            raise BertineError(
                "is a checkpoint of TensorFlow 2's objects; only those of tf.train.Saver "
                "(TensorFlow 1, tf.compat.v1), with variables by name, can be read"
            )
        entries[name] = _read_entry(name, value, shards)
    if shards is None:
        raise ValueError("it has no header")
    place: tuple[int, int] = (0, 0)
    for entry in sorted(entries.values(), key=lambda entry: (entry.shard, entry.offset)):
        # Nothing is read twice, however many tensors an index claims.
        if (entry.shard, entry.offset) < place:
            raise ValueError("two tensors lie in one place")
        place = (entry.shard, entry.offset + entry.size)
    return shards, entries


def _read_header(data: bytes) -> int:
    values: dict[int, int | bytes] = dict(fields(data))
    shards, big_endian = values.get(1, 0), values.get(2, 0)
    if big_endian:
        raise BertineError(
            "was written on a machine of big-endian numbers, which are not read; save it again on "
            "another"
        )
    if not isinstance(shards, int) or not 1 <= shards <= _MOST_SHARDS:
        raise ValueError(f"it is of {briefly(shards)} data files")
    return shards


def _read_entry(name: str, data: bytes, shards: int) -> Entry:
    shape: list[int] = []
    numbers: dict[int, int] = {}
    for number, value in fields(data):
        if number == 7:
            raise BertineError(
                f"{briefly(name)} is a partitioned variable; save the checkpoint again with each "
                "variable whole"
            )
        if number == 2 and isinstance(value, bytes):
            shape += [_dimension(part) for field, part in fields(value) if field == 2]
        elif isinstance(value, int):
            numbers[number] = value
    shard, offset, size = (numbers.get(number, 0) for number in (3, 4, 5))
    code = numbers.get(1, 0)
    dtype, kind = _DTYPES.get(code, (f"type {code}", None))
    if len(shape) > _MOST_DIMENSIONS or math.prod(shape) > _MOST_VALUES:
        raise ValueError(f"the shape of {briefly(name)} is impossible")
    if kind is not None and size != math.prod(shape) * kind.itemsize:
        raise ValueError(f"the size of {briefly(name)} is not that of its shape")
    if shard >= shards or offset + size > _MOST_VALUES * 8:
        raise ValueError(f"the place of {briefly(name)} is impossible")
    return Entry(dtype, tuple(shape), shard, offset, size, numbers.get(6, 0), kind)


def _dimension(data: int | bytes) -> int:
    if not isinstance(data, bytes):
        raise ValueError("a shape is no message")
    size = next((value for number, value in fields(data) if number == 1), 0)
    if not isinstance(size, int) or not 0 <= signed(size) <= _MOST_VALUES:
        raise ValueError("a dimension is impossible")
    return size
