"""The arguments that say how a table of texts is read; evaluating and predicting share them."""

from __future__ import annotations

from bertine.commands.arguments import Parser, Switch


def add_column_arguments(parser: Parser, *, otherwise: str, label: bool) -> None:
    """``--text-columns`` and, where there are labels, ``--label-column``."""
    group = parser.add_argument_group("columns")
    group.add_argument(
        "--text-columns",
        "--text-column",
        metavar="NAME",
        nargs="+",
        help=f"the text, or the two texts of a pair (not given: {otherwise})",
    )
    if label:
        group.add_argument(
            "--label-column", metavar="NAME", help=f"the label (not given: {otherwise})"
        )


def add_table_arguments(parser: Parser, *, text: bool = True) -> None:
    """Format, quotes, strictness of :class:`bertine.tasks.tables.Table`; `text`: plain text, which
    has no labels, is a format too."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--format",
        choices=("csv", "tsv", "jsonl", "text") if text else ("csv", "tsv", "jsonl"),
        help="not given: told by the name of the file and its first line",
    )
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
        help="refuse invalid UTF-8 and NUL bytes instead of mending and counting them",
    )
