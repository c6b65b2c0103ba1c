"""Replaced-token detection (Clark et al. 2020, arXiv 2003.10555, sections 2 and 3; google-research/
electra, ``run_pretraining.py``).

Shape legend: B sequences, T tokens of the longest, P hidden tokens, N real tokens, H hidden size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch.nn.functional as F
from torch import Tensor, nn

from bertine.data.batch import Batch
from bertine.data.corruption.replaced import TokenReplacing
from bertine.data.instances.formats import PAIR_FORMATS
from bertine.models.config import Config
from bertine.models.electra.config import ElectraConfig
from bertine.models.electra.generator import generator_of
from bertine.models.electra.sampling import sample
from bertine.models.encoded import Encoded
from bertine.models.encoder import Encoder
from bertine.models.heads import new_head
from bertine.models.losses import sum_cross_entropy
from bertine.models.model import Model
from bertine.names import InputFormat
from bertine.objectives.base import LossDefaults, Term
from bertine.options.instances import InstanceSettings
from bertine.options.objectives import ObjectiveOptions, ReplacementOptions

if TYPE_CHECKING:
    from bertine.text.tokenizer import Tokenizer


@dataclass
class EncodedReplacements:
    """The states of a batch in which tokens were replaced.

    Attributes:
        encoded: the states of the model.
        replaced: bool [N], whether the real tokens (``rtd_positions``) are others than the text's.
        generator: the term of the generator's loss.
    """

    encoded: Encoded
    replaced: Tensor
    generator: Term

    @property
    def last_hidden_state(self) -> Tensor:
        return self.encoded.last_hidden_state

    @property
    def pooler_output(self) -> Tensor | None:
        return self.encoded.pooler_output

    @property
    def hidden_states(self) -> tuple[Tensor, ...] | None:
        return self.encoded.hidden_states

    @property
    def first_token(self) -> Tensor:
        return self.encoded.first_token

    def rows(self, places: Tensor) -> Tensor:
        return self.encoded.rows(places)


class Rtd(LossDefaults):
    """Minimize the generator's MLM loss plus 50 times the loss of replaced-token detection: of each
    token, whether the generator put it there.

    The generator is one of the model's heads, with layers of its own over the model's embeddings
    (:class:`bertine.models.electra.generator.Generator`), so the optimizer, checkpoints and
    clipping cover both; the discriminator is the model that is kept. No gradient goes through the
    drawing of tokens. A drawn token that is the original counts as original. All real tokens
    are classified, special ones among them, as in the published code; 15% of the chosen tokens stay
    as they are for the generator, as there too (in the paper, none).

    Args:
        options: sizes of the generator, weights, temperature.
    """

    name: ClassVar[str] = "rtd"
    formats: ClassVar[tuple[InputFormat, ...]] = ("full-sentences", "doc-sentences", *PAIR_FORMATS)
    mask_split: ClassVar[tuple[float, float, float]] = (0.85, 0.0, 0.15)

    def __init__(self, options: ReplacementOptions | None = None) -> None:
        self.options = options or ReplacementOptions()

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with these sizes, weights and temperature."""
        return type(self)(options)

    def settings(self) -> dict[str, Any]:
        """Return the options of the objective but for the paths."""
        values = ReplacementOptions.of(self.options).values()
        return {name: value for name, value in values.items() if name != "generator"}

    @staticmethod
    def corruption(tokenizer: Tokenizer, settings: InstanceSettings) -> TokenReplacing:
        """Hide tokens, and say by which numbers others are drawn."""
        return TokenReplacing(tokenizer, settings)

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """Make the discriminator's head and a generator for `config`."""
        options = self.options
        if not isinstance(config, ElectraConfig):
            raise TypeError(f"objective rtd is for ElectraConfig, not for {type(config).__name__}")
        small = config.generator(options.generator_size, options.generator_layers)
        return new_head(config, "rtd") | new_head(config, "generator", sizes=small)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count all real tokens and those that are hidden from the generator."""
        labels = {"rtd": "rtd_labels", "generator": "mlm_labels"}
        return {name: batch.targets[key].numel() for name, key in labels.items()}

    def encode(self, model: Model, batch: Batch) -> EncodedReplacements:
        """Draw tokens from the generator, and encode the text with these in the place of the
        hidden ones."""
        generator, targets = generator_of(model), batch.targets
        assert generator is not None, "objective rtd needs a generator"
        places, labels = targets["mlm_positions"], targets["mlm_labels"]
        embeddings = cast(Encoder, model.backbone).embeddings
        logits = generator(embeddings, batch, places)
        # Before the loss, which may put its gradient where the logits are.
        drawn = sample(logits, targets["mlm_draws"], self.options.sampling_temperature)
        total, correct = sum_cross_entropy(logits, labels)
        term = Term(total, labels.numel(), correct, self.options.generator_weight)
        real, original = targets["rtd_positions"], targets["rtd_labels"]
        ids = batch.input_ids.flatten().index_copy(0, places, drawn)
        replaced = ids.index_select(0, real) != original
        changed = dataclasses.replace(batch, input_ids=ids.view_as(batch.input_ids))
        return EncodedReplacements(model.encode(changed), replaced, term)

    def terms_of(self, model: Model, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Compute the loss of detecting replaced tokens, and the generator's."""
        assert isinstance(encoded, EncodedReplacements), "encode() of the same objective made it"
        replaced = encoded.replaced
        logits = model.read("rtd", encoded).flatten()
        logits = logits.index_select(0, batch.targets["rtd_positions"]).float()
        total = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="sum")
        predicted = logits.detach() > 0
        return {
            "rtd": Term(
                total,
                replaced.numel(),
                (predicted == replaced).sum(),
                self.options.discriminator_weight,
                {"replaced": replaced.sum(), "detected": (predicted & replaced).sum()},
            ),
            "generator": encoded.generator,
        }
