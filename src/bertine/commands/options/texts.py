"""The argument for texts that are given on the command line."""

from __future__ import annotations

from bertine.commands.options.arguments import Parser


def add_texts_argument(parser: Parser) -> None:
    """Texts on the command line, to answer."""
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        default=None,
        help="a text, or several; for a model of pairs two for each answer; for multiple choice "
        "what is given, then the choices",
    )
