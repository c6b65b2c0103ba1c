"""The arguments that say how a table of texts is read; evaluating and predicting share them."""

from __future__ import annotations

from argparse import _ArgumentGroup
from typing import get_args

from bertine.commands.options.arguments import Gather, Parser, Switch, whole
from bertine.names import LabelledFormat, PlainFormat, TagScheme, TextFormat


def add_column_arguments(parser: Parser, *, otherwise: str, label: bool) -> None:
    """``--text-column``, of pairs ``--text-columns``, and, where there are labels,
    ``--label-column``."""
    group = parser.add_argument_group("columns")
    group.add_argument(
        "--text-column",
        "--text-columns",
        dest="text_columns",
        action=Gather,
        metavar="NAME",
        nargs="+",
        help=f"the text, or the two texts of a pair (not given: {otherwise})",
    )
    if label:
        group.add_argument(
            "--label-column", metavar="NAME", help=f"the label (not given: {otherwise})"
        )


def add_table_arguments(
    parser: Parser, *, text: bool = True, format_option: str = "--format"
) -> None:
    """Format, quotes, strictness of :class:`bertine.tables.table.Table`; `text`: plain text, which
    has no labels, is a format too; `format_option`: what the format is called."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        format_option,
        choices=get_args(TextFormat if text else LabelledFormat),
        help="not given: told by the name of the file and its first lines; columns are column "
        "files of words",
    )
    add_mending_arguments(group)


def add_plain_table_arguments(parser: Parser) -> None:
    """``--text-column`` of a table of single texts, and how it is read."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--text-column",
        metavar="NAME",
        help="the text (not given: text, sentence, or the only column)",
    )
    group.add_argument(
        "--format",
        choices=get_args(PlainFormat),
        help="not given: told by the name of the file and its first line",
    )
    add_mending_arguments(group)


def add_mending_arguments(group: _ArgumentGroup) -> None:
    """Quotes, and strictness with what is damaged."""
    group.add_argument(
        "--quotes",
        "--no-quotes",
        action=Switch,
        default=None,
        help='whether " quotes cells; not given: as is usual for the format',
    )
    group.add_argument(
        "--strict",
        action=Switch,
        help="refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one) "
        "instead of mending, or leaving out, and counting them",
    )


def add_tagging_arguments(
    parser: Parser, *, otherwise: tuple[str, str], tags: bool
) -> _ArgumentGroup:
    """Which columns of a column file are meant and, where there are `tags`, their scheme.

    `otherwise` says where words and tags are looked for when it is not said.
    """
    group = parser.add_argument_group("tagging")
    group.add_argument(
        "--word-column",
        metavar="N",
        type=whole(1),
        help=f"number of the column of the words in a column file (not given: {otherwise[0]})",
    )
    if not tags:
        return group
    group.add_argument(
        "--tag-column",
        metavar="N",
        type=whole(1),
        help=f"number of the column of the tags (not given: {otherwise[1]})",
    )
    group.add_argument(
        "--tag-scheme",
        choices=get_args(TagScheme),
        help="how the tags mark entities; plain: they do not (not given: told by the tags)",
    )
    return group


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
