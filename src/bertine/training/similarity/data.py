"""Store tokenized texts on disk, hold out pairs, mine negatives, and draw the pairs of each step.

``rows.bin`` has a record of fixed size for each row, ``texts.bin`` the pieces of its texts. They
are read row by row, so that memory does not grow with their number. Both are temporary files of a
run: they are written again when it is resumed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bertine.core.files import os_errors
from bertine.core.names import PairKind
from bertine.core.rng import Permutation, generator
from bertine.corpora.batch import WINDOW
from bertine.data.text_pairs import PairRow
from bertine.inference.embedding.embedder import Embedder, unknown_text
from bertine.inference.embedding.index import NearestRows, search_all
from bertine.inference.embedding.vectors import unit
from bertine.tasks.base import Features, text_number
from bertine.tasks.unknown_text import UnknownText
from bertine.training.similarity.objective import Pair

#: The record of a row: where its texts begin in the other file, their number, their pieces in all,
#: the score (NaN: none), the number of the label (-1: none), and a number for each of the two texts
#: of the pair, equal for equal texts (for a single text twice).
_ROW = np.dtype(
    [
        *(("at", "<i8"), ("texts", "<i4"), ("pieces", "<i4")),
        *(("score", "<f4"), ("label", "<i4"), ("pair", "<i8", (2,))),
    ]
)
#: The number of rows that are tokenized at once.
_CHUNK = 1024


class PairFile:
    """The tokenized rows of a table. Use it as a context manager, which opens the files.

    Attributes:
        count: the number of rows.
        labels: names of the labels, in the order of their numbers.
        cut: the number of texts that were cut to the longest input.
        low, high: the lowest and highest score.
        unknown: counts pieces that are not in the vocabulary; None: nothing counts them.
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
        """Return the records of the given rows, with the fields of ``rows.bin``."""
        size = _ROW.itemsize
        result = b"".join(os.pread(self._rows, size, row * size) for row in rows)
        return np.frombuffer(result, dtype=_ROW)

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
        """Yield the texts of each of the given rows."""
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
    result, at = [], 0
    for number, length in enumerate(lengths):
        result.append(Features(ids[at : at + length], types[at : at + length], row=number))
        at += length
    return result


# Held-out rows: pairs that have no text in common with a training row.
#
# Rows with a text in common belong together, and so do those that other rows connect (the connected
# components of the graph whose vertices are texts and whose edges are rows). Whole groups are held
# out. Choosing them takes some 100 bytes per row for a moment.


@dataclass(frozen=True)
class HeldOut:
    """The held-out rows of a table, and the training rows.

    Attributes:
        rows: int64, those held out, ascending.
        apart: whether none of their texts occurs in the training rows.
    """

    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    apart: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    def trained(self, numbers: Sequence[int]) -> np.ndarray:
        """Return the rows, int64, for indices among the training rows."""
        given = np.asarray(numbers, np.int64)
        # The number of training rows before the k-th held-out row is its number less k.
        before = self.rows - np.arange(len(self.rows))
        return given + np.searchsorted(before, given, side="right")


def hold_out(texts: np.ndarray, count: int, least: int, seed: int) -> HeldOut:
    """Choose rows to hold out.

    Args:
        texts: int64 [N, 2], a number for each text of a row, equal for equal texts.
        count: rows to hold out, at most.
        least: if fewer than this can be held out with all rows of their texts, `count` rows are
            drawn one by one: their texts may also occur in training rows.
        seed: of the draw.
    """
    total = len(texts)
    if count <= 0:
        return HeldOut()
    draw = generator(seed, "rows held out")
    numbers = np.unique(texts, return_inverse=True)[1].reshape(total, 2)
    points = int(numbers.max()) + 1
    edges = coo_array((np.ones(total, np.int8), (numbers[:, 0], numbers[:, 1])), (points, points))
    groups = connected_components(edges, directed=False)[1][numbers[:, 0]]
    sizes = np.bincount(groups)
    left, chosen = count, np.zeros(len(sizes), bool)
    for group in draw.permutation(len(sizes)):
        # Otherwise one group that is most of the table might be all of the held-out rows.
        if sizes[group] <= left:
            chosen[group] = True
            left -= int(sizes[group])
            if left == 0:
                break
    if count - left >= least:
        return HeldOut(np.flatnonzero(chosen[groups]))
    return HeldOut(np.sort(draw.permutation(total)[:count]), apart=False)


