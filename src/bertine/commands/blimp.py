"""``bertine blimp``: how often a model finds the right one of two sentences more probable."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.answering import BlimpOptions

    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a model directory as pre-training left it"
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        help="other minimal pairs: JSON lines with sentence_good and sentence_bad, or a folder of "
        "such files (not given: BLiMP, which is in the package)",
    )
    add_options(parser, BlimpOptions)


BLIMP = Command(
    name="blimp",
    summary="score a language model on pairs of a right and a wrong sentence",
    description="Score a pre-trained model on BLiMP: how often it finds the right one of two\n"
    "sentences more probable than the wrong one, over 67,000 pairs of 67 paradigms:\n\n"
    "    bertine blimp bertine-en\n\n"
    "Masked models are asked for the pseudo-log-likelihood, GPT-1, ELMo, XLNet and BART\n"
    "for the log-probabilities that they were trained to give, ELECTRA's discriminator for\n"
    "its scores of replaced tokens. Two sentences that are equally probable count as wrong.",
    add_arguments=_add_arguments,
)
