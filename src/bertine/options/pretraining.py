"""Options of pre-training."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from bertine.names import Initialization, ObjectiveName
from bertine.options.fields import OptionGroup, declare, like
from bertine.options.instances import InstanceOptions
from bertine.options.machine import Machine, Sharding
from bertine.options.objectives import ObjectiveOptions
from bertine.options.optimization import DropoutRate, Patience, Rate, Updates, WarmUp
from bertine.options.run import Loading, Notes, Resuming, RunOutput


class Length(OptionGroup):
    """Options that say how long to train."""

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
        "wall time, kept whatever the machine's speed; with `steps` or `tokens` these are the most "
        "in it",
        more="Evaluations and checkpoints count. The speed is measured first, to plan with "
        "(:mod:`bertine.training.loop.progress`).",
        above=0,
        most=100_000,
    )


class Learning(OptionGroup):
    """Options that say what is learnt, by which model, and what it is evaluated on."""

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
        "of new weights: all random, or with heads that look at neighbours and at like tokens from "
        "the first step on, which learns sooner",
        more="See :mod:`bertine.models.mimetic`.",
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
    long_share: float = declare(0.1, "of the steps, for the second phase", above=0, below=1)


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
        help="stop when the MLM loss on `held_out` was not better for so many evaluations; with "
        "objective rtd the sum of both losses",
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
