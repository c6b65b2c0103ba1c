"""Count the validation examples that a teacher was trained on: its score on them says little about
new texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from bertine.datasets.data_look import text_key
from bertine.datasets.partly_labelled import PartlyLabelled
from bertine.errors import BertineError
from bertine.inference.seen_in_training import trained_part
from bertine.inference.training_again import training_examples_again
from bertine.records.examples import Examples

#: From this share of the validation examples on it is worth a word: single texts come twice in many
#: files.
_SHARE = 0.05


def seen_by_teacher(task: str, facts: Mapping[str, Any], data: PartlyLabelled) -> int:
    """Count the validation examples whose texts are among those that a model was trained on; 0 of
    few, and where it is not known.

    The file that it was trained on is read again, if it is still there and unchanged; else its
    examples may be some of `data`, as their fingerprint tells.

    Args:
        task: of the model.
        facts: of its training, as ``bertine.json`` tells them.
        data: what its student learns from and is judged on.
    """
    items = data.validation.items
    try:
        known: Examples[Any] | None = training_examples_again(task, facts)
    except BertineError:
        parts = (trained_part(facts, examples) for examples in _orders(data))
        known = next((part for part in parts if part is not None), None)
    if known is None:
        return 0
    texts = {text_key(item) for item in known.items}
    seen = sum(text_key(item) in texts for item in items)
    return seen if seen > _SHARE * len(items) else 0


def _orders(data: PartlyLabelled) -> Iterator[Examples[Any]]:
    """Yield the examples as their files may have been given to the teacher's training: a file
    whole, or its rows with a label."""
    held, train = set(data.held_out), iter(data.train.items)
    validation = iter(data.validation.items if held else [])
    count = len(data.train) + len(held)
    whole = [next(validation if row in held else train) for row in range(count)]
    for items in (whole, data.validation.items):
        examples = dataclasses.replace(data.train, items=items)
        yield examples
        labelled = [item for item in items if item.label is not None]
        if 0 < len(labelled) < len(items):
            yield dataclasses.replace(examples, items=labelled)


def seen_line(seen: int, judged: int) -> str:
    """Say that a teacher was trained on so many of the validation examples."""
    which = f"these {judged:,}" if seen == judged else f"{seen:,} of these {judged:,}"
    return (
        f"the teacher was trained on {which} validation examples: its score on them says little "
        "about new texts, and the student's share of it as little"
    )
