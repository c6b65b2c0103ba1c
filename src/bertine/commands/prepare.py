"""``bertine prepare``: documents to a token store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from bertine.commands.options.arguments import Parser, Switch, real, whole
from bertine.commands.options.command import Command
from bertine.commands.options.corpus import (
    CORPUS_HELP,
    add_corpus_argument,
    add_reading_arguments,
)
from bertine.names import NearDuplicates


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
        help="of the text, for splitting sentences: en, de, zh, ... (another one: the nearest)",
    )
    parser.add_argument(
        "--drop-duplicates",
        action=Switch,
        help="leave out documents with the same words as an earlier one (they are counted anyway)",
    )
    parser.add_argument(
        "--near-duplicates",
        choices=get_args(NearDuplicates),
        default="ignore",
        help="documents nearly the same as an earlier one (count and drop need the package rensa)",
    )
    parser.add_argument(
        "--similarity",
        metavar="SHARE",
        type=real(0.01, 1.0),
        default=0.8,
        help="of near-duplicates: common 5-grams of tokens, as a share of all of both",
    )
    group = parser.add_argument_group("speed")
    group.add_argument(
        "--processes",
        metavar="N",
        type=whole(1),
        help="how many work at a time; the store is the same (default: one for each core)",
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="let a Ray cluster do it (auto, HOST:PORT), or 'local'; needs the package ray, and "
        "CORPUS and STORE where all its machines see them under the same paths",
    )
    add_reading_arguments(parser)


def _run(values: dict[str, Any]) -> None:
    from bertine import prepare

    print("\n".join(prepare(**values).lines()))


PREPARE = Command(
    name="prepare",
    summary="turn documents into a token store",
    description="Split documents into sentences and sentences into tokens, and write them to a\n"
    "store that pre-training reads: memory-mapped, about two bytes a token.\n"
    + CORPUS_HELP
    + "\nInput files are worked on side by side, a large one by one process: divide a huge one.\n"
    "Killed and run again with the same arguments, it goes on after the files that are done. Each\n"
    "process takes some 400 MB of memory, whatever the size of the corpus.",
    add_arguments=_add_arguments,
    run=_run,
)
