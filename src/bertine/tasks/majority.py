"""The most frequent label of the training examples: what answering without reading would say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bertine.records.examples import Examples
from bertine.tasks.choice import MultipleChoice
from bertine.tasks.texts.classification import TextClassification

#: Its key among the facts of the training in a model directory.
MAJORITY = "training_majority"


def majority_of(task: Any, train: Examples[Any]) -> str | None:
    """Name the most frequent label of `train`, of equals the first in the task's order, as the
    baseline "majority" does; None for a task whose answers are not one of several labels."""
    if isinstance(task, TextClassification):
        counts = Counter(item.label for item in train.items)
        return max(task.labels, key=lambda label: counts[label])
    if isinstance(task, MultipleChoice):
        places = Counter(task.right_of(item, train.source) for item in train.items)
        most = max(range(len(task.choice_columns)), key=lambda place: places[place])
        return task.label_of(most)
    return None
