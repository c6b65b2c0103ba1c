"""Options of single objectives of pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bertine.options.fields import OptionGroup, declare


class DenoisingOptions(OptionGroup):
    """Options of the objective denoising: what is done to a text that the model is to restore
    (:mod:`bertine.data.corruption.denoising`)."""

    title = "corrupted texts (objective denoising)"

    infill_share: float = declare(
        0.3, "share of the tokens in spans that one mask takes the place of", least=0, below=1
    )
    infill_length: float = declare(
        3.0,
        "mean length of these spans, in tokens or whole words",
        more="Lengths are drawn from a Poisson distribution; one of length 0 is a mask that is put "
        "in.",
        above=0,
        most=100,
    )
    permute_share: float = declare(
        1.0, "share of the sequences whose sentences change their order", least=0, most=1
    )
    mask_share: float = declare(
        0.0, "share of the tokens that become the mask one by one", least=0, below=1
    )
    delete_share: float = declare(
        0.0, "share of the tokens that are left out without a trace", least=0, below=1
    )
    rotate_share: float = declare(
        0.0,
        "share of the sequences whose texts begin with any of their tokens, what stood before it "
        "behind the end",
        least=0,
        most=1,
    )


class PermutationOptions(OptionGroup):
    """Options of the objective plm: tokens are guessed in any order
    (:mod:`bertine.objectives.plm`)."""

    title = "guessing in any order (objective plm)"

    guessed_share: float = declare(
        1 / 6,
        "share of the tokens that are guessed; the others are known from the beginning",
        more="1/6 is the paper's K of 6.",
        above=0,
        below=1,
    )
    longest_span: int = declare(
        5, "guess runs of up to so many words, shorter ones more often", least=1, most=50
    )
    span_context: int = declare(
        6, "tokens that are not guessed around a run, for each word of it", least=0, most=1000
    )
    permuted_length: int | None = declare(
        None,
        "permute stretches of so many tokens, each of which is guessed before the next",
        otherwise="a sequence as a whole",
        least=1,
    )
    both_directions: bool = declare(
        False, "read the second half of every batch from the end of the text to its beginning"
    )
    memory_length: int = declare(
        0,
        "look at so many tokens of the text before a sequence too, of one that is read from its "
        "end of the text behind it; needs input_format full-sentences",
        more="Their states are computed anew at every step, and no gradient leads into them.",
        least=0,
        most=10_000,
    )


class NeighbourOptions(OptionGroup):
    """Options of the objective mlm-neighbours: texts are recognized as neighbours
    (:mod:`bertine.objectives.mlm_neighbours`)."""

    title = "neighbouring texts (objective mlm-neighbours)"

    neighbours_weight: float = declare(
        0.5, "of the loss of neighbouring texts in the sum", least=0, most=1000
    )
    similarity_temperature: float = declare(
        0.05, "that the cosines of texts are divided by before they are compared", above=0, most=10
    )


class ReplacementOptions(OptionGroup):
    """Options of the objective rtd: a generator replaces tokens, and the model detects
    them (:mod:`bertine.objectives.rtd`)."""

    title = "replaced tokens (objective rtd)"

    generator: Path | str | None = declare(
        None,
        "model directory of a generator to go on with, as it was trained with the model",
        otherwise="a new one",
        more="It opens in transformers as ``ElectraForMaskedLM``; of its embeddings the model's "
        "take the place.",
        metavar="MODEL",
    )
    generator_size: float = declare(
        0.25,
        "share of the model's width that a new generator has; the paper's are 0.25, of the base "
        "size 0.33333",
        above=0,
        most=2,
    )
    generator_layers: float = declare(
        1.0, "share of the model's layers that a new generator has", above=0, most=2
    )
    generator_weight: float = declare(1.0, "of the generator's MLM loss in the sum", least=0)
    discriminator_weight: float = declare(
        50.0, "of the loss of replaced tokens in the sum", least=0
    )
    sampling_temperature: float = declare(
        1.0, "that the generator's logits are divided by before a token is drawn", above=0
    )
    save_generator: bool = declare(
        False,
        "write the generator too, to ``out/generator``",
        more="It fills masks; the model has no head for them.",
        free="run",
    )


class ObjectiveOptions(NeighbourOptions, ReplacementOptions, DenoisingOptions, PermutationOptions):
    """Options of single objectives."""


#: The options of each objective that has any.
OPTIONS_OF: Mapping[str, type[OptionGroup]] = {
    "mlm-neighbours": NeighbourOptions,
    "rtd": ReplacementOptions,
    "denoising": DenoisingOptions,
    "plm": PermutationOptions,
}
