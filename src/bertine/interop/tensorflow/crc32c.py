"""CRC-32C (Castagnoli; RFC 3720, appendix B.4), in NumPy at the speed of a disk.

A CRC is linear over bits: what a word at one place adds to it, the same word adds one row further
on after its bits went through a fixed matrix. So the bytes are laid out in rows of words, and row
after row is folded into the next, all words of a row at once; the one row that is left has the CRC
of the whole. A matrix of 32 x 32 bits is two tables of 65,536 words, one for each half of a word.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

#: The polynomial, bits reversed.
_POLYNOMIAL = 0x82F63B78
#: 32-bit words of a row, the widest first; a power of two each. Wide rows are folded fastest.
_WIDTHS = (1 << 15, 1 << 10, 1 << 5)
#: Rows from which on folding them takes less time than byte by byte.
_FEW_ROWS = 4
#: What TensorFlow and LevelDB add to a CRC that is stored beside the data that it is of.
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
    """Return what `width` zero words make of the low and of the high half of a state, by the
    half's value: uint32 [65536] each."""
    # The images of the 32 bits: by one zero byte, then squared until the bytes are enough.
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
        # Any half is an index of the table: "wrap" spares the check.
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
    """Compute the CRC-32C of `data` as it is stored beside them: turned and moved, so that the CRC
    of data that hold CRCs says something (LevelDB, ``util/crc32c.h``)."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF
