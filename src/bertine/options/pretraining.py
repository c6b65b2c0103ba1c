"""Define the options of pre-training: its sequences, objectives, length and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bertine.core.errors import BertineError
from bertine.core.names import (
    Initialization,
    InputFormat,
    Masking,
    ObjectiveName,
)
from bertine.options.declare import OptionGroup, declare, like
from bertine.options.training import (
    DropoutRate,
    Loading,
    Machine,
    Notes,
    Patience,
    Rate,
    Resuming,
    RunOutput,
    Seed,
    Sharding,
    Updates,
    WarmUp,
)


class InstanceForm(OptionGroup):
    """The form of a sequence, and which of its tokens may be masked together."""

    title = "instances (the paper's: --config paper)"

    max_seq_length: int = declare(
        128, "tokens of a sequence with its special tokens, at the most", least=8
    )
    input_format: InputFormat | None = declare(
        None,
        "what a sequence is made of; full and doc sentences need objective mlm, rtd, clm, "
        "denoising or plm, running text needs clm, neighbours mlm-neighbours or mlm",
        otherwise="as in the model's paper: segment pairs for BERT and XLNet, sentence order for "
        "ALBERT, running text for GPT-1, full sentences for the others",
        more="One of segment-pair, sentence-pair, full-sentences, doc-sentences, "
        "sentence-order, neighbours and running-text (:mod:`bertine.corpora.formats`).",
    )
    whole_word_mask: bool = declare(False, "choose whole words for prediction")
    ngrams: int = declare(
        1,
        "choose runs of up to this many tokens, or whole words, shorter ones more often; ALBERT's "
        "paper has 3",
        more="A run of n comes with a probability proportional to 1/n "
        "(:mod:`bertine.corpora.collators`).",
        least=1,
        most=10,
    )
    masking: Masking = declare(
        "dynamic",
        "how the tokens to predict are chosen: anew at every step, or (static) in the same "
        "`dupe_factor` ways again and again",
        more="See :class:`~bertine.corpora.pretraining_data.PretrainingData`.",
    )


class InstanceOptions(InstanceForm, Seed):
    """How batches of sequences are made; values that depend on the model may still be open."""

    title = "instances (the paper's: --config paper)"

    batch_size: int = declare(32, "sequences in an update", least=1)
    masked_lm_prob: float = declare(
        0.15, "share of the tokens that are predicted", above=0, below=1
    )
    max_predictions_per_seq: int | None = declare(
        None,
        "most tokens that are predicted in a sequence",
        otherwise="as many as their share asks for in a full one",
        least=1,
    )
    mask_split: Sequence[float] | None = declare(
        None,
        "of the predicted tokens, the shares that become the mask, become a random token, stay",
        otherwise="as in the objective's paper: 0.8 0.1 0.1, of rtd 0.85 0 0.15",
        values=3,
        least=0,
        most=1,
    )
    short_seq_prob: float = declare(
        0.1, "share of segment pairs that are made shorter at random", least=0, most=1
    )
    dupe_factor: int = declare(
        10,
        "with static masking: number of different maskings of the text; BERT's paper has ten",
        least=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        split = self.mask_split
        if split is None:
            return
        if len(split) != 3:
            raise BertineError(
                f"mask_split is {list(split)}, but must be three shares: masked, random, kept"
            )
        if min(split) < 0 or abs(sum(split) - 1) > 1e-6:
            raise BertineError(
                f"mask_split is {tuple(split)}, but must be three shares (masked, random, kept) "
                "that add up to 1"
            )


class InstanceSettings(InstanceOptions):
    """How batches of sequences are made: everything that they depend on except store and
    tokenizer."""

    input_format: InputFormat = like(
        InstanceForm, "input_format", default="segment-pair", otherwise=""
    )
    mask_split: Sequence[float] = like(
        InstanceOptions, "mask_split", default=(0.8, 0.1, 0.1), otherwise=""
    )

    @property
    def shares(self) -> tuple[float, float, float]:
        """The shares of the predicted tokens that are masked, replaced at random, and kept."""
        masked, random, kept = self.mask_split
        return (masked, random, kept)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for the settings of a run; options without effect are None."""
        values = self.values() | {"mask_split": list(self.mask_split)}
        if self.input_format not in ("segment-pair", "sentence-order"):
            values["short_seq_prob"] = None
        if self.ngrams == 1:  # as runs were recorded before the option existed
            del values["ngrams"]
        if self.masking != "static":
            values["dupe_factor"] = None
        return values


class ReadTexts(OptionGroup):
    """What is shown of a text as a model reads it."""

    title = "of a text, with a model"

    text: Sequence[str] | None = declare(
        None,
        "show what the model reads of this text, or of these two: pieces, ids, segments, positions",
        metavar="TEXT",
    )
    mask: bool = declare(
        False, "mask it as pre-training does; the options of a store say how, the seed which pieces"
    )
    attention: bool = declare(
        False, "also show what each piece attends to, as the mean of the heads of each layer"
    )
    layer: int | None = declare(
        None, "attention of this layer alone, from 1", otherwise="all", least=1
    )
    head: int | None = declare(
        None, "attention of this head alone, from 1", otherwise="their mean", least=1
    )
    html: Path | str | None = declare(
        None, "write the same to a page for the browser, with pictures", metavar="FILE", title=""
    )
    presets: bool = declare(False, "show the sizes of all presets in one table", title="")


class InspectionOptions(InstanceForm, ReadTexts):
    """What is shown: instances of a store, or what a model reads of a text, or sizes."""

    title = "of a store"

    input_format: InputFormat = like(
        InstanceForm, "input_format", default="segment-pair", otherwise="", title="of a store"
    )

    num_instances: int = declare(3, "instances to show", least=0)
    seed: int = like(
        Seed,
        "seed",
        help="random seed of the instances and masks",
        more="The same as in ``pretrain`` shows its first ones.",
        title="of a store",
    )


# Objectives: options of single objectives of pre-training.


class DenoisingOptions(OptionGroup):
    """Options of the objective denoising: how a text is corrupted that the model restores
    (:mod:`bertine.corpora.sequence_collators`)."""

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
    """Options of the objective plm: tokens are predicted in any order
    (:mod:`bertine.objectives.losses`)."""

    title = "guessing in any order (objective plm)"

    predict_ratio: float = declare(
        1 / 6,
        "share of the tokens that are guessed; the others are known from the beginning",
        more="1/6 is the paper's K of 6.",
        above=0,
        below=1,
    )
    longest_span: int = declare(
        5, "guess runs of up to this many words, shorter ones more often", least=1, most=50
    )
    span_context: int = declare(
        6, "tokens that are not guessed around a run, for each word of it", least=0, most=1000
    )
    permuted_length: int | None = declare(
        None,
        "permute stretches of this many tokens, and guess each before the next",
        otherwise="a sequence as a whole",
        least=1,
    )
    both_directions: bool = declare(
        False, "read the second half of every batch from the end of the text to its beginning"
    )
    memory_length: int = declare(
        0,
        "also look at this many tokens of the text before a sequence, or after it if it is read "
        "from its end; needs input_format full-sentences",
        more="Their states are computed anew at every step, and no gradient leads into them.",
        least=0,
        most=10_000,
    )


class NeighbourOptions(OptionGroup):
    """Options of the objective mlm-neighbours: neighbouring texts are recognized
    (:mod:`bertine.objectives.losses`)."""

    title = "neighbouring texts (objective mlm-neighbours)"

    neighbours_weight: float = declare(
        0.5, "weight of the loss of neighbouring texts in the sum", least=0, most=1000
    )
    similarity_temperature: float = declare(
        0.05,
        "number that the cosines of texts are divided by before they are compared",
        above=0,
        most=10,
    )


class ReplacementOptions(OptionGroup):
    """Options of the objective rtd: a generator replaces tokens, and the model detects them
    (:mod:`bertine.objectives.rtd`)."""

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
    generator_weight: float = declare(1.0, "weight of the generator's MLM loss in the sum", least=0)
    discriminator_weight: float = declare(
        50.0, "weight of the loss of replaced tokens in the sum", least=0
    )
    sampling_temperature: float = declare(
        1.0, "number that the generator's logits are divided by before a token is drawn", above=0
    )
    save_generator: bool = declare(
        False,
        "write the generator too, to ``out/generator``",
        more="It fills masks; the model has no head for them.",
        free="run",
    )


class ObjectiveOptions(NeighbourOptions, ReplacementOptions, DenoisingOptions, PermutationOptions):
    """Options of single objectives."""


