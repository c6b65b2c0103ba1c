"""Read again the examples that a model was trained on, if their file is still there and
unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertine.datasets.labelled import read_labelled
from bertine.datasets.reading import Reading
from bertine.errors import BertineError
from bertine.records.examples import Examples
from bertine.records.known_rows import rows_in_facts


def training_examples_again(task: str, facts: Mapping[str, Any]) -> Examples[Any]:
    """Return the training examples of a model.

    Args:
        task: of the model, where the facts do not name it.
        facts: of its training, as ``bertine.json`` tells them.

    Raises:
        BertineError: the training examples are not available: they were given in memory, their
            file is gone or has changed since, or the model was trained elsewhere.
    """
    path, fingerprint = facts.get("data_path"), facts.get("examples_fingerprint")
    if not isinstance(path, str) or not isinstance(fingerprint, str):
        raise BertineError("the model directory does not tell what it was trained on")
    if not Path(path).exists():
        raise BertineError(f"{path}: the training data are no longer there")
    kind, _, part = str(facts.get("task", task)).partition("/")
    reading = Reading.from_facts(facts.get("reading") or {})
    if kind == "glue":
        reading = Reading.from_facts({**(facts.get("reading") or {}), "glue_task": part})
    seed = facts.get("seed")
    seed = seed if isinstance(seed, int) else 0
    reading = dataclasses.replace(reading, known=rows_in_facts(facts)[1])
    train = read_labelled(kind, path, seed=seed, reading=reading).train
    if train.fingerprint() != fingerprint:
        raise BertineError(f"{path}: the training data have changed since")
    return train
