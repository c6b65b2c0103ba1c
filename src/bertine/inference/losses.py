"""Which examples a model finds hardest: the loss of each, and the worst of them.

A loss is the one that the task trains with, without dropout and class weights, so the numbers mean
what those of the training log mean; the highest ones are what has not been learned, and often
wrong labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bertine.files import write_json
from bertine.inference.running import Computing, run_features
from bertine.tasks.base import Features, Task
from bertine.tasks.examples import Examples
from bertine.tasks.label_sets import JOINT
from bertine.text.tokenizer import Tokenizer

#: The file of the worst examples in a run's folder, how many it holds, and the characters of each
#: of their texts.
WORST = "worst.json"
_KEPT = 20
_CHARACTERS = 400
#: Decimals of a loss. Examples with equal ones are in the order of the file.
_DIGITS = 5


@dataclass(frozen=True)
class WorstExample:
    """An example that a model predicts badly.

    Attributes:
        index: among the examples, from 0 on.
        texts: of the example; of tagging its words with spaces between them.
        label: the true one as text: a class, a number, tags, labels or answers with a bar between
            them, "(none)" where there is no label or no answer.
        answer: the model's, as text.
        loss: see :func:`example_losses`; to five decimals.
    """

    index: int
    texts: tuple[str, ...]
    label: str
    answer: str
    loss: float


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
    return _ranked(model, task, examples, tokenizer, n, dtype, features)[0]


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
    worst, losses = _ranked(model, task, examples, tokenizer, _KEPT, dtype, features)
    if not worst:
        return
    shown = [
        asdict(each)
        | {
            "texts": [_cut(text) for text in each.texts],
            "label": _cut(each.label),
            "answer": _cut(each.answer),
        }
        for each in worst
    ]
    mean = math.fsum(losses) / len(losses)
    write_json(folder / WORST, {"num_examples": len(losses), "mean_loss": mean, "examples": shown})


def _ranked(
    model: Computing,
    task: Task[Any],
    examples: Examples[Any],
    tokenizer: Tokenizer,
    n: int,
    dtype: torch.dtype,
    features: Sequence[Features] | None,
) -> tuple[list[WorstExample], list[float]]:
    """The `n` worst of the labelled examples, and the losses of all of them."""
    if features is None:
        features = task.featurize(examples, tokenizer)
    outputs = run_features(model, task, features, pad_id=tokenizer.pad_token_id, dtype=dtype)
    # On some CPUs rows of one batch differ in their last bits where their inputs do not.
    losses = [round(loss, _DIGITS) for loss in task.losses(outputs, features)]
    answers = task.decode(outputs, features)
    order = [index for index, loss in enumerate(losses) if not math.isnan(loss)]
    order.sort(key=lambda index: -losses[index])
    worst = [
        WorstExample(
            index,
            tuple(examples.items[index].texts),
            _text(examples.items[index].label),
            # The first column of a file of predictions is the answer itself.
            _text(task.output_values(answers[index], False)[0]),
            losses[index],
        )
        for index in order[:n]
    ]
    return worst, [losses[index] for index in order]


def _text(value: Any) -> str:
    """A label or an answer as people read it; that there is none, too."""
    if isinstance(value, float):
        return f"{value:.6g}"
    told = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return told.replace(JOINT, "|") or "(none)"


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
