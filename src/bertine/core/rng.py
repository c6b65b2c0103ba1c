"""Create counter-based random generators that depend on a position, not on earlier draws.

A batch is a pure function of (data, seed, step). So all random code in Bertine requests a
generator by name and position, ``generator(seed, "masking", step)``, and never carries a stream's
state from one step to the next. This gives exact resume, any number of loader workers, and static
masking.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(seed: int, *where: int | str) -> int:
    """Return a 128-bit key for the position `where` under `seed`: equal for equal arguments on
    every machine, independent for different ones (BLAKE2b of their text)."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *where))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, *where: int | str) -> np.random.Generator:
    """Return a NumPy generator (Philox 4x64) keyed by `seed` and the position `where`."""
    return np.random.Generator(np.random.Philox(key=key(seed, *where)))


class Permutation:
    """A random permutation of ``range(size)`` evaluated one index at a time, in bounded memory.

    A four-round Feistel network over the smallest even number of bits that holds `size`, with
    cycle walking for the values that fall outside (Black and Rogaway, "Ciphers with arbitrary
    finite domains", 2002). Memory does not grow with `size`, so an epoch over a corpus of any
    length can be shuffled and entered at any step. Up to `TABLE` elements it is a table, because
    a network of a few bits has few permutations and prefers some.
    """

    ROUNDS = 4
    TABLE = 1 << 14

    def __init__(self, size: int, seed: int, *where: int | str) -> None:
        if size < 1:
            raise ValueError("a permutation needs at least one element")
        self.size = size
        self._half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        draw = generator(seed, "permutation", *where)
        self._table: list[int] | None = None
        if size <= self.TABLE:
            self._table = draw.permutation(size).tolist()
        self._keys = [int(k) for k in draw.integers(0, 2**63, size=self.ROUNDS)]

    def _round(self, value: int, round_key: int) -> int:
        # The finalizer of SplitMix64: cheap, and every input bit reaches every output bit.
        mixed = (value + round_key) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (mixed ^ (mixed >> 31)) & self._mask

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        if self._table is not None:
            return self._table[index]
        value = index
        while True:
            left, right = value >> self._half, value & self._mask
            for round_key in self._keys:
                left, right = right, left ^ self._round(right, round_key)
            value = (left << self._half) | right
            if value < self.size:
                return value