#: The options of each objective that has some.
OPTIONS_OF: Mapping[str, type[OptionGroup]] = {
    "mlm-neighbours": NeighbourOptions,
    "rtd": ReplacementOptions,
    "denoising": DenoisingOptions,
    "plm": PermutationOptions,
}


# Pre-training runs.


class Length(OptionGroup):
    """The length of the training."""

    title = "how long (one of them, or the most steps in the hours)"
    alternatives: ClassVar[tuple[str, ...]] = ("steps", "tokens", "hours")

    steps: int | None = declare(None, "updates of the weights", least=1)
    tokens: int | None = declare(
        None,
        "tokens to see, such as 1e8",
        more="Turned into steps by the mean length of a batch.",
        least=1,
        most=10**15,
    )
    hours: float | None = declare(
        None,
        "wall time of the run, kept at any speed of the machine; if `steps` or `tokens` are given "
        "too, they are the upper limit",
        more="Evaluations and checkpoints count. The speed is measured first, to plan with "
        "(:mod:`bertine.training.fit`).",
        above=0,
        most=100_000,
    )


class Learning(OptionGroup):
    """The objective, the model, and the evaluation data."""

    title = "what is learnt, on what"

    objective: ObjectiveName | None = declare(
        None,
        "masked tokens and next sentences, masked tokens and the order of sentences, masked "
        "tokens and neighbouring texts, masked tokens only, replaced tokens, the next token, a "
        "text from a corrupted one, or tokens in any order",
        otherwise="as in the model's paper: mlm-nsp for BERT, mlm-sop for ALBERT, rtd for ELECTRA, "
        "clm for GPT-1, denoising for BART, plm for XLNet, mlm for the others",
    )
    initialization: Initialization = declare(
        "normal",
        "how new weights begin: all random, or with heads that look at neighbours and at like "
        "tokens from the first step on, which learns sooner",
        more="See :mod:`bertine.families.bert`.",
    )
    initializer_range: float | None = declare(
        None,
        "standard deviation of new weights",
        otherwise="the model's, 0.02 for the presets",
        more="Small models learn sooner with larger ones.",
        above=0,
        below=1,
    )
    held_out: Path | str | None = declare(
        None,
        "store of other text, made with the same tokenizer, to evaluate on along the way",
        metavar="STORE",
    )
    evaluate_every: int | None = declare(
        None,
        "steps between evaluations",
        otherwise="20 in a run",
        more="And between guesses at the same hidden words (``samples.jsonl``).",
        least=1,
        free="run",
    )


class SecondPhase(OptionGroup):
    """A second phase of longer sequences."""

    title = InstanceOptions.title

    long_seq_length: int | None = declare(
        None,
        "tokens in a sequence of a second phase, as in the paper",
        otherwise="one phase",
        more="The last `long_share` of the steps have sequences of this length. One schedule runs "
        "over both.",
        least=8,
    )
    long_share: float = declare(0.1, "share of the steps, for the second phase", above=0, below=1)


class PretrainOptions(
    Length,
    Learning,
    ObjectiveOptions,
    InstanceOptions,
    SecondPhase,
    Rate,
    WarmUp,
    Updates,
    DropoutRate,
    Patience,
    Machine,
    Sharding,
    RunOutput,
    Loading,
    Notes,
    Resuming,
):
    """All options of ``pretrain``."""

    learning_rate: float | None = like(
        Rate, "learning_rate", otherwise="1e-4, with `optimizer` lamb 1e-3, muon 3e-4"
    )
    warmup_ratio: float = like(WarmUp, "warmup_ratio", default=0.01, otherwise="")
    patience: int | None = like(
        Patience,
        "patience",
        help="stop when the MLM loss on `held_out` has not improved for this many evaluations; "
        "with objective rtd the sum of both losses",
        more="The model directory has the last weights, or with `save_best` the best ones.",
    )
    checkpoint_every: int | None = like(
        RunOutput,
        "checkpoint_every",
        default=1000,
        otherwise="none but that of the best evaluation",
        more="",
    )
    save_best: bool = declare(
        False,
        "write the model of the best evaluation on `held_out`, not of the last step",
        more="The best has the lowest MLM loss, with objective rtd the lowest sum of both losses. "
        "Its checkpoint is kept in any case.",
        title="run",
        free="run",
    )
