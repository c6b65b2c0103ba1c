"""What estimators of scikit-learn's are fitted to: arrays of many kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils.multiclass import check_classification_targets

from bertine.core.errors import BertineError
from bertine.data.examples import Example, Examples
from bertine.datasets.check import names_of_labels
from bertine.estimators import BertClassifier
from bertine.tasks.classification import TextClassification
from mistakes.odd.label_types import NATURAL, OWN, STRAY, TYPES, alike_or_renamed
from mistakes.odd_files import Answer, Case


class Series:
    """As much of a pandas Series as scikit-learn and NumPy use."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = _objects(values)
        self.shape, self.dtype, self.ndim = self._values.shape, self._values.dtype, 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._values, dtype)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Any:
        return iter(self._values)

    def __getitem__(self, at: Any) -> Any:
        return self._values[at]


def _objects(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


#: What an estimator is given as `y`, or, of texts, as `X`.
ARRAYS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "array of objects": _objects,
    "Series": Series,
    "column": lambda values: _objects(values)[:, None],
    "row": lambda values: _objects(values)[None],
    "generator": lambda values: (v for v in values),
    "dictionary": lambda values: dict(enumerate(values)),
    "arrow": pa.array,
    "array of texts": lambda values: np.array([str(value) for value in values]),
    "list of lists": lambda values: [[value] for value in values],
}


def draw_fitted(draw: Random) -> Case:
    """Draw what a classifier of scikit-learn's is fitted to."""
    kind = draw.choice([*TYPES])
    names, values = TYPES[kind]
    of_texts, of_labels = (draw.choice([*ARRAYS]) for _ in range(2))
    texts = [f"the text {number}" for number in range(12)]
    chosen = [number % len(names) for number in range(12)]
    labels: list[Any] = [values[at] for at in chosen]
    stray = draw.choice([*STRAY]) if kind in NATURAL and draw.random() < 0.5 else ""
    if stray:
        labels[4] = STRAY[stray](labels[4], names[chosen[4]])
    clean = list(zip(texts, [names[at] for at in chosen], strict=True))
    if stray in OWN:
        clean[4] = (texts[4], OWN[stray])
    choices = {
        "kind": f"fitted, {stray or kind}",
        "labels": kind,
        "stray": stray,
        "X": of_texts,
        "y": of_labels,
    }

    def read() -> Answer:
        try:
            given, y = BertClassifier("model")._checked(
                ARRAYS[of_texts](texts), ARRAYS[of_labels](labels)
            )
            check_classification_targets(y)
        except (ValueError, TypeError, pa.ArrowException) as error:  # as scikit-learn wants them
            raise BertineError(str(error)) from error
        found = [str(label) for label in np.asarray(y).tolist()]
        rows = [
            Example(each, label, n)
            for n, (each, label) in enumerate(zip(given, found, strict=True))
        ]
        train = Examples("X", ("text",), "label", rows)
        notes = names_of_labels(TextClassification, train)  # as `fit` says
        return Answer(([(row.texts[0], row.label) for row in rows], None), notes)

    return Case(choices, read, clean, alike_or_renamed)
