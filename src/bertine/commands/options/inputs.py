"""Arguments for what several commands read: a corpus, texts on the command line, what is piped
in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.errors import BertineError

CORPUS_HELP = """
CORPUS is files or folders: plain text with a blank line between documents (.txt), or JSON lines
(.jsonl), Parquet (.parquet), csv or tsv, where each row is a document; each also compressed: .gz,
.zst, .xz.
"""


def add_corpus_argument(parser: Parser) -> None:
    """Declare CORPUS..., the first thing that a command takes."""
    parser.add_argument(
        "corpus", metavar="CORPUS", nargs="+", type=Path, help="file or folder of documents"
    )


def add_texts_argument(parser: Parser) -> None:
    """Declare TEXT..., texts on the command line, to answer."""
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        default=None,
        help="a text, or several; for a model of pairs two for each answer; for multiple choice "
        "what is given, then the choices",
    )


def read_what_is_piped_in(values: dict[str, Any], command: str, wanted: str) -> None:
    """Make standard input the input of a command that was given nothing to read.

    Args:
        values: of its arguments; ``input`` is set.
        command: its name.
        wanted: what else may be given, for the message.

    Raises:
        BertineError: standard input is a terminal, or there is none.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise BertineError(
            f"nothing to {command}; give {wanted}, or pipe texts in; see 'bertine {command} --help'"
        )
    values["input"] = "-"
