"""The training loss of the best answer that does not look at the text.

A model whose loss stays there has learned the label frequencies and nothing else, whatever the
task: the diagnosis of a run compares with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bertine.records.examples import Examples
from bertine.records.label_sets import JOINT
from bertine.tasks.base import Features, Task
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.spans.windows import SpanFeatures
from bertine.tasks.tagging.task import Tagging
from bertine.tasks.texts.classification import TextClassification
from bertine.tasks.texts.multi_label import MultiLabel
from bertine.tasks.texts.regression import TextRegression


def constant_loss(
    task: Task[Any], examples: Examples[Any], features: Sequence[Features]
) -> float | None:
    """The loss of a constant answer on the training examples, in the unit of the training log.

    Cross-entropies are in nats: for classes and tags the entropy of their frequencies (the log of
    their number where `task` weighs them alike), for many labels the mean entropy of each, for
    choices the log of how many an example has, for spans the log of how many places a window has.
    The squared error of standardized scores is 1.

    Returns:
        None where the focal loss is used, or the task is of another kind.
    """
    if getattr(task, "focal_gamma", 0.0):
        return None
    items = examples.items
    weighted = getattr(task, "class_weights", None) is not None
    if isinstance(task, TextRegression):
        return 1.0
    if isinstance(task, TextClassification):
        found = entropy(item.label for item in items)
        return math.log(max(2, len(task.labels))) if weighted else found
    if isinstance(task, MultiLabel):
        return math.log(2) if weighted else _mean_of_labels(task, [i.label or "" for i in items])
    if isinstance(task, Tagging):
        return entropy(tag for item in items for tag in item.tags or ())
    if isinstance(task, MultipleChoice):
        sizes = Counter(feature.group for feature in features)
        return sum(map(math.log, sizes.values())) / max(1, len(sizes)) or None
    windows = [feature for feature in features if isinstance(feature, SpanFeatures)]
    if windows:
        return sum(math.log(1 + len(window.offsets)) for window in windows) / len(windows)
    return None


def entropy(labels: Iterable[str | None]) -> float | None:
    """The entropy of the frequencies of `labels`, in nats; None where all are alike."""
    counts = Counter(labels)
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values()) or None


def _mean_of_labels(task: MultiLabel, given: Sequence[str]) -> float | None:
    """The mean over the labels of the entropy of whether an example has it."""
    counts = Counter(label for labels in given for label in labels.split(JOINT) if labels)
    entropies = []
    for label in task.labels:
        share = counts[label] / len(given)
        entropies.append(-sum(p * math.log(p) for p in (share, 1 - share) if p > 0))
    return sum(entropies) / len(entropies) if any(entropies) else None
