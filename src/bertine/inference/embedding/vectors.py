"""Texts as vectors: pooling with the two methods of a task that running features needs.

Shape legend: B sequences, T tokens of the longest, D width of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.inference.compute.running import Computing, run_features
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.tasks.features import Features, pad_features


@dataclass(frozen=True)
class PooledTexts:
    """The part of a task that :func:`~bertine.inference.compute.running.run_features` needs, for
    vectors.

    Attributes:
        pooling: what becomes of the tokens' states.
        max_length: tokens that the model has positions for.
    """

    pooling: Pooling
    max_length: int

    def run(
        self,
        computing: Computing,
        features: Sequence[Features],
        *,
        pad_id: int,
        dtype: torch.dtype,
        alone: bool = False,
        on_batch: Callable[[int], None] | None = None,
    ) -> Sequence[np.ndarray]:
        """Compute the vector [D] of each of `features`; of ``tokens`` [n, D]. The arguments are
        those of :func:`~bertine.inference.compute.running.run_features`."""
        outputs = run_features(
            computing,
            self,
            features,
            pad_id=pad_id,
            dtype=dtype,
            alone=alone,
            on_batch=on_batch,
        )
        return self.decode(outputs, features)

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        """Pad features into one batch."""
        return pad_features(features, pad_id, self.max_length)

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """Encode and pool: fp32 [B, D], of ``tokens`` [B, T, D]."""
        encoded = model.encode(batch, all_states=self.pooling.needs_all_layers)
        # An engine computes no columns of padding alone.
        return self.pooling(encoded, batch.attention_mask[:, : encoded.last_hidden_state.shape[1]])

    def decode(
        self, outputs: Sequence[np.ndarray], features: Sequence[Features]
    ) -> Sequence[np.ndarray]:
        """Return the vector [D] of each text; of ``tokens`` [n, D], n being the text's length."""
        if not self.pooling.tokens:
            return outputs
        # A copy, or the padding of every batch would be kept.
        pairs = zip(outputs, features, strict=True)
        return [row[: len(feature.input_ids)].copy() for row, feature in pairs]
