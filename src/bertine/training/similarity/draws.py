"""Which pairs a step has: a function of the step, the rows being on disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertine.data.batching import WINDOW
from bertine.names import PairKind
from bertine.rng import Permutation, generator
from bertine.training.similarity.holding_out import HeldOut
from bertine.training.similarity.mining import MinedNegatives
from bertine.training.similarity.objective import Pair
from bertine.training.similarity.pair_file import PairFile


class PairDraws:
    """The pairs of each step: every row of training once an epoch, those of like length together
    (sorted within windows of :data:`~bertine.data.batching.WINDOW` batches). The last rows of an
    epoch that are no whole batch are left out of it; others are in the next.

    Args:
        file: the rows, open.
        kind: what they are.
        batch_size: pairs of a step.
        seed: of the order.
        held: the rows that are not trained on.
        mined: further negatives; None: there are none.

    Attributes:
        batch_size: as it is, where there are fewer rows than were asked for.
        steps_per_epoch: at least 1.
        held: the rows that are not trained on.
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
        rows = self._rows(step)
        if self.labels is not None:
            return self._same_label(step, rows)
        records = self._file.records(rows)
        wrong = [[] for _ in rows] if self._mined is None else self._mined.of(rows)
        pairs = []
        for record, texts, more in zip(records, self._file.read(rows), wrong, strict=True):
            first, second = (texts[0], texts[0]) if len(texts) == 1 else texts[:2]
            # What is mined has the texts of other rows: their second one does not match here.
            negatives = [*texts[2:], *(found[1] for found in self._file.read(more))]
            score = None
            if not np.isnan(record["score"]):
                score = (float(record["score"]) - self._low) / self._spread
            pairs.append(Pair(first, second, tuple(negatives), score))
        return pairs

    def _rows(self, step: int) -> list[int]:
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
        texts = [found[0] for found in self._file.read([*rows, *partners])]
        groups = self._file.records(rows)["label"].tolist()
        firsts, seconds = texts[: len(rows)], texts[len(rows) :]
        return [
            Pair(first, second, group=group)
            for first, second, group in zip(firsts, seconds, groups, strict=True)
        ]


class SameLabel:
    """Texts by their labels, of which pairs are drawn when they are needed: there may be as many as
    the square of the texts.

    Attributes:
        alike: pairs of different texts with the same label.
        different: pairs of texts with different labels.
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
        """Draw for each row another one of its label; itself, where there is no other."""
        labels = self._labels[np.asarray(rows)]
        counts = self._counts[labels]
        starts = self._ends[labels] - counts
        found = []
        for row, start, count in zip(rows, starts.tolist(), counts.tolist(), strict=True):
            own = self._order[start : start + count]
            at = int(draws.integers(max(1, count - 1)))
            # The texts of a label are in the order of their rows: step over the row itself.
            place = int(np.searchsorted(own, row))
            found.append(int(own[at + (at >= place)]) if count > 1 else int(row))
        return found
