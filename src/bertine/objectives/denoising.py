"""Denoising: a text is written out as it was, after a corrupted one was read (Lewis et al. 2019,
section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import nn

from bertine.data.batch import Batch
from bertine.data.corruption.denoising import TextCorruption
from bertine.models.config import Config
from bertine.models.encoded import Encoded
from bertine.models.heads import new_head
from bertine.models.model import Model
from bertine.names import InputFormat
from bertine.objectives.base import LossDefaults, Term
from bertine.objectives.seq2seq import count_targets, encode_and_decode, written_term
from bertine.options.instances import InstanceSettings
from bertine.options.objectives import DenoisingOptions, ObjectiveOptions

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


class Denoising(LossDefaults):
    """Minimize the mean cross-entropy of all tokens of the original text, each guessed from the
    corrupted text and the original tokens before it.

    Args:
        options: what is done to the texts; None: as in the paper (section 3), 30% of the tokens in
            spans of 3 on average, and all sentences permuted.
    """

    name: ClassVar[str] = "denoising"
    formats: ClassVar[tuple[InputFormat, ...]] = ("full-sentences", "doc-sentences")

    def __init__(self, options: DenoisingOptions | None = None) -> None:
        self.options = options or DenoisingOptions()

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with these corruptions."""
        return type(self)(DenoisingOptions.of(options))

    def settings(self) -> dict[str, Any]:
        """Return the corruptions."""
        return self.options.values()

    def corruption(self, tokenizer: Tokenizer, settings: InstanceSettings) -> TextCorruption:
        """Corrupt texts."""
        return TextCorruption(tokenizer, settings, self.options)

    @staticmethod
    def heads(config: Config) -> dict[str, nn.Module]:
        """Make the head for `config`."""
        return new_head(config, "lm")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count the tokens of the originals."""
        return {self.name: count_targets(batch)}

    def encode(self, model: Model, batch: Batch) -> Encoded:
        """Read the corrupted texts, and let the decoder read the originals."""
        return encode_and_decode(model, batch)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the cross-entropy of the originals."""
        return {self.name: written_term(model, encoded, batch)}
