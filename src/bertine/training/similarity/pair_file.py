"""Texts as pieces on disk, read row by row: memory does not grow with their number.

``rows.bin`` has a record of fixed size for each row, ``texts.bin`` the pieces of its texts. Both
are scratch files of a run: they are made anew when it is resumed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from bertine.files import os_errors
from bertine.inference.embedding.embedder import Embedder, unknown_text
from bertine.records.text_pairs import PairRow
from bertine.tasks.features import Features, text_number
from bertine.tasks.unknown_text import UnknownText

#: Of a row: where its texts begin in the other file, how many they are, their pieces in all, the
#: score (NaN: none), the number of the label (-1: none), and a number for each of the two texts of
#: the pair, equal for equal texts (for the only text twice).
_ROW = np.dtype(
    [
        *(("at", "<i8"), ("texts", "<i4"), ("pieces", "<i4")),
        *(("score", "<f4"), ("label", "<i4"), ("pair", "<i8", (2,))),
    ]
)
#: Rows that are tokenized at once.
_CHUNK = 1024


class PairFile:
    """The rows of a table, tokenized. Use it in ``with``: the files are open.

    Attributes:
        count: rows.
        labels: names of the labels, in the order of their numbers.
        cut: texts that were cut to the longest input.
        low, high: of the scores.
        unknown: counts what the vocabulary does not know; None: nothing does.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.count = self.cut = 0
        self.labels: dict[str, int] = {}
        self.low, self.high = np.inf, -np.inf
        self.unknown: UnknownText | None = None
        self._digest = hashlib.sha256()
        self._rows = self._texts = -1

    def write(self, rows: Iterable[PairRow], embedder: Embedder) -> Self:
        """Tokenize `rows` and write them.

        Raises:
            BertineError: the disk is full, or what reading the rows raises.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.unknown = unknown_text(embedder)
        at, listed = 0, iter(rows)
        with (
            os_errors(self._folder, "writing the pieces of the texts"),
            open(self._folder / "rows.bin", "wb") as records,
            open(self._folder / "texts.bin", "wb") as texts,
        ):
            while chunk := list(islice(listed, _CHUNK)):
                flat = [text for row in chunk for text in row.texts]
                tokenized = embedder.features(flat)
                if self.unknown is not None:
                    self.unknown.count(tokenized, flat)
                features = iter(tokenized)
                table = np.zeros(len(chunk), dtype=_ROW)
                for number, row in enumerate(chunk):
                    own = list(islice(features, len(row.texts)))
                    blob = _packed(own)
                    self._digest.update(blob)
                    self.cut += sum(text.num_truncated > 0 for text in own)
                    score = np.nan if row.score is None else row.score
                    if row.score is not None:
                        self.low, self.high = min(self.low, score), max(self.high, score)
                    label = -1
                    if row.label is not None:
                        label = self.labels.setdefault(row.label, len(self.labels))
                    pieces = sum(len(text.input_ids) for text in own)
                    pair = text_number(own[0]), text_number(own[min(1, len(own) - 1)])
                    table[number] = (at, len(own), pieces, score, label, pair)
                    texts.write(blob)
                    at += len(blob)
                self._digest.update(table.tobytes())
                records.write(table.tobytes())
                self.count += len(chunk)
        return self

    def __enter__(self) -> Self:
        self._rows = os.open(self._folder / "rows.bin", os.O_RDONLY)
        self._texts = os.open(self._folder / "texts.bin", os.O_RDONLY)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self._rows)
        os.close(self._texts)

    def __len__(self) -> int:
        return self.count

    def fingerprint(self) -> str:
        """Return the SHA-256 of all rows, as hex digits."""
        return self._digest.hexdigest()

    def records(self, rows: Sequence[int]) -> np.ndarray:
        """Return the records of some rows, with the fields of ``rows.bin``."""
        size = _ROW.itemsize
        found = b"".join(os.pread(self._rows, size, row * size) for row in rows)
        return np.frombuffer(found, dtype=_ROW)

    def label_column(self) -> np.ndarray:
        """Return the numbers of all labels, int32 [rows]."""
        return self._column("label")

    def pair_column(self) -> np.ndarray:
        """Return the numbers of the two texts of all pairs, int64 [rows, 2]."""
        return self._column("pair")

    def _column(self, name: str) -> np.ndarray:
        size, parts = _ROW.itemsize, []
        for start in range(0, self.count, 1 << 16):
            data = os.pread(self._rows, size << 16, start * size)
            parts.append(np.frombuffer(data, dtype=_ROW)[name].copy())
        return np.concatenate(parts)

    def read(self, rows: Sequence[int]) -> Iterator[list[Features]]:
        """Yield the texts of each of some rows."""
        for record in self.records(rows):
            count, pieces = int(record["texts"]), int(record["pieces"])
            blob = os.pread(self._texts, 4 * count + 5 * pieces, int(record["at"]))
            yield _unpacked(blob, count, pieces)


def _packed(texts: Sequence[Features]) -> bytes:
    lengths = np.array([len(text.input_ids) for text in texts], dtype="<i4")
    ids = [text.input_ids.astype("<i4").tobytes() for text in texts]
    types = [text.token_type_ids.astype("i1").tobytes() for text in texts]
    return b"".join([lengths.tobytes(), *ids, *types])


def _unpacked(blob: bytes, count: int, pieces: int) -> list[Features]:
    lengths = np.frombuffer(blob, "<i4", count).tolist()
    ids = np.frombuffer(blob, "<i4", pieces, 4 * count)
    types = np.frombuffer(blob, "i1", pieces, 4 * (count + pieces))
    found, at = [], 0
    for number, length in enumerate(lengths):
        found.append(Features(ids[at : at + length], types[at : at + length], row=number))
        at += length
    return found
