"""Scoring a model on labelled examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from bertine.inference.compute.running import Computing, run_features
from bertine.inference.losses import worst_of
from bertine.records.examples import Examples
from bertine.tasks.base import Features, Report, Task
from bertine.tasks.worst import WorstExamples
from bertine.text.tokenizer import Tokenizer

Prediction = TypeVar("Prediction")


def evaluate_examples(
    model: Computing,
    task: Task[Prediction],
    examples: Examples,
    tokenizer: Tokenizer,
    *,
    features: Sequence[Features] | None = None,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    on_batch: Callable[[int], None] | None = None,
    worst: int = 0,
) -> Report:
    """Score `model` on labelled examples.

    Args:
        worst: how many of the worst predicted examples the report gets.
        features: of the examples, when they have been made before (an evaluation each epoch);
            None: they are made here.

    The other arguments are those of :func:`run_features`.

    Raises:
        BertineError: an unknown label, an input that does not fit the model, or no examples.
    """
    if features is None:
        features = task.featurize(examples, tokenizer)
    outputs = run_features(
        model,
        task,
        features,
        pad_id=tokenizer.pad_token_id,
        dtype=dtype,
        max_tokens=max_tokens,
        on_batch=on_batch,
    )
    labels = [example.label for example in examples.items if example.label is not None]
    report = task.report(task.decode(outputs, features), labels)
    report.source = examples.source
    if worst:
        report.worst = WorstExamples(worst_of(task, examples, features, outputs, worst)[0])
    report.notes.extend([*examples.notes, *task.notes(features)])
    return report


def add_metrics(report: Report, word: str, other: Report) -> None:
    """Add the metrics of a further set to `report`, with `word` before their names, and its
    notes."""
    report.metrics.update({f"{word}_{name}": value for name, value in other.metrics.items()})
    report.notes.extend(other.notes)
