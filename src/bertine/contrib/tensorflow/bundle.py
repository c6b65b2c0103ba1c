"""Read tensor bundles, the format of ``tf.train.Saver`` (V2), without TensorFlow.

``PREFIX.index`` is a table of the tensors, and ``PREFIX.data-SSSSS-of-NNNNN`` holds their values
one after the other (tensorflow/core/util/tensor_bundle, ``tensor_bundle.proto``). The data are
memory-mapped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertine.core.errors import BertineError
from bertine.core.files import check_regular, os_errors, read_bounded
from bertine.core.foreign_files import fields, signed, varint
from bertine.core.text import briefly

# CRC-32C: the checksum (Castagnoli; RFC 3720, appendix B.4) in NumPy, at the speed of a disk.
#
# A CRC is linear over bits: a word contributes the same as the word one row later does after its
# bits are multiplied by a fixed matrix. So the bytes are arranged in rows of words, and each row is
# folded into the next, all words of a row at once; the last row has the CRC of the whole. A matrix
# of 32 x 32 bits is two tables of 65,536 words, one for each half of a word.

Words = npt.NDArray[np.uint32]

#: The polynomial, with reversed bits.
_POLYNOMIAL = 0x82F63B78
#: 32-bit words of a row, the widest first; a power of two each. Wide rows are folded fastest.
_WIDTHS = (1 << 15, 1 << 10, 1 << 5)
#: The number of rows from which folding is faster than byte by byte.
_FEW_ROWS = 4
#: The constant that TensorFlow and LevelDB add to a CRC that is stored with its data.
_MASK_DELTA = 0xA282EAD8


def _byte_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _byte_table()


@functools.cache
def _tables(width: int) -> tuple[Words, Words]:
    """Return the effect of `width` zero words on the low and the high half of a state, by the
    half's value: uint32 [65536] each."""
    # The images of the 32 bits: for one zero byte, then squared up to the number of bytes.
    columns = [_TABLE[1 << bit] if bit < 8 else 1 << bit >> 8 for bit in range(32)]
    size = 1
    while size < 4 * width:
        columns = [_image(columns, column) for column in columns]
        size *= 2
    halves = []
    for half in (columns[:16], columns[16:]):
        table = np.zeros(1, np.uint32)
        for column in half:
            table = np.concatenate([table, table ^ np.uint32(column)])
        halves.append(table)
    return halves[0], halves[1]


def _image(columns: list[int], state: int) -> int:
    result = 0
    for bit in range(32):
        if state >> bit & 1:
            result ^= columns[bit]
    return result


def _folded(words: Words, width: int, start: int) -> Words:
    """Fold rows of `width` words into one with the same CRC.

    Args:
        words: a whole number of rows.
        width: of a row.
        start: the state before the first word.
    """
    low, high = _tables(width)
    rows = words.reshape(-1, width)
    state = rows[0].astype("<u4")
    state[0] ^= start
    halves = state.view("<u2").reshape(width, 2)
    moved, above = np.empty_like(state), np.empty_like(state)
    for row in rows[1:]:
        # Every half is a valid index of the table: "wrap" saves the check.
        low.take(halves[:, 0], out=moved, mode="wrap")
        high.take(halves[:, 1], out=above, mode="wrap")
        np.bitwise_xor(moved, above, out=moved)
        np.bitwise_xor(moved, row, out=state)
    return state


