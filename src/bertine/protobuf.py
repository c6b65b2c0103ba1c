"""Read numbers and messages as protocol buffers write them (protobuf.dev, "Encoding"): the indexes
of TensorFlow's checkpoints, the files of sentencepiece."""

from __future__ import annotations

from collections.abc import Iterator

#: A number has at most 64 bits, seven in a byte.
_NUMBER_BYTES = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read the number at `at`, and where it ends.

    Raises:
        ValueError: `data` ends before it, or it has more than 64 bits.
    """
    value = 0
    for index, byte in enumerate(data[at : at + _NUMBER_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at + index + 1
    raise ValueError("a number is cut short or has more than 64 bits")


def signed(value: int) -> int:
    """Return the number of 64 bits that a field of the type int64 means by `value`."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: number, and value as a number or as bytes.

    Raises:
        ValueError: it is no message, or is cut short.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == _VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field has the kind {kind}")
        if at + size > len(data):
            raise ValueError("a field is cut short")
        piece = data[at : at + size]
        at += size
        yield number, piece if kind == _BYTES else int.from_bytes(piece, "little")
