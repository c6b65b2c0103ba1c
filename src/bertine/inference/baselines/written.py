"""The baseline of texts that are written: the beginning of the text that is read."""

from __future__ import annotations

import statistics
from typing import Any

from bertine.inference.baselines.texts import Answers
from bertine.records.examples import Examples
from bertine.tasks.seq2seq.task import WrittenText


def first_words(train: Examples[Any]) -> Answers:
    """Answer with as many of the first words as the texts to write in training have, in the
    middle."""
    lengths = [len(item.label.split()) for item in train.items if item.label is not None]
    count = max(1, int(statistics.median(lengths))) if lengths else 1
    return lambda examples: [
        WrittenText(" ".join(" ".join(item.texts).split()[:count])) for item in examples.items
    ]
