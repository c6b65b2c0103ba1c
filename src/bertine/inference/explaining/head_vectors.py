"""The vectors that the head of a fine-tuned model reads: two examples with the same vector get the
same answer.

Shape legend: B sequences, T tokens of the longest, H hidden size, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from bertine.data.batch import Batch
from bertine.inference.answering import Answering
from bertine.inference.compute.running import run_batch, run_features
from bertine.models.heads import PairHead, VectorHead, texts_apart
from bertine.models.pooling import Pooling
from bertine.tasks.base import Task
from bertine.tasks.features import Features, by_example

_MEAN = Pooling()


class _HeadInputs:
    """What the head reads, as a task for running features."""

    def __init__(self, task: Task[Any]) -> None:
        self._task = task

    def collate(self, features: Sequence[Features], pad_id: int) -> Batch:
        return self._task.collate(features, pad_id)

    def outputs(self, model: Any, batch: Batch) -> Tensor:
        """Return what the head reads, fp32 [B, D]; of a head that reads every token, the mean over
        the real ones."""
        head = model.heads[self._task.head]
        if isinstance(head, PairHead):
            texts = texts_apart(batch)
            return head.features(model.encode(texts), texts).float()
        encoded = self._task.encode(model, batch)
        if isinstance(head, VectorHead):
            return head.vectors(encoded, batch)
        reads = model.config.heads[self._task.head].reads
        if reads == "pooled" and encoded.pooler_output is not None:
            return encoded.pooler_output.float()
        if reads == "first":
            return encoded.first_token.float()
        mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
        return _MEAN(encoded, mask)


def head_vectors(
    answering: Answering, features: Sequence[Features], *, one_batch: bool = False
) -> np.ndarray:
    """Compute the vector of each example: what the head reads, the mean over the example's windows
    or choices, of length 1.

    Args:
        answering: the model with its task.
        features: of N examples, side by side.
        one_batch: whether they are one batch already.

    Returns:
        fp32 [N, D].
    """
    run = run_batch if one_batch else run_features
    vectors = run(
        answering.computing,
        _HeadInputs(answering.task),
        features,
        pad_id=answering.tokenizer.pad_token_id,
        dtype=answering.dtype,
    )
    means = [np.mean(parts, axis=0, dtype=np.float64) for parts, _ in by_example(vectors, features)]
    table = np.stack(means)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return table.astype(np.float32)
