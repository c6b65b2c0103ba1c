"""Masked language modelling without next-sentence prediction (Liu et al. 2019, section 4.2)."""

from __future__ import annotations

from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.data.instances.formats import INPUT_FORMATS
from bertine.models.config import Config
from bertine.models.heads import new_head
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.objectives.base import Term


class Mlm:
    """Mean MLM loss over the masked positions, which alone go through the MLM head.

    The model has no NSP head. It keeps its pooler, although nothing here trains it: fine-tuning
    classifies with the pooler's output, as in the paper (section 4.1), and a model directory with
    a pooler is what every reader of BERT expects. It stays as it was initialized, or, when a
    model is trained on, as it was loaded. That is where RoBERTa's fine-tuning begins too, with a
    dense layer that pre-training has not seen.
    """

    name = "mlm"
    #: What sequences may be made of.
    input_formats = INPUT_FORMATS

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """A fresh head for `config`."""
        return new_head(config, "mlm")

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.targets["mlm_labels"].numel()}

    def logits(self, model: Model, batch: Batch) -> Tensor:
        """MLM logits [P, V] at ``mlm_positions``."""
        encoded = model.encode(batch)
        return model.read("mlm", encoded, places=batch.targets["mlm_positions"])

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        total, correct = sum_cross_entropy(self.logits(model, batch), batch.targets["mlm_labels"])
        return {"mlm": Term(total, self.counts(batch)["mlm"], correct)}
