"""Causal language modelling: each token is guessed from those before it (Radford et al. 2018,
section 3.1, L1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from bertine.data.batch import Batch
from bertine.data.corruption.following import FollowingTokens
from bertine.errors import BertineError
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


class Clm(LossDefaults):
    """Minimize the mean cross-entropy of all tokens but the first of each sequence, each scored by
    the state of the token before it."""

    name: ClassVar[str] = "clm"
    formats: ClassVar[tuple[InputFormat, ...]] = ("running-text", "full-sentences", "doc-sentences")

    @staticmethod
    def corruption(tokenizer: Tokenizer, settings: InstanceSettings) -> FollowingTokens:
        """Hide nothing: the model does not look ahead."""
        return FollowingTokens(tokenizer, settings)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Make the head for `config`.

        Raises:
            BertineError: the model sees the token that it is to guess.
        """
        if not config.reads_forward:
            raise BertineError(
                f"this {config.title} reads in both directions, so there is no next token to "
                "guess; put layers that do so above a model that is pre-trained"
            )
        return new_head(config, "lm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the tokens that are guessed."""
        return {"clm": batch.targets["clm_labels"].numel()}

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the tokens that follow."""
        labels = batch.targets["clm_labels"]
        logits = model.read("lm", encoded, places=batch.targets["clm_positions"])
        total, correct = sum_cross_entropy(logits, labels)
        return {"clm": Term(total, labels.numel(), correct)}
