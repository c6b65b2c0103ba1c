"""Find the examples that a model has the highest loss on.

A loss is the one that the task trains with, without dropout and class weights, so the numbers mean
what those of the training log mean; the highest ones are what has not been learned. Wrong labels
are often among them, where the model has not learned these by heart.

In nats: cross-entropy of a text's class, of a choice among those of its example; binary
cross-entropy, the mean over the labels; of tags, the mean over the words; of spans the mean of
start and end. Of a regression the squared error in standard deviations of the training scores. An
example that is read in several windows has their mean; a question the smallest of the windows that
hold its answer, or, where none does, the mean of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertine.files import write_json
from bertine.inference.answering import Answering
from bertine.inference.compute.running import Computing
from bertine.inference.ranking import ranked
from bertine.records.examples import Examples
from bertine.tasks.base import Task
from bertine.tasks.features import Features
from bertine.tasks.worst import WorstExample
from bertine.text.tokenizer import Tokenizer

#: The file of the worst examples in a run's folder, and how many it holds.
WORST = "worst.json"
_KEPT = 20


def worst_examples(
    model: Computing,
    task: Task[Any],
    examples: Examples[Any],
    tokenizer: Tokenizer,
    n: int,
    *,
    dtype: torch.dtype = torch.float32,
    features: Sequence[Features] | None = None,
) -> tuple[list[WorstExample], list[float]]:
    """Compute the `n` labelled examples with the highest loss, highest first (of equals the first),
    and the losses of all of them, highest first.

    Args:
        model: on any device, or an engine; put into evaluation mode and back into the mode it was
            in.
        dtype: to compute in: bf16 (by autocast) or fp32.
        features: of the examples, when they have been made before; None: they are made here.

    Raises:
        BertineError: an unknown label, or an input that does not fit the model.
    """
    answering = Answering(model, task, tokenizer, dtype)
    features = answering.prepare(examples, features).features
    return worst_of(task, examples, features, answering.compute(features), n)


def write_worst(
    folder: Path,
    task: Task[Any],
    examples: Examples[Any],
    features: Sequence[Features],
    outputs: Sequence[np.ndarray],
) -> list[WorstExample]:
    """Write the worst examples into a run's `folder`, as ``worst.json``: ``mean_loss`` and
    ``num_examples`` of all, and at most 20 under ``examples``, their texts cut at 400 characters.
    Nothing where there are no labelled examples.

    The other arguments are those of :func:`worst_of`.

    Returns:
        What was written, the texts whole.
    """
    worst, losses = worst_of(task, examples, features, outputs, _KEPT)
    if not worst:
        return []
    shown = [each.to_dict() for each in worst]
    mean = math.fsum(losses) / len(losses)
    write_json(folder / WORST, {"num_examples": len(losses), "mean_loss": mean, "examples": shown})
    return worst


def worst_of(
    task: Task[Any],
    examples: Examples[Any],
    features: Sequence[Features],
    outputs: Sequence[np.ndarray],
    n: int,
) -> tuple[list[WorstExample], list[float]]:
    """Rank labelled examples by the model's `outputs` for their `features`: the `n` worst, and the
    losses of all of them, highest first."""
    answers = task.decode(outputs, features)
    # The first column of a file of predictions is the answer itself.
    value, *_ = task.output_columns(False).values()
    values = [value(answer) for answer in answers]
    return ranked(task.name, examples, task.losses(outputs, features), answers, values, n)
