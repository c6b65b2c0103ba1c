"""Batches of labelled texts, of which every two are a pair to learn from.

A batch takes two texts of one label, two of the next, and so on round all labels, each label's
texts in an order of its own that is drawn anew when it has come to its end. So a batch has pairs
that are alike, however many labels there are, and rare labels are met as often as frequent ones.
What is in a batch is a function of (labels, seed, step) alone.

Shape legend: N examples, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bertine.data.batch import Batch
from bertine.rng import generator

#: Texts of a label that are taken together.
TOGETHER = 2


class LabelBatches:
    """The batches of contrastive training.

    Args:
        features: of N inputs.
        chosen: bool [N, K], the labels of each; those without any count as a label of their own.
        collate: a task's, closed over the padding id: features → batch.
        batch_size: texts in a batch; one that is drawn twice is taken once, so that with few texts
            a batch is smaller.
        seed: of what is drawn.
    """

    def __init__(
        self,
        features: Sequence[Any],
        chosen: np.ndarray,
        collate: Callable[[Sequence[Any]], Batch],
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self._features, self._collate = features, collate
        self.batch_size, self.seed = batch_size, seed
        columns = [*chosen.T.astype(bool), ~chosen.astype(bool).any(1)]
        self._members = [found for column in columns if len(found := np.flatnonzero(column))]
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def batch(self, step: int) -> Batch:
        """Return the batch of `step`, counted from 0."""
        return self._collate([self._features[number] for number in self.rows(step)])

    def rows(self, step: int) -> list[int]:
        """Return the numbers of the inputs in the batch of `step`, each once."""
        visits = -(-self.batch_size // TOGETHER)
        found: dict[int, None] = {}
        for visit in range(step * visits, (step + 1) * visits):
            round_of_labels, place = divmod(visit, len(self._members))
            label = int(self._order(-1, round_of_labels, len(self._members))[place])
            own = self._members[label]
            for at in range(TOGETHER * round_of_labels, TOGETHER * (round_of_labels + 1)):
                turn, within = divmod(at, len(own))
                found[int(own[self._order(label, turn, len(own))[within]])] = None
        return list(found)[: self.batch_size]

    def _order(self, label: int, turn: int, count: int) -> np.ndarray:
        """Return the order of a label's texts in a turn through them; of label -1 that of the
        labels. The latest of each is kept."""
        known = self._orders.get((label, turn))
        if known is None:
            # The turn before may be asked for once more, by the batch that ends in this one.
            self._orders.pop((label, turn - 2), None)
            draw = generator(self.seed, "contrastive order", label + 1, turn)
            known = self._orders[label, turn] = draw.permutation(count)
        return known
