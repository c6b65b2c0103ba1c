"""Count what a served model answers, to compare it with the texts of its training."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import nan
from threading import Lock

import numpy as np

from bertine.inference.predictor import Predictor, PreparedExamples
from bertine.tasks.calibration import LEAST_EXAMPLES
from bertine.tasks.drift import Drift, Reference, Sketch


class Watch:
    """The counts of one model; no text is kept, and the memory does not grow.

    Attributes:
        predictor: the model, whose outputs have the vectors that are read.
        sketch: the counts since the start.
    """

    def __init__(self, predictor: Predictor, held: Reference) -> None:
        self.predictor = predictor._with(familiarity=held.reader.familiarity)
        self.sketch = Sketch(held)
        self._held, self._lock = held, Lock()

    def add(self, prepared: PreparedExamples, outputs: Sequence[np.ndarray]) -> None:
        """Count texts, by the outputs of :attr:`predictor`."""
        texts = [item.texts[0] for item in prepared.examples.items]
        readings = self._held.reader.read(outputs, prepared.features, texts)
        with self._lock:
            self.sketch.add(readings)

    def compare(self) -> Drift | None:
        """Compare the texts so far with those of the training; None: they are fewer than 50."""
        with self._lock:
            sketch = copy(self.sketch)  # whose arrays are replaced, not changed
        return sketch.compare() if sketch.cells.sum() >= LEAST_EXAMPLES else None

    def accuracy(self) -> float:
        """Return the estimated accuracy; NaN: there are fewer than 50 texts."""
        drift = self.compare()
        return nan if drift is None else drift.accuracy
