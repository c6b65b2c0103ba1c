"""Snappy, the compression of LevelDB's blocks, decoded (google/snappy, ``format_description.txt``).

A stream is the size of what it holds, then literals and copies of what came before; a copy may
reach into itself, which repeats it.
"""

from __future__ import annotations

from bertine.protobuf import varint

#: A copy of three bytes gives at most 64, so a stream grows by no more than this factor.
_MOST_GROWTH = 22


def decompress(data: bytes) -> bytes:
    """Return what the stream `data` holds.

    Raises:
        ValueError: it is no stream of snappy's, or is cut short.
    """
    size, at = varint(data, 0)
    if size > _MOST_GROWTH * len(data):
        raise ValueError("a block of snappy's says that it holds more than it can")
    result = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                length = int.from_bytes(data[at : at + extra], "little") + 1
                at += extra
            if at + length > len(data):
                raise ValueError("a block of snappy's is cut short")
            result += data[at : at + length]
            at += length
        else:
            if tag & 3 == 1:
                length, width = (tag >> 2 & 7) + 4, 1
                high = (tag >> 5) << 8
            else:
                length, width, high = (tag >> 2) + 1, 2 if tag & 3 == 2 else 4, 0
            back = high | int.from_bytes(data[at : at + width], "little")
            at += width
            if at > len(data) or not 0 < back <= len(result):
                raise ValueError("a block of snappy's copies what is not there")
            start = len(result) - back
            piece = bytes(result[start : start + length])
            result += (piece * (length // len(piece) + 1))[:length]
        if len(result) > size:
            break
    if len(result) != size:
        raise ValueError("a block of snappy's is not of the size that it says")
    return bytes(result)
