"""Masked language modelling and the order of two sentences (Lan et al. 2019, section 3.1)."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from bertine.data.batch import Batch
from bertine.data.instances.formats import ORDER_FORMATS
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.heads import new_head
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.names import InputFormat
from bertine.objectives.base import Term
from bertine.objectives.mlm import Mlm


class MlmSop(Mlm):
    """Minimize the mean MLM loss of the masked tokens plus the mean loss of the pairs' order."""

    name: ClassVar[str] = "mlm-sop"
    formats: ClassVar[tuple[InputFormat, ...]] = ORDER_FORMATS

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Make fresh heads for `config`."""
        return new_head(config, "mlm") | new_head(config, "sop")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the masked tokens and the pairs."""
        return super().counts(batch) | {"sop": batch.num_sequences}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropies of the masked tokens and of the pairs."""
        terms = super().terms_of(model, encoded, batch)
        logits = model.read("sop", encoded)
        total, correct = sum_cross_entropy(logits, batch.targets["sentence_order_label"])
        return terms | {"sop": Term(total, batch.num_sequences, correct)}
