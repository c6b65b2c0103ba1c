"""The arguments that say what a text's vector is; embedding, comparing and exporting share them."""

from __future__ import annotations

from typing import get_args

from bertine.commands.options.arguments import Parser, Switch, whole
from bertine.names import AnswerPrecision, PoolingName, VectorPooling


def add_vector_machine_arguments(parser: Parser) -> None:
    """``--device`` and ``--precision``: where, and in what, to compute vectors."""
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda or cuda:1 (not given: the GPU if there is one)"
    )
    parser.add_argument(
        "--precision",
        choices=get_args(AnswerPrecision),
        default="auto",
        help="of the computation; auto is bf16 where the machine has it; int8, on CPUs, is faster "
        "and turns vectors a little",
    )


def add_vector_arguments(parser: Parser, *, tokens: bool, normalize: bool, prompt: bool) -> None:
    """``--pooling``, ``--layer``, ``--max-length``; where it is asked for, ``--normalize`` and
    ``--prompt``; `tokens`: that pooling is a choice too."""
    group = parser.add_argument_group("vectors")
    group.add_argument(
        "--pooling",
        choices=get_args(PoolingName if tokens else VectorPooling),
        help="what becomes of the tokens' states"
        + ("; tokens: each keeps its own" if tokens else "")
        + " (not given: as the model directory says, else mean)",
    )
    group.add_argument(
        "--layer",
        metavar="N",
        type=whole(-1000),
        help="whose states: 0 are the embeddings, -1 the last layer's, -2 those before (not given: "
        "the last)",
    )
    if normalize:
        group.add_argument(
            "--normalize",
            "--no-normalize",
            action=Switch,
            default=None,
            help="to length 1; not given: as the model directory says, else not",
        )
    group.add_argument(
        "--max-length",
        metavar="N",
        type=whole(3),
        help="pieces of a text, longer ones are cut (not given: as the model directory says, else "
        "all that the model has positions for)",
    )
    if prompt:
        group.add_argument(
            "--prompt",
            metavar="NAME",
            help="one of the prompts of the model directory, put before every text; '' for none "
            "(not given: its default)",
        )
