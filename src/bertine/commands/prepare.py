"""``bertine prepare``: documents to a token store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.arguments import Parser, Switch
from bertine.commands.command import Command
from bertine.commands.corpus_arguments import (
    CORPUS_HELP,
    add_corpus_argument,
    add_reading_arguments,
)


def _add_arguments(parser: Parser) -> None:
    add_corpus_argument(parser)
    parser.add_argument(
        "--tokenizer",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder of a tokenizer or a model, or a vocab.txt",
    )
    parser.add_argument(
        "--out", metavar="STORE", type=Path, required=True, help="folder to write the store to"
    )
    parser.add_argument(
        "--language",
        metavar="CODE",
        default="en",
        help="language of the text, for splitting sentences: en, de, zh, ...",
    )
    parser.add_argument(
        "--drop-duplicates",
        action=Switch,
        help="leave out documents with the same words as an earlier one (they are counted anyway)",
    )
    add_reading_arguments(parser)


def _run(values: dict[str, Any]) -> None:
    from bertine import prepare

    print("\n".join(prepare(**values).lines()))


PREPARE = Command(
    name="prepare",
    summary="turn documents into a token store",
    description="Split documents into sentences and sentences into tokens, and write them to a\n"
    "store that pre-training reads: memory-mapped, about two bytes a token.\n" + CORPUS_HELP,
    add_arguments=_add_arguments,
    run=_run,
)
