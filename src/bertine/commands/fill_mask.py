"""``bertine fill-mask``: what a pre-trained model would put in the place of a mask."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser, whole
from bertine.commands.options.command import Command
from bertine.text.special import MASKS, WORDPIECE_MASK


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="a pre-trained model directory, or bertine-en or bertine-zh, which are in the package",
    )
    parser.add_argument("text", metavar="TEXT", help=f"a text with a mask in it ({MASKS})")
    parser.add_argument(
        "--top-k", metavar="K", type=whole(1), default=5, help="candidates for each mask"
    )


FILL_MASK = Command(
    name="fill-mask",
    summary=f"guess the words behind {WORDPIECE_MASK}",
    description=f"Guess the words behind {WORDPIECE_MASK}:\n\n"
    f'    bertine fill-mask MODEL "The capital of France is {WORDPIECE_MASK}."',
    add_arguments=_add_arguments,
)
