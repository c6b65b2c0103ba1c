"""Compute the loss of each example from a model's outputs; a log's mean loss is their mean.

In fp64, and in nats where it is a cross-entropy. An example without a target (its label is not
known) has none: nan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from bertine.tasks.features import Features, by_example

#: What an example without a target has for a loss.
NONE = float("nan")


def cross_entropies(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Compute ``-log softmax(logits)[target]`` of each row: fp64 [n].

    Args:
        logits: [n, K]; -inf for what cannot be.
        targets: int [n].
    """
    table = np.asarray(logits, dtype=np.float64)
    top = table.max(-1, keepdims=True)
    whole = top[:, 0] + np.log(np.exp(table - top).sum(-1))
    rows = np.arange(len(table))
    return np.asarray(whole - table[rows, np.asarray(targets, dtype=np.int64)])


def cross_entropy(logits: np.ndarray, target: int) -> float:
    """Compute the cross-entropy of one row of logits [K]."""
    return float(cross_entropies(logits[None], np.array([target]))[0])


def binary_cross_entropies(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Compute the loss of the sigmoid of each logit against its target, 0 or 1: fp64, in the shape
    of both."""
    table = np.asarray(logits, dtype=np.float64)
    wanted = np.asarray(targets, dtype=np.float64)
    return np.asarray(np.logaddexp(0.0, table) - wanted * table)


def label_entropy(labels: Iterable[str | None]) -> float | None:
    """Compute the entropy of the frequencies of `labels`, in nats; None where all are alike."""
    counts = Counter(labels)
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values()) or None


def of_examples(losses: Sequence[float], features: Sequence[Features]) -> list[float]:
    """Turn the losses of features into one for each example: the mean over its windows."""
    return [float(np.mean(of_windows)) for of_windows, _ in by_example(losses, features)]
