"""The paper's pre-training objective: masked LM plus next-sentence prediction (section 3.1)."""

from __future__ import annotations

from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.data.instances.formats import PAIR_FORMATS
from bertine.models.config import Config
from bertine.models.heads import new_head
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.objectives.base import Term


class MlmNsp:
    """Mean MLM loss over the masked positions plus mean NSP loss over the sequences.

    Only the masked positions go through the MLM head.
    """

    name = "mlm-nsp"
    #: What sequences may be made of.
    input_formats = PAIR_FORMATS

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Fresh heads for `config`."""
        return new_head(config, "mlm") | new_head(config, "nsp")

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.targets["mlm_labels"].numel(), "nsp": batch.num_sequences}

    def logits(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        """MLM logits [P, V] at ``mlm_positions``, NSP logits [B, 2]."""
        encoded = model.encode(batch)
        mlm = model.read("mlm", encoded, places=batch.targets["mlm_positions"])
        return mlm, model.read("nsp", encoded)

    def terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        mlm_logits, nsp_logits = self.logits(model, batch)
        counts = self.counts(batch)
        mlm_total, mlm_correct = sum_cross_entropy(mlm_logits, batch.targets["mlm_labels"])
        nsp_total, nsp_correct = sum_cross_entropy(nsp_logits, batch.targets["next_sentence_label"])
        return {
            "mlm": Term(mlm_total, counts["mlm"], mlm_correct),
            "nsp": Term(nsp_total, counts["nsp"], nsp_correct),
        }
