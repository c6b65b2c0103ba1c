"""Masked language modelling, and which text stands beside which.

Each text of a batch has its neighbour among the others. A softmax over the cosines of their vectors
says which one it is; the vectors are the means of the last states, as ``bertine embed`` and a head
that is fitted alone read them. Recognizing the neighbouring sentence among those of a batch is from
Logeswaran and Lee 2018 (QuickThoughts); neighbouring stretches of text, compared in this way beside
masked language modelling with a temperature of 0.05, are from Giorgi et al. 2021 (DeCLUTR). Unlike
there, the texts that are compared are those with hidden tokens, which the model encodes anyway, so
that the second loss costs hardly anything.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F

from bertine.data.batch import Batch
from bertine.models.encoded import Encoded
from bertine.models.model import Model
from bertine.models.pooling import Pooling
from bertine.names import InputFormat
from bertine.objectives.base import Term
from bertine.objectives.mlm import Mlm
from bertine.options.objectives import NeighbourOptions, ObjectiveOptions


class MlmNeighbours(Mlm):
    """Minimize the mean MLM loss of the masked tokens plus the weighted mean loss of recognizing
    the neighbour of each text.

    A text is compared with those that are computed with it: with all of a batch where that fits
    into a micro-batch (``max_tokens_per_micro_batch``), else with those of its micro-batch.

    Args:
        options: weight and temperature; None: the defaults.
    """

    name: ClassVar[str] = "mlm-neighbours"
    formats: ClassVar[tuple[InputFormat, ...]] = ("neighbours",)

    def __init__(self, options: NeighbourOptions | None = None) -> None:
        self.options = options or NeighbourOptions()

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with the weight and the temperature of `options`."""
        return type(self)(NeighbourOptions.of(options))

    def settings(self) -> dict[str, Any]:
        """Return the weight and the temperature."""
        return self.options.values()

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the masked tokens and the texts."""
        return super().counts(batch) | {"neighbours": batch.num_sequences}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropies of the masked tokens and of the neighbours. Texts 2k and
        2k + 1 of `batch` are neighbours."""
        terms = super().terms_of(model, encoded, batch)
        mask = batch.attention_mask[:, : encoded.last_hidden_state.shape[1]]
        vectors = Pooling(normalize=True)(encoded, mask)
        with torch.autocast(vectors.device.type, enabled=False):
            scores = vectors @ vectors.T / self.options.similarity_temperature
        itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
        scores = scores.masked_fill(itself, float("-inf"))
        neighbours = torch.arange(len(vectors), device=vectors.device) ^ 1
        total = F.cross_entropy(scores, neighbours, reduction="sum")
        correct = (scores.argmax(1) == neighbours).sum()
        term = Term(total, batch.num_sequences, correct, weight=self.options.neighbours_weight)
        return terms | {"neighbours": term}
