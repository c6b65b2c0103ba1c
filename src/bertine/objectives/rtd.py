"""Train ELECTRA by replaced-token detection, and read and write its generator.

The sources are Clark et al. 2020, arXiv 2003.10555, sections 2 and 3, and google-research/electra,
``run_pretraining.py``.

Shape legend: B sequences, T tokens of the longest, P hidden tokens, N real tokens, H hidden size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.names import InputFormat
from bertine.core.task_info import TaskInfo
from bertine.corpora.batch import Batch
from bertine.corpora.collators import TokenReplacing
from bertine.corpora.formats import PAIR_FORMATS
from bertine.families.electra import (
    ElectraConfig,
    Generator,
    as_masked_lm,
    generator_from,
    generator_of,
    sample,
)
from bertine.hub.model_directory import load_model, save_model
from bertine.models.config import Config
from bertine.models.encoder import Encoded, Encoder
from bertine.models.heads import Model, new_head
from bertine.objectives.losses import ObjectiveWithOptions, Term, guessing_term
from bertine.options.pretraining import InstanceSettings, ObjectiveOptions, ReplacementOptions
from bertine.tokenization.tokenizer import Tokenizer

# Generator files: the generator is read from a model directory and written to one.

#: Sizes of embeddings, which a generator shares with its discriminator.
_SHARED = ("embedding_size", "max_position_embeddings", "type_vocab_size")


def read_generator(
    path: Path | str, model: Model, tokenizer: Tokenizer, dropout: float | None = None
) -> Generator:
    """Read the generator in the model directory `path`, to be trained further with `model`, whose
    embeddings replace its own.

    Args:
        tokenizer: of the model, as it was loaded.
        dropout: on hidden states and attention, instead of the generator's own rates.

    Raises:
        BertineError: there is no model, or it has another type, vocabulary or size of embeddings,
            or no MLM head.
    """
    loaded = load_model(path, dropout=dropout)
    for line in loaded.report.lines():
        logger.info(f"generator: {line}")
    if "mlm" not in loaded.model.heads:
        raise BertineError(
            f"{path}: has no MLM head, so it is no generator; give one that "
            "transformers opens as ElectraForMaskedLM"
        )
    if loaded.tokenizer.fingerprint != tokenizer.fingerprint:
        raise BertineError(
            f"{path}: its vocabulary is not that of the model; a generator and a discriminator "
            "are trained together, and go on together"
        )
    theirs, ours = loaded.config, model.config
    for name in ("model_type", "vocab_size", *_SHARED):
        wanted, held = getattr(ours, name), getattr(theirs, name)
        if held != wanted:
            raise BertineError(
                f"{path}: its {name} is {held}, but the model's is {wanted}; a generator shares "
                "the model's embeddings"
            )
    if not torch.equal(loaded.model.backbone.word_weights, model.backbone.word_weights):
        logger.warning(f"{path}: its embeddings are not the model's; the model's take their place")
    return generator_from(loaded.model)


def write_generator(out: Path, model: Model, tokenizer: Tokenizer, task: TaskInfo) -> None:
    """Write the generator of `model` as a model directory, with which masks can be filled.

    Raises:
        BertineError: the folder cannot be written.
    """
    alone = as_masked_lm(model)
    assert alone is not None
    save_model(out, alone, tokenizer, task=task)


@dataclass
class EncodedReplacements:
    """The states of a batch with replaced tokens.

    Attributes:
        encoded: the states of the model.
        replaced: bool [N], whether the real tokens (``rtd_positions``) differ from the text's.
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


class Rtd(ObjectiveWithOptions[ReplacementOptions]):
    """The generator's MLM loss plus 50 times the loss of replaced-token detection, which predicts
    for each token whether the generator put it there.

    The generator is one of the model's heads, with layers of its own over the model's embeddings
    (:class:`bertine.families.electra.Generator`), so the optimizer, checkpoints and clipping cover
    both; the discriminator is the model that is kept. No gradient passes through the drawing of
    tokens. A drawn token that equals the original counts as original. All real tokens, including
    special ones, are classified, as in the published code; for the generator 15% of the chosen
    tokens stay unchanged, as there (in the paper, none).

    Args:
        options: sizes of the generator, weights, temperature.
    """

    name: ClassVar[str] = "rtd"
    formats: ClassVar[tuple[InputFormat, ...]] = ("full-sentences", "doc-sentences", *PAIR_FORMATS)
    mask_split: ClassVar[tuple[float, float, float]] = (0.85, 0.0, 0.15)
    group: ClassVar[type[ReplacementOptions]] = ReplacementOptions

    def configured(self, options: ObjectiveOptions) -> Self:
        """Return the objective with these sizes, weights and temperature."""
        return type(self)(options)

    def settings(self) -> dict[str, Any]:
        """Return the options of the objective without the paths."""
        values = ReplacementOptions.of(self.options).values()
        return {name: value for name, value in values.items() if name != "generator"}

    @staticmethod
    def corruption(tokenizer: Tokenizer, settings: InstanceSettings) -> TokenReplacing:
        """Return the collator that masks tokens, with the random numbers for drawing others."""
        return TokenReplacing(tokenizer, settings)

    def heads(self, config: Config) -> dict[str, nn.Module]:
        """Return the discriminator's head and a generator for `config`."""
        options = self.options
        if not isinstance(config, ElectraConfig):
            raise TypeError(f"objective rtd is for ElectraConfig, not for {type(config).__name__}")
        small = config.generator(options.generator_size, options.generator_layers)
        return new_head(config, "rtd") | new_head(config, "generator", sizes=small)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count all real tokens and those that are masked for the generator."""
        labels = {"rtd": "rtd_labels", "generator": "mlm_labels"}
        return {name: batch.targets[key].numel() for name, key in labels.items()}

    def encode(self, model: Model, batch: Batch) -> EncodedReplacements:
        """Draw tokens from the generator, and encode the text with these instead of the masked
        ones."""
        generator, targets = generator_of(model), batch.targets
        assert generator is not None, "objective rtd needs a generator"
        places, labels = targets["mlm_positions"], targets["mlm_labels"]
        embeddings = cast(Encoder, model.backbone).embeddings
        logits = generator(embeddings, batch, places)
        # Before the loss, which may overwrite the logits with its gradient.
        drawn = sample(logits, targets["mlm_draws"], self.options.sampling_temperature)
        term = guessing_term(logits, labels, self.options.generator_weight)
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
