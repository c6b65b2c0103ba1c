"""``bertine inspect``: show what the model will see, or what a model is."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.instances import InspectionOptions

    parser.add_argument(
        "path",
        metavar="PATH",
        type=Path,
        help="a token store, a model directory, bertine-en or bertine-zh",
    )
    add_options(
        parser,
        InspectionOptions,
        help={"input_format": "what an instance is made of"},
        title="of a store",
    )


INSPECT = Command(
    name="inspect",
    summary="show what a store or a model holds",
    description="Show what the model will see (of a token store), or what a model is: its sizes,\n"
    "its heads, its task (of a model directory).",
    add_arguments=_add_arguments,
)
