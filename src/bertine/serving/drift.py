"""Count what a served model answers, to compare it with the texts of its training."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from threading import Lock
from typing import Any

import numpy as np

from bertine.inference.predictor import Predictor, PreparedExamples
from bertine.tasks.calibration import LEAST_EXAMPLES
from bertine.tasks.classification import TextClassification
from bertine.tasks.drift import Readings, Reference, Sketch
from bertine.tasks.familiarity import Familiarity

#: A report is made anew after this share of further texts.
_GROWN = 0.01


class Watch:
    """The counts of one model; no text is kept, and the memory does not grow.

    Attributes:
        predictor: the model, whose outputs have the vectors that are read.
        sketch: the counts since the start.
    """

    def __init__(self, predictor: Predictor, familiarity: Familiarity, held: Reference) -> None:
        self.predictor = predictor._with(familiarity=familiarity)
        self.sketch = Sketch.empty(len(predictor.labels))
        self._familiarity, self._held = familiarity, held
        self._lock, self._last = Lock(), (0, dict[str, Any]())

    @classmethod
    def of(cls, predictor: Predictor) -> Watch | None:
        """Return the watch of a model; None: it has no record to compare with."""
        task, facts = predictor.task, predictor.training
        if not isinstance(task, TextClassification) or len(task.text_columns) != 1:
            return None
        width = predictor.model.config.hidden_size
        familiarity = Familiarity.from_facts(facts.get("familiarity"), width)
        held = Reference.from_facts(facts.get("drift"), len(task.labels))
        return None if familiarity is None or held is None else cls(predictor, familiarity, held)

    @property
    def texts(self) -> int:
        """The number of texts so far."""
        return self.sketch.texts

    def add(self, prepared: PreparedExamples, outputs: Sequence[np.ndarray]) -> None:
        """Count texts, by the outputs of :attr:`predictor`."""
        readings = Readings.of(
            self._familiarity,
            outputs,
            prepared.features,
            [item.texts[0] for item in prepared.examples.items],
            len(self.sketch.labels),
            self.predictor.tokenizer.template.added(),
        )
        with self._lock:
            self.sketch.add(self._held, readings)

    def accuracy(self) -> float:
        """Return the estimated accuracy; NaN: fewer than 50 texts."""
        if self.texts < LEAST_EXAMPLES:
            return nan
        cells = self.sketch.cells.copy()
        return float(cells @ self._held.right(cells)[0] / cells.sum())

    def report(self) -> dict[str, Any] | None:
        """Return the comparison as JSON, anew where there are 1% more texts than in the last; None:
        fewer than 50 texts."""
        with self._lock:
            sketch = Sketch(
                self.sketch.cells.copy(), self.sketch.labels.copy(), self.sketch.unfamiliar
            )
        texts, report = self._last
        if sketch.texts < LEAST_EXAMPLES:
            return None
        if sketch.texts > (1 + _GROWN) * texts:
            report = self._held.compare(sketch, self.predictor.labels).to_dict()
            self._last = sketch.texts, report
        return report
