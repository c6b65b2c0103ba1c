"""Options of how pre-training sequences are made of a token store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.names import InputFormat, Masking
from bertine.options.fields import OptionGroup, declare, like
from bertine.options.run import Seed


class InstanceForm(OptionGroup):
    """Options that say what a sequence is, and which of its tokens may be hidden together."""

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
        "sentence-order, neighbours and running-text (:mod:`bertine.data.instances.formats`).",
    )
    whole_word_mask: bool = declare(False, "choose whole words for prediction")
    ngrams: int = declare(
        1,
        "choose runs of up to so many tokens, or whole words, shorter ones more often; ALBERT's "
        "paper has 3",
        more="A run of n comes with a probability proportional to 1/n "
        "(:mod:`bertine.data.corruption.ngrams`).",
        least=1,
        most=10,
    )
    masking: Masking = declare(
        "dynamic",
        "of the tokens to predict: anew at every step, or static, in the same `dupe_factor` ways "
        "again",
        more="See :class:`~bertine.data.instances.pretraining.PretrainingData`.",
    )


class InstanceOptions(InstanceForm, Seed):
    """Options that say how batches of sequences are made, with what the model decides still
    open."""

    title = "instances (the paper's: --config paper)"

    batch_size: int = declare(32, "sequences in an update", least=1)
    masked_lm_prob: float = declare(
        0.15, "share of the tokens that are predicted", above=0, below=1
    )
    max_predictions_per_seq: int | None = declare(
        None,
        "at most so many of them in a sequence",
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
        10, "with static masking, in how many ways; the paper's is ten", least=1
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
    """Options that say how batches of sequences are made, all that they depend on but store and
    tokenizer."""

    input_format: InputFormat = like(
        InstanceForm, "input_format", default="segment-pair", otherwise=""
    )
    mask_split: Sequence[float] = like(
        InstanceOptions, "mask_split", default=(0.8, 0.1, 0.1), otherwise=""
    )

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of the predicted tokens, those masked, replaced at random, kept."""
        masked, random, kept = self.mask_split
        return (masked, random, kept)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, for the settings of a run; what does nothing is None."""
        values = self.values() | {"mask_split": list(self.mask_split)}
        if self.input_format not in ("segment-pair", "sentence-order"):
            values["short_seq_prob"] = None
        if self.ngrams == 1:  # as runs were recorded before there was the option
            del values["ngrams"]
        if self.masking != "static":
            values["dupe_factor"] = None
        return values


class InspectionOptions(InstanceForm):
    """Options that say which instances of a store are shown."""

    title = "of a store"

    input_format: InputFormat = like(
        InstanceForm, "input_format", default="segment-pair", otherwise="", title="of a store"
    )

    num_instances: int = declare(3, "instances to show", least=0)
    seed: int = like(
        Seed,
        "seed",
        help="of the instances",
        more="The same as in ``pretrain`` shows its first ones.",
        title="of a store",
    )
    html: Path | str | None = declare(
        None, "write the same to a page for the browser", metavar="FILE"
    )