def crc32c(data: bytes | npt.NDArray[np.uint8]) -> int:
    """Compute the CRC-32C of `data`."""
    rest = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    state = 0xFFFFFFFF
    for width in _WIDTHS:
        count = len(rest) // (4 * width)
        if count >= _FEW_ROWS:
            end = 4 * width * count
            row = _folded(rest[:end].view("<u4"), width, state)
            rest, state = np.concatenate([row.view(np.uint8), rest[end:]]), 0
    for byte in rest.tobytes():
        state = state >> 8 ^ _TABLE[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | npt.NDArray[np.uint8]) -> int:
    """Compute the CRC-32C of `data` as stored with the data: rotated and shifted, so that the CRC
    of data that contain CRCs is meaningful (LevelDB, ``util/crc32c.h``)."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


# Snappy: the compression of LevelDB's blocks (google/snappy, ``format_description.txt``).

#: A copy of three bytes gives at most 64, so a stream grows by at most this factor.
_MOST_GROWTH = 22


def decompress(data: bytes) -> bytes:
    """Return the contents of the stream `data`, which begins with their size.

    Raises:
        ValueError: it is not a snappy stream, or is cut short.
    """
    import pyarrow as pa

    size, _ = varint(data, 0)
    if size > _MOST_GROWTH * len(data):
        raise ValueError("a block of snappy's says that it holds more than it can")
    try:
        return bytes(pa.decompress(data, size, codec="snappy", asbytes=True))
    except OSError as error:
        raise ValueError("a block of snappy's is damaged or cut short") from error


# LevelDB's table: the format of an index (google/leveldb, ``doc/table_format.md``).
#
# Keys with values in order, in blocks. A key is written as its difference from the previous one;
# every block has a byte for its compression, and a CRC. The last 48 bytes point to the block that
# points to the other blocks.

#: The last 8 bytes of a table, as a number.
_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5
_PLAIN, _SNAPPY = 0, 1
#: A table of bert-large with its optimizer's state has 1,200 entries; a name has 70 bytes.
_MOST_ENTRIES, _LONGEST_KEY = 1 << 16, 1 << 10


def is_table(end: bytes) -> bool:
    """Return whether a file with the last bytes `end` is a table."""
    return end[-8:] == _MAGIC.to_bytes(8, "little")


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys of a table, in order, with their values.

    Every block's CRC is compared. As keys rise and blocks follow each other, no part of a file is
    read twice, even if the file is malicious.

    Raises:
        ValueError: `data` is not a table, is cut short or damaged.
    """
    if len(data) < _FOOTER or not is_table(data):
        raise ValueError("it does not end as an index does: it is another file, or cut short")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)
    (start, size), _ = _handle(footer, at)
    end, count, last = 0, 0, None
    for _, value in _entries(_block(data, start, size)):
        (start, size), _ = _handle(value, 0)
        if start < end:
            raise ValueError("its blocks are not in order")
        end = start + size + _TRAILER
        for key, entry in _entries(_block(data, start, size)):
            count += 1
            if last is not None and key <= last:
                raise ValueError("its names are not in order")
            if count > _MOST_ENTRIES:
                raise ValueError(f"it has more than {_MOST_ENTRIES:,} entries")
            last = key
            yield key, entry


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Read the place and the size of a block at `at` of `data`; return also the end of that."""
    start, at = varint(data, at)
    size, at = varint(data, at)
    return (start, size), at


def _block(data: bytes, start: int, size: int) -> bytes:
    end = start + size
    if end + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block lies beyond its end; it is cut short or damaged")
    if masked_crc32c(data[start : end + 1]) != int.from_bytes(data[end + 1 : end + 5], "little"):
        raise ValueError("a block's CRC is not that of its bytes; it is damaged")
    if data[end] == _PLAIN:
        return data[start:end]
    if data[end] == _SNAPPY:
        return decompress(data[start:end])
    raise ValueError(f"a block is compressed in a way ({data[end]}) that is not known")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys of a block with their values."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ValueError("a block is shorter than it says")
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or shared + own > _LONGEST_KEY or at + own + size > end:
            raise ValueError("a block has an entry that leads out of it")
        key = key[:shared] + block[at : at + own]
        at += own + size
        yield key, block[at - size : at]


Array = npt.NDArray[np.generic]

INDEX_SUFFIX = ".index"
#: An index of bert-large with its optimizer's state has 80 kB.
_MOST_BYTES = 1 << 22
_MOST_SHARDS, _MOST_DIMENSIONS, _MOST_VALUES = 1000, 8, 1 << 40
#: Numbers of types (``types.proto``) → name, type in memory. The bits of a bfloat16 are the upper
#: half of a float32's.
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
#: Parts of the names in a checkpoint of TensorFlow 2's objects.
_OBJECTS = ("_CHECKPOINTABLE_OBJECT_GRAPH", "/.ATTRIBUTES/")


@dataclass(frozen=True)
class Entry:
    """A tensor of a bundle: its type and its place.

    Attributes:
        dtype: its name in NumPy and PyTorch; "type 7" for one that is not numeric.
        shape: of the tensor.
        shard: number of the data file.
        offset: of the first byte there.
        size: bytes.
        crc: masked CRC-32C of the bytes.
        kind: the type in memory; None if it is not numeric.
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
        BertineError: the index is missing, damaged or cut short; it has another endianness or
            TensorFlow 2's objects, or has variables in parts.
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
        """Return the data file with the number `shard`."""
        prefix = self.index.name.removesuffix(INDEX_SUFFIX)
        return self.index.with_name(f"{prefix}.data-{shard:05d}-of-{self.shards:05d}")

    def files(self) -> list[Path]:
        """Return the index and the data files."""
        return [self.index, *(self.data_file(shard) for shard in range(self.shards))]

    def array(self, name: str) -> Array:
        """Return the tensor `name` after checking its CRC. It may be a memory-mapped part of the
        file; writing to it changes a copy of this process. bfloat16 is widened to float32.

        Raises:
            BertineError: the data file is missing, cut short or damaged, or the tensor is not
                numeric.
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
                "is damaged, or belongs to another checkpoint; copy it again"
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
        BertineError: the kind of checkpoint is not supported; the message names no file.
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
        # Nothing is read twice, even if an index claims many tensors.
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
