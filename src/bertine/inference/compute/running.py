"""Running features through a model in batches of like length."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bertine.cores.short_waits import adapt_waiting
from bertine.data.batching import restore_order, token_budget_batches
from bertine.data.checks import check_batch
from bertine.inference.compute.choosing import using_threads
from bertine.inference.compute.engine import Engine
from bertine.inference.compute.forked import allowed_threads
from bertine.models.model import Model
from bertine.models.precision import autocast
from bertine.tasks.base import Features, Task

#: Tokens (with padding) in a batch: on a CPU few enough for the caches, on a GPU enough to fill it.
CPU_TOKENS = 4096
GPU_TOKENS = 65536

#: What computes: a model, or an engine made of one.
Computing = Model | Engine


def run_features(
    model: Computing,
    task: Task[Any],
    features: Sequence[Features],
    *,
    pad_id: int,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """The task's outputs for each of `features`, fp32 on the host, in their order.

    Args:
        model: on any device; put into evaluation mode and back into the mode it was in. Or an
            engine, which computes in its own precision.
        task: says how to collate and what to compute.
        features: N of them.
        pad_id: the tokenizer's ``[PAD]``.
        dtype: to compute in: bf16 (by autocast) or fp32.
        max_tokens: of a batch, with its padding; None: by the kind of device.
        on_batch: called with the number of features of each batch that is done.

    Raises:
        BertineError: a feature has an id or a length that the model has no parameters for.
    """
    computing: Any = model.model if isinstance(model, Engine) else model
    device = None if isinstance(model, Engine) else next(model.parameters()).device

    def compute(chosen: list[Features]) -> list[np.ndarray]:
        batch = task.collate(chosen, pad_id)
        check_batch(batch, computing.config)
        outputs = task.outputs(computing, batch if device is None else batch.to(device))
        return list(outputs.float().cpu().numpy())

    if isinstance(model, Engine):
        limit = model.max_tokens if max_tokens is None else max_tokens
        with torch.inference_mode(), using_threads(model.threads):
            return in_batches(features, limit, compute, on_batch)
    assert device is not None
    allowed_threads(torch.get_num_threads())
    with evaluating(model), autocast(dtype, device):
        return in_batches(features, batch_tokens(device, max_tokens), compute, on_batch)


def in_batches(
    features: Sequence[Features],
    max_tokens: int,
    compute: Callable[[list[Features]], list[np.ndarray]],
    on_batch: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """What `compute` gives for `features`, in their order; it is called with those of a batch, of
    like length and at most `max_tokens` with their padding, and `on_batch` with how many that
    were."""
    batches = token_budget_batches([len(feature.input_ids) for feature in features], max_tokens)
    results: list[list[np.ndarray]] = []
    for indices in batches:
        adapt_waiting()
        results.append(compute([features[index] for index in indices]))
        if on_batch is not None:
            on_batch(len(indices))
    return restore_order(batches, results)


def batch_tokens(device: torch.device, asked: int | None) -> int:
    """Tokens of a batch, with its padding: as many as are asked for; None: by the kind of
    `device`."""
    if asked is not None:
        return asked
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; `model` is put back into the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)
