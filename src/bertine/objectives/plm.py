"""Permutation language modelling: tokens are guessed one after the other in a random order (Yang et
al. 2019, arXiv 1906.08237, sections 2.2 and 2.3).

Shape legend: B sequences, T tokens of the longest, P guessed tokens, Q places that are guessed in a
sequence at the most, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.data.corruption.permuted import PermutedTokens
from bertine.data.instances.formats import ORDER_FORMATS, PAIR_FORMATS
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.heads import new_head
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.models.xlnet.backbone import GuessedPlaces, XlnetBackbone, XlnetOutput, hidden_by_order
from bertine.names import InputFormat
from bertine.objectives.base import LossDefaults, Term
from bertine.options.instances import InstanceSettings
from bertine.options.objectives import ObjectiveOptions, PermutationOptions

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer

#: Places in a sequence are rounded up to a multiple of it, so that shapes come again.
_PLACES = 8


@dataclass
class EncodedGuesses(XlnetOutput):
    """The states of the places that are guessed.

    Attributes:
        last_hidden_state: [B, Q, H]; those of a sequence stand first, in their order.
        slots: int64 [P], where the guessed tokens (``plm_positions``) are among the B * Q.
    """

    slots: Tensor | None = None


class Plm(LossDefaults):
    """Minimize the mean cross-entropy of the tokens that are guessed, each given those that are
    known before it and its own place.

    Every layer computes two streams: the states of the text, of which a token that is guessed sees
    itself and what is known before it, and those of the places, which do not see themselves. The
    places look at the text by the same weights (:mod:`bertine.models.xlnet.attention`).

    With a memory, both also look at the text before the sequence, whose states are computed first,
    without a gradient. In the published code they are those of the step before, by the weights of
    that step, and reach further back through a memory of their own; computed anew they need no
    state beside the weights, so that a batch stays a function of data, seed and step.

    Args:
        options: what is guessed, and in which order.
    """

    name: ClassVar[str] = "plm"
    formats: ClassVar[tuple[InputFormat, ...]] = (
        *PAIR_FORMATS,
        "full-sentences",
        "doc-sentences",
        *ORDER_FORMATS,
    )

    def __init__(self, options: PermutationOptions | None = None) -> None:
        self.options = options or PermutationOptions()

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with these shares and lengths."""
        return type(self)(PermutationOptions.of(options))

    def settings(self) -> dict[str, Any]:
        """Return the options of the objective."""
        return self.options.values()

    def corruption(self, tokenizer: Tokenizer, settings: InstanceSettings) -> PermutedTokens:
        """Choose tokens and the order in which they are guessed."""
        return PermutedTokens(tokenizer, settings, self.options)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Make the head for `config`."""
        return new_head(config, "plm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the tokens that are guessed."""
        return {"plm": batch.targets["plm_labels"].numel()}

    def encode(self, model: Model, batch: Batch) -> EncodedGuesses:
        """Compute the states of the places that are guessed, beside those of the text."""
        targets = batch.targets
        width = batch.input_ids.shape[1]
        places, slots = by_sequence(targets["plm_positions"], batch.num_sequences, width)
        backwards = targets.get("backwards")
        # A micro-batch may be narrower than the batch that the order comes from.
        hidden = hidden_by_order(targets["guessing_order"][:, :width])
        backbone = cast(XlnetBackbone, model.backbone)
        memory, seen = None, targets.get("memory_mask")
        if seen is not None:
            with torch.no_grad():
                memory = backbone(
                    targets["memory_ids"], seen, output_memory=True, backwards=backwards
                ).memory
        encoded = backbone(
            batch.input_ids,
            batch.attention_mask,
            batch.token_type_ids,
            memory=memory,
            memory_mask=seen,
            guesses=GuessedPlaces(places, hidden),
            backwards=backwards,
        )
        return EncodedGuesses(encoded.last_hidden_state, slots=slots)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the tokens that are guessed."""
        assert isinstance(encoded, EncodedGuesses), "encode() of the same objective made it"
        labels = batch.targets["plm_labels"]
        logits = model.read("plm", encoded, places=encoded.slots)
        total, correct = sum_cross_entropy(logits, labels)
        return {"plm": Term(total, labels.numel(), correct)}


def by_sequence(positions: Tensor, sequences: int, width: int) -> tuple[Tensor, Tensor]:
    """Return places in a batch by sequence.

    Args:
        positions: int64 [P], ascending, indices into the flattened [B*T].
        sequences: B.
        width: T.

    Returns:
        The places in their sequences, int64 [B, Q], filled with 0, and where each of `positions` is
        among these B * Q, int64 [P].
    """
    rows = positions // width
    counts = torch.bincount(rows, minlength=sequences)
    most = -(-max(1, int(counts.max())) // _PLACES) * _PLACES
    before = counts.cumsum(0) - counts
    numbers = torch.arange(len(positions), device=positions.device) - before[rows]
    slots = rows * most + numbers
    places = positions.new_zeros(sequences * most).index_copy_(0, slots, positions % width)
    return places.view(sequences, most), slots
