"""Options of where, and in what numbers, to compute."""

from __future__ import annotations

from bertine.names import AnswerPrecision, Precision
from bertine.options.fields import NOT_KNOWN, OptionGroup, declare, like


class Device(OptionGroup):
    """Options that say where to compute."""

    title = "run"

    device: str | None = declare(
        None, "cpu, cuda or cuda:1", otherwise="the GPU if there is one", free="search"
    )


class Machine(Device):
    """Options that say where, and in what numbers, to train."""

    title = "run"

    precision: Precision = declare(
        "auto",
        "number format to compute in; auto is bf16 where it is measured to be clearly faster here",
        unknown=NOT_KNOWN,
    )


class AnsweringMachine(Device):
    """Options that say where, and in what numbers, to answer."""

    precision: AnswerPrecision = declare(
        "auto",
        "number format to compute in; auto is the fastest whose outputs a check finds close to "
        "those in fp32",
        unknown=NOT_KNOWN,
    )


class ScoringMachine(Device):
    """Options that say where, and in what numbers, to score."""

    precision: AnswerPrecision = declare(
        "auto",
        "number format to compute in; auto is the one the model was trained in (bf16 or fp32), and "
        "fp32 where bf16 is not measured to be clearly faster",
    )


class TrainedMachine(Device):
    """Options that say where to answer, in the numbers of training."""

    precision: Precision = like(ScoringMachine, "precision")


class VectorMachine(Device):
    """Options that say where, and in what numbers, to compute vectors."""

    precision: AnswerPrecision = declare(
        "auto",
        "of the computation; auto is bf16 where it is measured to be clearly faster here; int8, on "
        "CPUs, turns vectors a little",
        unknown=NOT_KNOWN,
    )


class Sharding(OptionGroup):
    """Options that say how several processes divide the model."""

    title = "run"

    shard: bool = declare(
        False,
        "under torchrun: divide weights, gradients and moments among the processes (FSDP), in "
        "place of keeping all in each",
        not_in=("search", "lr-find"),
    )
