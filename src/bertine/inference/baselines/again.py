"""The baselines of a trained model on other examples: fitted again on its training file, if that is
still there and unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bertine.datasets.readers import Sets
from bertine.errors import BertineError
from bertine.inference.baselines.frozen import FrozenEncoder, pooling_of
from bertine.inference.baselines.measure import measure_baselines
from bertine.inference.training_again import training_examples_again
from bertine.modeldir import load_model
from bertine.tasks.base import Task
from bertine.tasks.baseline_scores import BaselineScore


def baselines_again(
    task: Task[Any],
    facts: Mapping[str, Any],
    sets: Sets,
    dtype: torch.dtype,
    device: torch.device,
) -> list[BaselineScore]:
    """Return the scores of the baselines on `sets`.

    Args:
        task: of the model.
        facts: of its training, as ``bertine.json`` tells them.
        sets: labelled examples, by the word before the names of their metrics.
        dtype: that vectors are computed in.
        device: that they are computed on.

    Raises:
        BertineError: the training examples are not available: they were given in memory, their
            file is gone or has changed since, or the model was trained elsewhere.
    """
    train = training_examples_again(task.name, facts)
    return measure_baselines(task, train, sets, _encoder(task, facts, dtype, device))


def _encoder(
    task: Task[Any], facts: Mapping[str, Any], dtype: torch.dtype, device: torch.device
) -> FrozenEncoder | None:
    """Return the model that the training began with; None where it is no longer there."""
    start = facts.get("model_path")
    if not isinstance(start, str) or facts.get("fresh_weights"):
        return None
    try:
        loaded = load_model(start, heads={})
        return FrozenEncoder(
            loaded.model.to(device), loaded.tokenizer, task.max_length, pooling_of(start), dtype
        )
    except BertineError:
        return None
