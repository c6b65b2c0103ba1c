"""Features → pooled vectors: on a CPU by the engine, elsewhere by the model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch

from bertine.data.checks import check_batch
from bertine.inference.compute.engine import Engine
from bertine.inference.compute.running import batch_tokens, in_batches
from bertine.models.encoded import BackboneOutput
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.models.precision import autocast
from bertine.tasks.base import Features, pad_features


def run_engine(
    engine: Engine,
    features: Sequence[Features],
    pooling: Pooling,
    *,
    on_batch: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """The same as :func:`run_pooled`, by an engine in its own precision.

    Raises:
        BertineError: a feature has an id or a length that the model has no parameters for.
    """
    found: dict[int, np.ndarray] = {}
    ids = cast(list[Sequence[int]], [feature.input_ids for feature in features])
    for batch in engine.encode(ids, output_hidden_states=pooling.needs_all_layers):
        with torch.inference_mode():
            states = batch.last_hidden_state
            mask = torch.arange(states.shape[1])[None, :] < batch.lengths[:, None]
            output = BackboneOutput(states, hidden_states=batch.hidden_states)
            pooled = pooling(output, mask).numpy()
        for index, length, row in zip(batch.indices, batch.lengths.tolist(), pooled, strict=True):
            # A copy, or the padding of every batch would be kept.
            found[index] = row[:length].copy() if pooling.tokens else row
        if on_batch is not None:
            on_batch(len(batch.indices))
    return [found[index] for index in range(len(features))]


def run_pooled(
    model: Model,
    features: Sequence[Features],
    pooling: Pooling,
    *,
    pad_id: int,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """The vector of each of `features`, fp32 on the host, in their order.

    Args:
        model: on any device, in evaluation mode.
        features: N of them.
        pooling: what becomes of the tokens' states.
        pad_id: the tokenizer's ``[PAD]``.
        dtype: to compute in: bf16 (by autocast) or fp32. Pooling is in fp32.
        max_tokens: of a batch, with its padding; None: by the kind of device.
        on_batch: called with the number of features of each batch that is done.

    Returns:
        N vectors fp32 [D]; of ``tokens`` N arrays fp32 [n, D], n being the feature's length.

    Raises:
        BertineError: a feature has an id or a length that the model has no parameters for.
    """
    device = next(model.parameters()).device
    positions = model.config.longest_input

    def compute(chosen: list[Features]) -> list[np.ndarray]:
        batch = pad_features(chosen, pad_id, positions)
        check_batch(batch, model.config)
        batch = batch.to(device)
        output = model.encode(batch, all_states=pooling.needs_all_layers)
        pooled = pooling(output, batch.attention_mask).cpu().numpy()
        if not pooling.tokens:
            return list(pooled)
        # A copy, or the padding of every batch would be kept.
        return [
            row[: len(feature.input_ids)].copy()
            for row, feature in zip(pooled, chosen, strict=True)
        ]

    with torch.inference_mode(), autocast(dtype, device):
        return in_batches(features, batch_tokens(device, max_tokens), compute, on_batch)
