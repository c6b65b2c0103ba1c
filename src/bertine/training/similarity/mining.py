"""Wrong answers that look right: the nearest second texts of other pairs, by the vectors of the
model as it is before training.

Shape legend: N rows, D numbers of a vector, C candidates, K negatives of a row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from bertine.files import os_errors
from bertine.inference.embedding.embedder import Embedder, unit
from bertine.inference.embedding.nearest import NearestRows, search_all
from bertine.rng import Permutation
from bertine.tasks.features import Features, text_number
from bertine.training.similarity.pair_file import PairFile

#: At most so many second texts are compared with: of more, as many are drawn.
MOST_CANDIDATES = 1 << 16
#: Rows whose vectors are computed, and whose neighbours are looked for, at once.
_ROWS = 1 << 11
#: So many of the nearest are looked at for each negative, before those that are too near are
#: skipped.
_LOOKED_AT = 20


class MinedNegatives:
    """The rows whose second texts are negatives of each row, on disk: int32 [N, K], -1 for none.

    Attributes:
        found: negatives of all rows.
        skipped: neighbours that were nearer than allowed.
    """

    def __init__(self, path: Path, count: int) -> None:
        self._path, self._count = path, count
        self.found = self.skipped = 0

    def mine(
        self,
        file: PairFile,
        embedder: Embedder,
        *,
        margin: float,
        seed: int,
        held: Sequence[int] = (),
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Find the negatives of all rows of `file`, in memory that does not grow with their number.

        Args:
            embedder: whose vectors are compared.
            margin: a neighbour whose cosine with the first text is above this share of the cosine
                of first and second is skipped: it may be right too.
            seed: of the candidates, where they are drawn.
            held: rows that are held out, which are no candidates.
            advance: called with the number of rows that are done.
        """
        total = len(file)
        order = Permutation(total, seed, "candidates for negatives")
        left_out = set(held)
        free = (row for row in (order[at] for at in range(total)) if row not in left_out)
        rows = np.array(sorted(islice(free, MOST_CANDIDATES)))
        count = len(rows)
        vectors = np.empty((count, embedder.dimensions), dtype=np.float16)
        numbers = np.empty(count, dtype=np.int64)
        right: dict[int, set[int]] = {}  # all matches of a first text, which are no negatives
        for start in range(0, count, _ROWS):
            read = list(file.read(rows[start : start + _ROWS].tolist()))
            texts = [found[1] for found in read]
            vectors[start : start + len(texts)] = unit(embedder.run(texts))
            numbers[start : start + len(texts)] = [text_number(text) for text in texts]
            for found in read:
                right.setdefault(text_number(found[0]), set()).add(text_number(found[1]))
        # Of equal texts one is enough: others would be the same negative again.
        numbers, first = np.unique(numbers, return_index=True)
        rows, vectors = rows[first], vectors[first]
        with os_errors(self._path, "writing it"), open(self._path, "wb") as out:
            for start in range(0, total, _ROWS):
                part = range(start, min(start + _ROWS, total))
                table = self._of_rows(
                    list(file.read(part)), embedder, vectors, numbers, right, margin
                )
                out.write(np.where(table < 0, -1, rows[table]).astype("<i4").tobytes())
                advance(len(part))

    def _of_rows(
        self,
        texts: list[list[Features]],
        embedder: Embedder,
        vectors: np.ndarray,
        numbers: np.ndarray,
        right: Mapping[int, set[int]],
        margin: float,
    ) -> np.ndarray:
        """Return the candidates that are negatives of some rows, int64 [rows, K], -1 for none."""
        firsts = unit(embedder.run([found[0] for found in texts]))
        seconds = unit(embedder.run([found[1] for found in texts]))
        bars = (firsts * seconds).sum(1) * margin
        nearest = NearestRows(len(firsts), self._count * _LOOKED_AT)
        search_all(nearest, firsts, vectors)
        table = np.full((len(texts), self._count), -1, dtype=np.int64)
        for row, found in enumerate(texts):
            scores, at = nearest.scores[row], nearest.rows[row]
            own = text_number(found[0])
            known = [own, text_number(found[1]), *right.get(own, ())]
            other = ~np.isin(numbers[at], known)
            allowed = other & (scores <= bars[row])
            self.skipped += int((other & ~allowed).sum())
            kept = at[allowed][: self._count]
            table[row, : len(kept)] = kept
            self.found += len(kept)
        return table

    def of(self, rows: Sequence[int]) -> list[list[int]]:
        """Return, for each of `rows`, the rows whose second texts are its negatives."""
        width = 4 * self._count
        with open(self._path, "rb") as file:
            parts = [os.pread(file.fileno(), width, row * width) for row in rows]
        return [[n for n in np.frombuffer(part, "<i4").tolist() if n >= 0] for part in parts]
