"""``bertine fill-mask``: what a pre-trained model would put in the place of [MASK]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser, whole
from bertine.commands.options.command import Command


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="a pre-trained model directory, or bertine-en, the one in the package",
    )
    parser.add_argument("text", metavar="TEXT", help="a text with [MASK] in it")
    parser.add_argument(
        "--top-k", metavar="K", type=whole(1), default=5, help="candidates for each [MASK]"
    )


def _run(values: dict[str, Any]) -> None:
    from bertine import fill_mask

    print("\n".join(fill_mask(**values).lines()))


FILL_MASK = Command(
    name="fill-mask",
    summary="guess the words behind [MASK]",
    description="Guess the words behind [MASK]:\n\n"
    '    bertine fill-mask MODEL "The capital of France is [MASK]."',
    add_arguments=_add_arguments,
    run=_run,
)
