"""Count what a served model answers, to compare it with the texts of its training."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import nan
from threading import Lock

import numpy as np

from bertine.core.rng import generator
from bertine.inference.predictor import Predictor, PreparedExamples
from bertine.tasks.base import Features
from bertine.tasks.calibration import LEAST_EXAMPLES
from bertine.tasks.drift import Drift, Reference, Sketch

#: The share of batches whose texts are counted: with vectors of texts, whose last layer is computed
#: for all tokens, an answer takes up to a fifth longer.
_SHARE = 1 / 8


class Watch:
    """The counts of one model; no text is kept, and the memory does not grow.

    Attributes:
        sketch: the counts since the start.
    """

    def __init__(self, predictor: Predictor, held: Reference) -> None:
        self.labels, self.sketch = predictor.labels, Sketch(held)
        self._plain = predictor
        self._reading = predictor._with(familiarity=held.reader.familiarity)
        self._held, self._lock = held, Lock()
        self._draw = generator(0, "batches that are counted")
        held.right(self.sketch.cells)  # fits once what would delay the first scrape

    def compute_batch(self, features: Sequence[Features]) -> list[np.ndarray]:
        """Compute the outputs of a batch, of a drawn share of batches with vectors; of all where an
        answer must have the same bits each time."""
        reads = self._plain.batch_invariant or self._draw.random() < _SHARE
        return (self._reading if reads else self._plain).compute_batch(features)

    def add(self, prepared: PreparedExamples, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Count the texts whose outputs have vectors; return the outputs without them, unless the
        answers need them."""
        count = len(self.labels)
        pairs = list(zip(prepared.features, outputs, strict=True))
        without = {feature.row for feature, output in pairs if len(output) == count}
        read = [(feature, output) for feature, output in pairs if feature.row not in without]
        if read:
            rows = dict.fromkeys(feature.row for feature, _ in read)
            texts = [prepared.examples.items[row].texts[0] for row in rows]
            features, wide = zip(*read, strict=True)
            readings = self._held.reader.read(wide, features, texts)
            with self._lock:
                self.sketch.add(readings)
        needed = self._plain.task.answering is not self._plain.task
        return [output if needed else output[:count] for output in outputs]

    def enough(self) -> Sketch | None:
        """Return a copy of the counts; None: they are of fewer than 50 texts."""
        with self._lock:
            sketch = copy(self.sketch)  # whose arrays are replaced, not changed
        return sketch if sketch.cells.sum() >= LEAST_EXAMPLES else None

    def compare(self) -> Drift | None:
        """Compare the texts so far with those of the training; None: they are fewer than 50."""
        sketch = self.enough()
        return sketch.compare() if sketch else None

    def accuracy(self) -> float:
        """Return the estimated accuracy; NaN: there are fewer than 50 texts."""
        sketch = self.enough()
        return sketch.accuracy() if sketch else nan
