"""Which examples a model finds hardest: the loss of each, and the worst of them.

A loss is the one that the task trains with, without dropout and class weights, so the numbers mean
what those of the training log mean; the highest ones are what has not been learned. Wrong labels
are often among them, where the model has not learned these by heart.
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
from bertine.inference.compute.running import Computing, run_features
from bertine.inference.ranking import ranked
from bertine.records.examples import Examples
from bertine.tasks.base import Features, Task
from bertine.tasks.worst import WorstExample
from bertine.text.tokenizer import Tokenizer

#: The file of the worst examples in a run's folder, and how many it holds.
WORST = "worst.json"
_KEPT = 20


def example_losses(
    model: Computing,
    task: Task[Any],
    features: Sequence[Features],
    *,
    pad_token_id: int,
    dtype: torch.dtype = torch.float32,
) -> list[float]:
    """The loss of each example, without dropout, class weights and gradients.

    In nats: cross-entropy of a text's class, of a choice among those of its example; binary
    cross-entropy, the mean over the labels; of tags, the mean over the words; of spans the mean
    of start and end. Of a regression the squared error in standard deviations of the training
    scores. An example that is read in several windows has their mean; a question the smallest of
    the windows that hold its answer, or, where none does, the mean of all.

    Args:
        model: on any device; put into evaluation mode and back into the mode it was in.
        features: of all the examples, in their order.
        pad_token_id: the tokenizer's ``[PAD]``.
        dtype: to compute in: bf16 (by autocast) or fp32.

    Returns:
        One for each example, in their order; nan where the label is not known.

    Raises:
        BertineError: a feature has an id or a length that the model has no parameters for.
    """
    outputs = run_features(model, task, features, pad_id=pad_token_id, dtype=dtype)
    return task.losses(outputs, features)


def worst_examples(
    model: Computing,
    task: Task[Any],
    examples: Examples[Any],
    tokenizer: Tokenizer,
    n: int,
    *,
    dtype: torch.dtype = torch.float32,
    features: Sequence[Features] | None = None,
) -> list[WorstExample]:
    """The `n` labelled examples with the highest loss, highest first; of equals the first.

    Args:
        features: of the examples, when they have been made before; None: they are made here.

    The other arguments are those of :func:`example_losses`.

    Raises:
        BertineError: an unknown label, or an input that does not fit the model.
    """
    return _computed(model, task, examples, tokenizer, n, dtype, features)[0]


def write_worst(
    folder: Path,
    model: Computing,
    task: Task[Any],
    examples: Examples[Any],
    tokenizer: Tokenizer,
    *,
    dtype: torch.dtype = torch.float32,
    features: Sequence[Features] | None = None,
) -> None:
    """Write the worst examples into a run's `folder`, as ``worst.json``: ``mean_loss`` and
    ``num_examples`` of all, and at most 20 under ``examples``, their texts cut at 400 characters.
    Nothing where there are no labelled examples.

    The arguments are those of :func:`worst_examples`.
    """
    worst, losses = _computed(model, task, examples, tokenizer, _KEPT, dtype, features)
    if not worst:
        return
    shown = [each.to_dict() for each in worst]
    mean = math.fsum(losses) / len(losses)
    write_json(folder / WORST, {"num_examples": len(losses), "mean_loss": mean, "examples": shown})


def worst_of(
    task: Task[Any],
    examples: Examples[Any],
    features: Sequence[Features],
    outputs: Sequence[np.ndarray],
    n: int,
) -> tuple[list[WorstExample], list[float]]:
    """The `n` worst of the labelled examples, by the model's `outputs` for their `features`, and
    the losses of all of them, highest first."""
    answers = task.decode(outputs, features)
    # The first column of a file of predictions is the answer itself.
    value, *_ = task.output_columns(False).values()
    values = [value(answer) for answer in answers]
    return ranked(task.name, examples, task.losses(outputs, features), answers, values, n)


def _computed(
    model: Computing,
    task: Task[Any],
    examples: Examples[Any],
    tokenizer: Tokenizer,
    n: int,
    dtype: torch.dtype,
    features: Sequence[Features] | None,
) -> tuple[list[WorstExample], list[float]]:
    answering = Answering(model, task, tokenizer, dtype)
    features = answering.prepare(examples, features).features
    return worst_of(task, examples, features, answering.compute(features), n)
