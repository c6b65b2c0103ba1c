"""A language model beside a task: L3 = L2 + λ L1 (Radford et al. 2018, section 3.2, equation 5).

Shape legend: B sequences, P places that another token follows, H hidden size, V vocabulary size, N
positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.data.batch import Batch
from bertine.models.embeddings import Embeddings
from bertine.models.encoded import Encoded
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.objectives.base import Loss, LossDefaults, Term

#: What the term is called in logs.
NAME = "lm"


@dataclass(frozen=True)
class WithNextTokens(LossDefaults):
    """A task's loss, and that of guessing each token of its inputs from those before it.

    The texts are those that the task reads, special tokens included; the loss is the mean over the
    sequences of the mean over their tokens (openai/finetune-transformer-lm, ``train.py: model``).
    The head has no weights: it multiplies with the word embeddings.

    Attributes:
        task: the task.
        weight: λ.
        positions: whether the position embeddings are rows of the softmax too, as in the published
            code, which holds all embeddings in one table; never a target, they take probability
            away. transformers has tokens alone.
    """

    task: Loss
    weight: float
    positions: bool = False

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the targets of the task's terms, and the sequences."""
        return self.task.counts(batch) | {NAME: batch.num_sequences}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Run the backbone as the task does."""
        return self.task.encode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the task's terms, and the cross-entropy of the tokens that follow."""
        terms = self.task.terms_of(model, encoded, batch)
        real = batch.attention_mask.bool()
        followed = F.pad(real[:, 1:] & real[:, :-1], (0, 1))
        places = followed.flatten().nonzero()[:, 0]
        labels = batch.input_ids.flatten()[places + 1]
        each = 1.0 / followed.sum(1).clamp(min=1)
        weights = each[:, None].expand_as(followed).flatten()[places]
        logits = F.linear(encoded.rows(places), self._table(model))
        total, _ = sum_cross_entropy(logits, labels, weights)
        return terms | {NAME: Term(total, batch.num_sequences, weight=self.weight)}

    def _table(self, model: Model) -> Tensor:
        """Return what states are multiplied with, [V, H] or [V + N, H]."""
        words = model.backbone.word_weights
        if not self.positions:
            return words
        embeddings = model.backbone.embeddings
        assert isinstance(embeddings, Embeddings)
        return torch.cat([words, embeddings.places()])
