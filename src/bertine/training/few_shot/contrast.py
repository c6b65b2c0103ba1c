"""Train an encoder so that texts with the same label have vectors close to each other.

The idea of learning from pairs of a few labelled texts is that of SetFit (Tunstall et al. 2022,
arXiv 2209.11055). There each pair is encoded by itself; here each text of a batch is encoded once,
and all pairs of the batch are compared, by the loss of supervised contrastive learning (Khosla et
al. 2020, arXiv 2004.11362, equation 2): a batch of 32 texts has 496 pairs at the cost of 16.

Shape legend: B inputs in a batch, D numbers of a vector, K labels.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batch import Batch
from bertine.models.encoded import Encoded
from bertine.models.heads import PAIR_CLASSIFIER, PairHead, texts_apart
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.names import FewShotWeights
from bertine.objectives.base import LossDefaults, Term
from bertine.tasks.base import Task

#: Of the cosines in the softmax.
TEMPERATURE = 0.1


@dataclass(frozen=True)
class Contrast:
    """How the encoder is trained before the head is fitted.

    Attributes:
        steps: batches.
        batch_size: texts in a batch.
        learning_rate: its highest value.
        trained_weights: that are trained, of the encoder.
        pooling: how the states of a text become its vector.
        temperature: of the cosines in the softmax.
    """

    steps: int
    batch_size: int
    learning_rate: float
    trained_weights: FewShotWeights
    pooling: Pooling
    temperature: float = TEMPERATURE

    def settings(self) -> dict[str, Any]:
        """Return JSON values, for the settings of a run."""
        return {**dataclasses.asdict(self), "pooling": self.pooling.name}


class ContrastiveLoss(LossDefaults):
    """The supervised contrastive loss over a batch.

    Args:
        task: whose batches they are: one label of each input, or any number of them.
        contrast: pooling and temperature.
    """

    name = "contrastive"

    def __init__(self, task: Task[Any], contrast: Contrast) -> None:
        self.task, self.contrast = task, contrast
        self._classes = len(cast(Any, task).labels)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the inputs that have another one like them in the batch."""
        shared = likeness(self._chosen(batch))
        return {self.name: int((shared.sum(1) > 0).sum())}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Encode the inputs, or both texts of each pair by themselves."""
        return self.task.encode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the loss, in fp32."""
        shared = likeness(self._chosen(batch))
        device_type = encoded.last_hidden_state.device.type
        with torch.autocast(device_type, enabled=False):
            vectors = self._vectors(model, encoded, batch)
            total, count = contrastive_loss(vectors, shared, self.contrast.temperature)
        return {self.name: Term(total, count)}

    def _chosen(self, batch: Batch) -> Tensor:
        """Return the labels of a batch, fp32 [B, K]."""
        labels = batch.targets["labels"]
        if labels.dim() == 1:
            return F.one_hot(labels, self._classes).float()
        return labels.float()

    def _vectors(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Return what is compared, fp32 [B, D] of length 1."""
        if not self.task.reads_apart:
            mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
            return F.normalize(self.contrast.pooling(encoded, mask).float(), dim=-1)
        head = cast(PairHead, model.heads[PAIR_CLASSIFIER])
        compared = head.features(encoded, texts_apart(batch))
        size = head.pooling.width(model.config)
        # How the two texts differ and agree, without what each is about.
        parts = (compared[:, 2 * size : 3 * size], compared[:, 3 * size : 4 * size])
        return F.normalize(torch.cat([F.normalize(part, dim=-1) for part in parts], -1), dim=-1)


def likeness(chosen: Tensor) -> Tensor:
    """Return how alike the labels of each two inputs are.

    Args:
        chosen: fp32 [B, K] of 0 and 1.

    Returns:
        fp32 [B, B]: the labels in common, as a share of those that either has; 1 where neither has
        any; 0 of an input with itself.
    """
    common = chosen @ chosen.T
    sizes = chosen.sum(1)
    either = sizes[:, None] + sizes[None, :] - common
    shared = torch.where(either > 0, common / either.clamp(min=1.0), torch.ones_like(common))
    return shared.fill_diagonal_(0.0)


def contrastive_loss(vectors: Tensor, shared: Tensor, temperature: float) -> tuple[Tensor, int]:
    """Compute the supervised contrastive loss.

    Args:
        vectors: fp32 [B, D], of length 1.
        shared: fp32 [B, B], how much each two are to be alike; 0 on the diagonal.
        temperature: that cosines are divided by.

    Returns:
        The sum over the inputs that are to be like another one, and their number.
    """
    cosines = vectors @ vectors.T / temperature
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    log = F.log_softmax(cosines.masked_fill(itself, -1e9), dim=1)
    weights = shared.sum(1)
    has = weights > 0
    losses = -(shared * log).sum(1)[has] / weights[has]
    return losses.sum(), int(has.sum())


def labels_of(features: Any, classes: int) -> np.ndarray:
    """Return the labels of features, bool [N, K]: their numbers, or 0 and 1 for each label."""
    labels = [np.asarray(feature.label) for feature in features]
    if labels[0].ndim:
        return np.stack(labels) > 0.5
    return np.eye(classes, dtype=bool)[np.array(labels, dtype=np.int64)]
