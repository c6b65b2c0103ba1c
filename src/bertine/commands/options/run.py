"""The arguments of a training run as such; ``pretrain`` and ``finetune`` have them in common."""

from __future__ import annotations

from argparse import _ActionsContainer
from typing import get_args

from bertine.names import AnswerPrecision, Precision


def add_machine_arguments(
    parser: _ActionsContainer, *, int8: bool = False, as_trained: bool = False
) -> None:
    """``--device`` and ``--precision``: where, and in what, to compute.

    Args:
        int8: whether 8 bits can be asked for, as in answering.
        as_trained: whether ``auto`` is the precision of the model's training, as in scoring.
    """
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda or cuda:1 (not given: the GPU if there is one)"
    )
    parser.add_argument(
        "--precision",
        choices=get_args(AnswerPrecision if int8 else Precision),
        default="auto",
        help="number format to compute in; auto is "
        + (
            "the one the model was trained in (bf16 or fp32)"
            if as_trained
            else "the fastest whose outputs a check finds close to those in fp32"
            if int8
            else "bf16 where the machine has it"
        ),
    )
