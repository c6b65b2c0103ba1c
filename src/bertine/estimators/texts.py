"""Check what an estimator takes: texts, or pairs of them, and a label for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from bertine.errors import BertineError
from bertine.terminal.console import counted

#: NumPy's type for an array of texts and a NaN, which it turns into the text "nan".
_TEXTS_WITH_A_NAN = np.dtype("<U32")


class InputError(BertineError, ValueError):
    """An error for texts or labels that an estimator cannot take: scikit-learn's callers expect a
    ValueError."""


def texts_of(X: Any) -> list[tuple[str, ...]]:
    """Return N texts as tuples of one, N pairs as tuples of two.

    Args:
        X: a list, array or Series of N strings, or of shape [N, 1] or [N, 2].

    Raises:
        InputError: `X` has another shape, or holds something else than strings.
    """
    if isinstance(X, str):
        raise InputError("X is one text; put it in a list")
    try:
        table = np.asarray(X, dtype=object)
    except ValueError as error:
        raise InputError(f"X must be N texts or N pairs of texts: {error}") from error
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or (len(table) and table.shape[1] not in (1, 2)):
        raise InputError(
            f"X has the shape {np.shape(table)}, but must be N texts, [N], or N pairs, [N, 2]"
        )
    rows = [tuple(row) for row in table.tolist()]
    for number, row in enumerate(rows):
        for text in row:
            if not isinstance(text, str):
                raise InputError(
                    f"X[{number}] holds {text!r}, of type {type(text).__name__}; this estimator "
                    "takes texts (str)"
                )
    return rows


def labels_of(y: Any, count: int) -> np.ndarray:
    """Return `y` as [N], a label for each of `count` texts.

    Raises:
        InputError: there are not as many labels as texts; one is missing, not finite, or of another
            type than the first.
    """
    try:
        # As objects: NumPy would make texts of what stands among texts, "nan" of a missing label.
        given = column_or_1d(y if isinstance(y, np.ndarray) else np.asarray(y, object), warn=True)
        labels = column_or_1d(y)
    except ValueError as error:
        raise InputError(f"y must be N labels: {error}") from error
    if len(labels) != count:
        raise InputError(
            f"X has {counted(count, 'text')}, but y has {counted(len(labels), 'label')}"
        )
    values = given.tolist()
    if labels.dtype == _TEXTS_WITH_A_NAN:
        values = [None if value == "nan" else value for value in values]
    missing = [row for row, label in enumerate(values) if _is_missing(label)]
    if missing:
        raise InputError(
            f"y[{missing[0]}] is missing (NaN, NA, None or an empty text); every text needs a label"
        )
    kinds = [_kind(value) for value in values]
    for row, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise InputError(
                f"y mixes {kinds[0]} (y[0] is {_shown(values[0])}) and {kind} (y[{row}] is "
                f"{_shown(values[row])}); make all labels of one type"
            )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("y holds an infinity; it must be finite")
    if labels.dtype.kind == "f" and all(isinstance(value, bool | int) for value in values):
        # Columns of pandas that may have gaps (Int64, boolean), which NumPy takes for floats.
        labels = np.asarray(values)
    return labels


def weights_of(sample_weight: Any, count: int) -> np.ndarray:
    """Return how much each of `count` texts counts in the loss: fp64 [N]; None: all the same.

    Raises:
        InputError: there are not as many weights as texts; one is no number, negative or not
            finite; fewer than two are above 0.
    """
    if sample_weight is None:
        return np.ones(count)
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be N numbers: {error}") from error
    if weights.ndim == 0:
        weights = np.full(count, weights)
    if weights.shape != (count,):
        raise InputError(
            f"X has {counted(count, 'text')}, but sample_weight has the shape {weights.shape}"
        )
    for row, weight in enumerate(weights.tolist()):
        if not 0 <= weight < np.inf:
            raise InputError(
                f"sample_weight[{row}] is {weight:g}, but must be a finite number, 0 or more"
            )
    if (some := int(np.count_nonzero(weights))) < 2:
        raise InputError(
            f"sample_weight is zero but for {counted(some, 'text')}; fit needs 2 texts or more"
        )
    return weights / weights.max()


def _kind(label: Any) -> str:
    """Return what a label is, in the plural."""
    if isinstance(label, bool | np.bool_):
        return "truth values"
    if isinstance(label, int | float | np.number):
        return "numbers"
    return "texts" if isinstance(label, str) else f"values of type {type(label).__name__}"


def _shown(label: Any) -> str:
    return f"{label!r:.40}"


def _is_missing(label: Any) -> bool:
    """Return whether it is None, NaN, an empty text, or the NA of pandas, which is equal to nothing
    and unequal to nothing either: it raises a TypeError when asked."""
    if isinstance(label, str):
        return not label.strip()
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True
