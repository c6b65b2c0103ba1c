"""The arguments that say how a corpus is read; ``vocab`` and ``prepare`` have them in common."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser, Switch

CORPUS_HELP = """
CORPUS is files or folders: plain text with a blank line between documents (.txt), or JSON lines
(.jsonl), Parquet (.parquet), csv or tsv, where each row is a document; each also compressed: .gz,
.zst, .xz.
"""


def add_corpus_argument(parser: Parser) -> None:
    """CORPUS..., the first thing that a command takes."""
    parser.add_argument(
        "corpus", metavar="CORPUS", nargs="+", type=Path, help="file or folder of documents"
    )


def add_reading_arguments(parser: Parser) -> None:
    """How to read it: the options of :class:`bertine.text.corpus.Corpus`."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--document-per-file",
        action=Switch,
        help="take each plain-text file as one document, blank lines and all",
    )
    group.add_argument(
        "--text-column",
        "--text-field",
        metavar="NAME",
        help="column or key of the text in csv, tsv, Parquet and JSON lines (not given: text, "
        "sentence, or the only column)",
    )
    group.add_argument(
        "--quotes",
        "--no-quotes",
        action=Switch,
        default=None,
        help='whether " quotes the cells of csv and tsv (not given: in csv, but not in tsv)',
    )
    group.add_argument(
        "--strict",
        action=Switch,
        help="refuse invalid UTF-8 and NUL bytes instead of replacing and counting them",
    )
