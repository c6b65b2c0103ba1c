"""LevelDB's table, the format of an index (google/leveldb, ``doc/table_format.md``).

Keys with values in order, in blocks. A key is written as what differs from the one before; every
block has a byte that says whether it is compressed, and a CRC. The last 48 bytes say where the
block is that says where the blocks are.
"""

from __future__ import annotations

from collections.abc import Iterator

from bertine.interop.tensorflow.crc32c import masked_crc32c
from bertine.interop.tensorflow.snappy import decompress
from bertine.protobuf import varint

#: What the last 8 bytes of a table are, as a number.
_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5
_PLAIN, _SNAPPY = 0, 1
#: A table of bert-large with its optimizer's state has 1,200 entries; a name has 70 bytes.
_MOST_ENTRIES, _LONGEST_KEY = 1 << 16, 1 << 10


def is_table(end: bytes) -> bool:
    """Tell whether a file with the last bytes `end` is a table."""
    return end[-8:] == _MAGIC.to_bytes(8, "little")


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys of a table, in their order, with their values.

    Every block's CRC is compared. As keys rise and blocks follow each other, no part of a file is
    read twice, whatever it says.

    Raises:
        ValueError: `data` is no table, is cut short or damaged.
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
    """Read where a block is and its size, at `at` of `data`; and where that ends."""
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