# Negatives: plausible wrong answers. They are the nearest second texts of other pairs, by the
# vectors of the model before training.
#
# Shape legend: N rows, D numbers of a vector, C candidates, K negatives of a row.

#: The most second texts to compare with; if there are more, this many are drawn.
MOST_CANDIDATES = 1 << 16
#: The number of rows that are embedded and searched at once.
_ROWS = 1 << 11
#: The number of nearest neighbours that are considered for each negative, before those that are too
#: near are skipped.
_LOOKED_AT = 20


class MinedNegatives:
    """The rows whose second texts are negatives of each row, on disk: int32 [N, K], -1 for none.

    Attributes:
        found: the number of negatives of all rows.
        skipped: the number of neighbours that were nearer than allowed.
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
            embedder: computes the vectors to compare.
            margin: a neighbour whose cosine with the first text is above this share of the cosine
                of first and second is skipped, because it may also be right.
            seed: of the candidates, if they are drawn.
            held: held-out rows, which are no candidates.
            advance: called with the number of finished rows.
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
            texts = [result[1] for result in read]
            vectors[start : start + len(texts)] = unit(embedder.run(texts))
            numbers[start : start + len(texts)] = [text_number(text) for text in texts]
            for result in read:
                right.setdefault(text_number(result[0]), set()).add(text_number(result[1]))
        # Of equal texts one is enough: the others would be the same negative.
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
        """Return the candidates that are negatives of the given rows, int64 [rows, K], -1 for
        none."""
        firsts = unit(embedder.run([result[0] for result in texts]))
        seconds = unit(embedder.run([result[1] for result in texts]))
        bars = (firsts * seconds).sum(1) * margin
        nearest = NearestRows(len(firsts), self._count * _LOOKED_AT)
        search_all(nearest, firsts, vectors)
        table = np.full((len(texts), self._count), -1, dtype=np.int64)
        for row, result in enumerate(texts):
            scores, at = nearest.scores[row], nearest.rows[row]
            own = text_number(result[0])
            known = [own, text_number(result[1]), *right.get(own, ())]
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


# Sampling: the pairs of a step, as a function of the step, with the rows on disk.


class PairSampler:
    """The pairs of each step: every training row once an epoch, with those of similar length
    together (sorted within windows of :data:`~bertine.corpora.batch.WINDOW` batches). The last rows
    of an epoch that do not fill a batch are left out; in the next epoch these are other rows.

    Args:
        file: the rows, open.
        kind: of the rows.
        batch_size: pairs of a step.
        seed: of the order.
        held: the held-out rows.
        mined: further negatives; None: there are none.

    Attributes:
        batch_size: as given, or the number of rows if that is smaller.
        steps_per_epoch: at least 1.
        held: the held-out rows.
        labels: the texts by their labels; None: they have none.
    """

    def __init__(
        self,
        file: PairFile,
        kind: PairKind,
        *,
        batch_size: int,
        seed: int,
        held: HeldOut | None = None,
        mined: MinedNegatives | None = None,
    ) -> None:
        self._file, self._kind, self._seed, self._mined = file, kind, seed, mined
        self.held = HeldOut() if held is None else held
        self._trained = len(file) - len(self.held)
        self.batch_size = self._size = min(batch_size, self._trained)
        self.steps_per_epoch = max(1, self._trained // self._size)
        self.labels = SameLabel(file) if kind == "labels" else None
        low, high = file.low, file.high
        self._low, self._spread = (low, high - low) if high > low else (0.0, 1.0)
        self._window: tuple[int, list[list[int]]] = (-1, [])

    def __call__(self, step: int) -> list[Pair]:
        """Return the pairs of a step."""
        rows = self.rows(step)
        if self.labels is not None:
            return self._same_label(step, rows)
        records = self._file.records(rows)
        wrong = [[] for _ in rows] if self._mined is None else self._mined.of(rows)
        pairs = []
        for record, texts, more in zip(records, self._file.read(rows), wrong, strict=True):
            first, second = (texts[0], texts[0]) if len(texts) == 1 else texts[:2]
            # A mined negative is the second text of another row; it does not match this row.
            negatives = [*texts[2:], *(result[1] for result in self._file.read(more))]
            score = None
            if not np.isnan(record["score"]):
                score = (float(record["score"]) - self._low) / self._spread
            pairs.append(Pair(first, second, tuple(negatives), score))
        return pairs

    def rows(self, step: int) -> list[int]:
        """Return the rows of a step."""
        epoch, at = divmod(step, self.steps_per_epoch)
        window = epoch * (self.steps_per_epoch // WINDOW + 1) + at // WINDOW
        if self._window[0] != window:
            self._window = (window, self._batches(epoch, at // WINDOW))
        return self._window[1][at % WINDOW]

    def _batches(self, epoch: int, number: int) -> list[list[int]]:
        """Return the batches of a window of an epoch."""
        order = Permutation(self._trained, self._seed, "pairs", epoch)
        begin = number * WINDOW
        count = min(WINDOW, self.steps_per_epoch - begin)
        span = range(begin * self._size, (begin + count) * self._size)
        rows = self.held.trained([order[at] for at in span])
        pieces = self._file.records(rows.tolist())["pieces"]
        rows = rows[np.argsort(pieces, kind="stable")]
        shuffled = generator(self._seed, "batches of pairs", epoch, number).permutation(count)
        return [rows[at * self._size : (at + 1) * self._size].tolist() for at in shuffled.tolist()]

    def _same_label(self, step: int, rows: list[int]) -> list[Pair]:
        """Return each of `rows` with another one of its label."""
        assert self.labels is not None
        partners = self.labels.draw(rows, generator(self._seed, "texts of a label", step))
        texts = [result[0] for result in self._file.read([*rows, *partners])]
        groups = self._file.records(rows)["label"].tolist()
        firsts, seconds = texts[: len(rows)], texts[len(rows) :]
        return [
            Pair(first, second, group=group)
            for first, second, group in zip(firsts, seconds, groups, strict=True)
        ]


class SameLabel:
    """Texts by their labels. Pairs are drawn when they are needed, because there may be as many as
    the square of the number of texts.

    Attributes:
        alike: the number of pairs of different texts with the same label.
        different: the number of pairs of texts with different labels.
    """

    def __init__(self, file: PairFile) -> None:
        labels = file.label_column()
        self._order = np.argsort(labels, kind="stable").astype(np.int32)
        self._labels = labels
        counts = np.bincount(labels, minlength=len(file.labels)).astype(np.int64)
        self._ends = np.cumsum(counts)
        self._counts = counts
        total = int(counts.sum())
        self.alike = int((counts * (counts - 1) // 2).sum())
        self.different = total * (total - 1) // 2 - self.alike

    def draw(self, rows: Sequence[int], draws: np.random.Generator) -> list[int]:
        """Draw, for each row, another one of its label; the row itself if there is no other."""
        labels = self._labels[np.asarray(rows)]
        counts = self._counts[labels]
        starts = self._ends[labels] - counts
        result = []
        for row, start, count in zip(rows, starts.tolist(), counts.tolist(), strict=True):
            own = self._order[start : start + count]
            at = int(draws.integers(max(1, count - 1)))
            # The texts of a label are in the order of their rows: skip the row itself.
            place = int(np.searchsorted(own, row))
            result.append(int(own[at + (at >= place)]) if count > 1 else int(row))
        return result
