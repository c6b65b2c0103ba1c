"""Count what a served model answers, to compare it with the texts of its training."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import nan
from threading import Lock

import numpy as np

from bertine.inference.predictor import Predictor, PreparedExamples
from bertine.tasks.base import Features
from bertine.tasks.calibration import LEAST_EXAMPLES
from bertine.tasks.drift import Drift, Reference, Sketch


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
        held.right(self.sketch.cells)  # fits once what would delay the first scrape

    def compute_batch(self, features: Sequence[Features]) -> list[np.ndarray]:
        """Compute the outputs of a batch, with vectors."""
        return self._reading.compute_batch(features)

    def add(self, prepared: PreparedExamples, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Count texts; return their outputs without vectors, unless the answers need them."""
        texts = [item.texts[0] for item in prepared.examples.items]
        pairs = zip(prepared.features, outputs, strict=True)
        if read := [(one, output) for one, output in pairs if texts[one.row].strip()]:
            features, wide = zip(*read, strict=True)
            rows = dict.fromkeys(feature.row for feature in features)
            readings = self._held.reader.read(wide, features, [texts[row] for row in rows])
            with self._lock:
                self.sketch.add(readings)
        needed = self._plain.task.answering is not self._plain.task
        return [output if needed else output[: len(self.labels)] for output in outputs]

    def enough(self) -> Sketch | None:
        """Return a copy of the counts; None: they are of fewer than 50 texts."""
        with self._lock:
            sketch = copy(self.sketch)  # whose arrays are replaced, not changed
        return sketch if sketch.cells.sum() >= LEAST_EXAMPLES else None

    def compare(self) -> Drift | None:
        """Compare the texts so far with those of the training; None: they are fewer than 50."""
        return sketch.compare() if (sketch := self.enough()) else None

    def accuracy(self) -> float:
        """Return the estimated accuracy; NaN: there are fewer than 50 texts."""
        return sketch.accuracy() if (sketch := self.enough()) else nan
