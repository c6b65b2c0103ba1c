"""A writer of TensorFlow's tensor bundles, for the odd cases of which there is no file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertine.contrib.tensorflow.bundle import masked_crc32c

CODES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "float16": 19}
MAGIC = 0xDB4775248B80FB57


def number(value: int) -> bytes:
    """A number as protocol buffers have it."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(name: int, value: int | bytes) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return number(name << 3) + number(value)
    return number(name << 3 | 2) + number(len(value)) + value


def snappy(data: bytes) -> bytes:
    """Snappy, as literals of at most 60 bytes and a copy wherever 8 bytes repeat the last 8."""
    out, at = bytearray(number(len(data))), 0
    while at < len(data):
        if at >= 8 and data[at : at + 8] == data[at - 8 : at]:
            out += bytes([(8 - 4) << 2 | 1, 8])
            at += 8
            continue
        piece = data[at : at + 1]
        out += bytes([0]) + piece
        at += 1
    return bytes(out)


def block(entries: list[tuple[bytes, bytes]], every: int = 16) -> bytes:
    """The bytes of a table's block: keys by what they share with the one before."""
    out, restarts, last = bytearray(), [], b""
    for index, (key, value) in enumerate(entries):
        shared = 0
        if index % every == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(last), len(key)) and last[shared] == key[shared]:
                shared += 1
        out += number(shared) + number(len(key) - shared) + number(len(value))
        out += key[shared:] + value
        last = key
    for restart in restarts or [0]:
        out += restart.to_bytes(4, "little")
    return bytes(out) + max(1, len(restarts)).to_bytes(4, "little")


def table(
    entries: list[tuple[bytes, bytes]], *, compress: bool = False, per_block: int = 7
) -> bytes:
    """A LevelDB table of `entries`, which are in order."""
    out = bytearray()

    def add(content: bytes) -> bytes:
        kind = b"\1" if compress else b"\0"
        content = (snappy(content) if compress else content) + kind
        handle = number(len(out)) + number(len(content) - 1)
        out.extend(content + masked_crc32c(content).to_bytes(4, "little"))
        return handle

    index = [
        (entries[start : start + per_block][-1][0], add(block(entries[start : start + per_block])))
        for start in range(0, len(entries), per_block)
    ]
    footer = add(block([])) + add(block(index))
    return bytes(out) + footer.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")


def header(shards: int = 1, endianness: int = 0) -> bytes:
    return field(1, shards) + (field(2, endianness) if endianness else b"") + field(3, field(1, 1))


def entry(array: np.ndarray[Any, Any], code: int, offset: int, shard: int = 0) -> bytes:
    shape = b"".join(field(2, field(1, size)) for size in array.shape)
    data = np.frombuffer(array.tobytes(), np.uint8)
    out = field(1, code) + field(2, shape) + (field(3, shard) if shard else b"")
    out += (field(4, offset) if offset else b"") + field(5, array.nbytes)
    return out + number(6 << 3 | 5) + masked_crc32c(data).to_bytes(4, "little")


def write_bundle(
    prefix: Path,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    *,
    shards: int = 1,
    compress: bool = False,
    codes: Mapping[str, int] | None = None,
) -> None:
    """Write `arrays` as a checkpoint, in turn into `shards` data files.

    Args:
        codes: the types of single arrays, where NumPy has none (bfloat16: 14).
    """
    data = [bytearray() for _ in range(shards)]
    entries = [(b"", header(shards))]
    for position, name in enumerate(sorted(arrays, key=str.encode)):
        array, shard = (
            np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape),
            position % shards,
        )
        code = (codes or {}).get(name) or CODES[array.dtype.name]
        entries.append((name.encode(), entry(array, code, len(data[shard]), shard)))
        data[shard] += array.tobytes()
    Path(f"{prefix}.index").write_bytes(table(entries, compress=compress))
    for shard, content in enumerate(data):
        Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}").write_bytes(content)
