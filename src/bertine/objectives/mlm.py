"""Masked language modelling without next-sentence prediction (Liu et al. 2019, section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from bertine.data.batch import Batch
from bertine.data.corruption.masked import TokenMasking
from bertine.data.instances.formats import ORDER_FORMATS, PAIR_FORMATS
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.heads import new_head
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.names import InputFormat
from bertine.objectives.base import LossDefaults, Term
from bertine.options.instances import InstanceSettings

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


class Mlm(LossDefaults):
    """Minimize the mean MLM loss of the masked tokens, which alone go through the MLM head.

    The model has no NSP head. It keeps its pooler, although nothing here trains it: fine-tuning
    classifies with the pooler's output, as in the paper (section 4.1), and a model directory with
    a pooler is what every reader of BERT expects. It stays as it was initialized, or, when a
    model is trained on, as it was loaded. That is where RoBERTa's fine-tuning begins too, with a
    dense layer that pre-training has not seen.
    """

    name: ClassVar[str] = "mlm"
    formats: ClassVar[tuple[InputFormat, ...]] = (
        "full-sentences",
        "doc-sentences",
        *PAIR_FORMATS,
        *ORDER_FORMATS,
        "neighbours",
    )

    @staticmethod
    def corruption(tokenizer: Tokenizer, settings: InstanceSettings) -> TokenMasking:
        """Hide tokens."""
        return TokenMasking(tokenizer, settings)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Make a fresh head for `config`."""
        return new_head(config, "mlm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the masked tokens."""
        return {"mlm": batch.targets["mlm_labels"].numel()}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the masked tokens."""
        labels = batch.targets["mlm_labels"]
        logits = model.read("mlm", encoded, places=batch.targets["mlm_positions"])
        total, correct = sum_cross_entropy(logits, labels)
        return {"mlm": Term(total, labels.numel(), correct)}
