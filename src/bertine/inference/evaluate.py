"""Scoring a model on labelled examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from bertine.inference.answering import Answering
from bertine.inference.compute.running import Computing
from bertine.inference.losses import worst_of
from bertine.records.examples import Examples
from bertine.tasks.base import Features, Task
from bertine.tasks.report import EvaluationReport
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
) -> EvaluationReport:
    """Score `model` on labelled examples.

    Args:
        worst: how many of the worst predicted examples the report gets.
        features: of the examples, when they have been made before (an evaluation each epoch);
            None: they are made here.

    The other arguments are those of :meth:`~bertine.inference.answering.Answering.compute`.

    Raises:
        BertineError: an unknown label, an input that does not fit the model, or no examples.
    """
    answering = Answering(model, task, tokenizer, dtype)
    prepared = answering.prepare(examples, features)
    outputs = answering.compute(prepared.features, max_tokens=max_tokens, on_batch=on_batch)
    labels = [example.label for example in examples.items if example.label is not None]
    report = task.report(answering.finish(prepared, outputs), labels)
    report.source = examples.source
    if worst:
        report.worst = WorstExamples(worst_of(task, examples, prepared.features, outputs, worst)[0])
    report.notes.extend([*examples.notes, *task.notes(prepared.features)])
    return report


def add_metrics(report: EvaluationReport, word: str, other: EvaluationReport) -> None:
    """Add the metrics of a further set to `report`, with `word` before their names, and its
    notes."""
    report.metrics.update({f"{word}_{name}": value for name, value in other.metrics.items()})
    report.notes.extend(other.notes)
