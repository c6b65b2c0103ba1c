"""Running features through a model in batches of like length."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bertine.cores.short_waits import adapt_waiting
from bertine.data.batch import Batch
from bertine.data.batching import restore_order, token_budget_batches
from bertine.data.checks import check_batch
from bertine.inference.compute.engine import Engine
from bertine.models.backbone import each_text_alone
from bertine.models.model import Model
from bertine.models.precision import autocast, finite
from bertine.models.threads import allowed_threads, using_threads
from bertine.tasks.features import Features

#: Tokens (with padding) in a batch: on a CPU few enough for the caches, on a GPU enough to fill it.
CPU_TOKENS = 4096
GPU_TOKENS = 65536

Result = TypeVar("Result")

#: What computes: a model, or an engine made of one.
Computing = Model | Engine


class Runnable(Protocol):
    """The part of a task that running features needs; pooling has it too."""

    def collate(self, features: Sequence[Any], pad_id: int) -> Batch:
        """Pad features into one batch."""
        ...

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """Compute what is wanted of the model: [B, ...], one entry a sequence."""
        ...


def run_features(
    model: Computing,
    task: Runnable,
    features: Sequence[Features],
    *,
    pad_id: int,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    alone: bool = False,
    on_batch: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """Compute the task's outputs for each of `features`, fp32 on the host, in their order; those
    of equal texts once.

    Args:
        model: on any device; put into evaluation mode and back into the mode it was in. Or an
            engine, which computes in its own precision.
        task: says how to collate and what to compute.
        features: N of them.
        pad_id: the tokenizer's ``[PAD]``.
        dtype: to compute in: bf16 (by autocast) or fp32.
        max_tokens: of a batch, with its padding; None: by the kind of device.
        alone: compute each of `features` by itself, so that the bits of its outputs do not depend
            on the others.
        on_batch: called with the number of features of each batch that is done.

    Raises:
        BertineError: a feature has an id or a length that the model has no parameters for; an
            output is not finite.
    """
    if alone:
        max_tokens = 1
    elif max_tokens is None and isinstance(model, Engine):
        max_tokens = model.max_tokens
    elif not isinstance(model, Engine):
        max_tokens = batch_tokens(device_of(model), max_tokens)
    assert max_tokens is not None
    distinct, places = _distinct(features)
    with computing_with(model, dtype):
        results = in_batches(
            distinct, max_tokens, partial(_outputs, model, task, pad_id=pad_id), on_batch
        )
    if on_batch is not None and len(distinct) < len(features):
        on_batch(len(features) - len(distinct))
    return [results[place] for place in places]


def _distinct(features: Sequence[Features]) -> tuple[list[Features], list[int]]:
    """Return `features` with the first of equal texts alone, and for each its place among those."""
    first: dict[Any, int] = {}
    distinct: list[Features] = []
    places: list[int] = []
    for number, each in enumerate(features):
        # Features of other kinds, and those computed together, are more than their pieces.
        plain = type(each) is Features and each.group is None
        key = (each.input_ids.tobytes(), each.token_type_ids.tobytes()) if plain else number
        place = first.setdefault(key, len(distinct))
        if place == len(distinct):
            distinct.append(each)
        places.append(place)
    return distinct, places


def run_batch(
    model: Computing,
    task: Runnable,
    features: Sequence[Features],
    *,
    pad_id: int,
    dtype: torch.dtype = torch.float32,
    alone: bool = False,
) -> list[np.ndarray]:
    """Compute the same as :func:`run_features` for features that are one batch already."""
    adapt_waiting()
    with computing_with(model, dtype):
        if alone:
            return [_outputs(model, task, [each], pad_id=pad_id)[0] for each in features]
        return _outputs(model, task, features, pad_id=pad_id)


def _outputs(
    model: Computing, task: Runnable, features: Sequence[Features], *, pad_id: int
) -> list[np.ndarray]:
    """Compute the outputs of one batch, in :func:`computing_with`."""
    computing = model.model if isinstance(model, Engine) else model
    batch = task.collate(features, pad_id)
    check_batch(batch, computing.config)
    if not isinstance(model, Engine):
        batch = batch.to(device_of(model))
    outputs = task.outputs(computing, batch).float().cpu()
    if not bool(outputs.isfinite().all()):
        for row, feature in zip(outputs, features, strict=True):
            finite(row[: len(feature.input_ids)] if row.dim() > 1 else row)  # padding may be none
    return list(outputs.numpy())


def in_batches(
    features: Sequence[Features],
    max_tokens: int,
    compute: Callable[[list[Features]], Sequence[Result]],
    on_batch: Callable[[int], None] | None = None,
) -> list[Result]:
    """Compute `features` in batches of like length, and return the results in their order.

    Args:
        features: N of them.
        max_tokens: of a batch, with its padding.
        compute: called with the features of each batch; returns a result for each.
        on_batch: called with the number of features of each batch that is done.
    """
    batches = token_budget_batches([len(feature.input_ids) for feature in features], max_tokens)
    results: list[Sequence[Result]] = []
    for indices in batches:
        adapt_waiting()
        results.append(compute([features[index] for index in indices]))
        if on_batch is not None:
            on_batch(len(indices))
    return restore_order(batches, results)


def device_of(model: nn.Module) -> torch.device:
    """Return the device that the weights of `model` are on."""
    return next(model.parameters()).device


def batch_tokens(device: torch.device, asked: int | None) -> int:
    """Return the tokens of a batch, with its padding: as many as are asked for; None: by the kind
    of `device`."""
    if asked is not None:
        return asked
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


@contextlib.contextmanager
def computing_with(model: Computing, dtype: torch.dtype) -> Iterator[None]:
    """Set threads, mode and precision for computing with `model`, and put them back."""
    if isinstance(model, Engine):
        with torch.inference_mode(), using_threads(model.threads):
            yield
        return
    allowed_threads(torch.get_num_threads())
    with evaluating(model), autocast(dtype, device_of(model)):
        yield


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Compute without dropout and gradients, each text as if it stood alone; `model` is put back
    into the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        with each_text_alone(model), torch.inference_mode():
            yield
    finally:
        model.train(was_training)
