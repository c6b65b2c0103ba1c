"""Running features through a model in batches of like length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bertine.data.batching import restore_order, token_budget_batches
from bertine.data.checks import check_batch
from bertine.inference.choosing import using_threads
from bertine.inference.engine import Engine
from bertine.models.model import Model
from bertine.models.precision import autocast
from bertine.tasks.base import Features, Task

#: Tokens (with padding) in a batch: on a CPU few enough for the caches, on a GPU enough to fill it.
CPU_TOKENS = 4096
GPU_TOKENS = 65536


def run_features(
    model: Model | Engine,
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
            engine made of one, which computes in its own precision.
        task: says how to collate and what to compute.
        features: N of them.
        pad_id: the tokenizer's ``[PAD]``.
        dtype: to compute in: bf16 (by autocast) or fp32.
        max_tokens: of a batch, with its padding; None: by the kind of device.
        on_batch: called with the number of features of each batch that is done.

    Raises:
        BertineError: a feature has an id or a length that the model has no parameters for.
    """
    if isinstance(model, Engine):
        return _run_packed(model, task, features, pad_id, max_tokens, on_batch)
    device = next(model.parameters()).device
    if max_tokens is None:
        max_tokens = CPU_TOKENS if device.type == "cpu" else GPU_TOKENS
    batches = token_budget_batches([len(feature.input_ids) for feature in features], max_tokens)
    results: list[list[np.ndarray]] = []
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast(dtype, device):
            for indices in batches:
                batch = task.collate([features[index] for index in indices], pad_id)
                check_batch(batch, model.config)
                outputs = task.outputs(model, batch.to(device))
                results.append(list(outputs.float().cpu().numpy()))
                if on_batch is not None:
                    on_batch(len(indices))
    finally:
        model.train(was_training)
    return restore_order(batches, results)


def _run_packed(
    engine: Engine,
    task: Task[Any],
    features: Sequence[Features],
    pad_id: int,
    max_tokens: int | None,
    on_batch: Callable[[int], None] | None,
) -> list[np.ndarray]:
    model: Any = engine.model
    lengths = [len(feature.input_ids) for feature in features]
    batches = token_budget_batches(lengths, max_tokens or engine.max_tokens)
    results: list[list[np.ndarray]] = []
    with torch.inference_mode(), using_threads(engine.threads):
        for indices in batches:
            batch = task.collate([features[index] for index in indices], pad_id)
            check_batch(batch, engine.config)
            results.append(list(task.outputs(model, batch).float().numpy()))
            if on_batch is not None:
                on_batch(len(indices))
    return restore_order(batches, results)
