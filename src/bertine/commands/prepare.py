"""``bertine prepare``: documents to a token store."""

from __future__ import annotations

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import CORPUS_HELP, add_corpus_argument


def _add_arguments(parser: Parser) -> None:
    from bertine.options.corpus import PrepareOptions

    add_corpus_argument(parser)
    parser.require_path("--tokenizer", "DIR", "folder of a tokenizer or a model, or a vocab.txt")
    parser.require_path("--out", "STORE", "folder to write the store to")
    add_options(parser, PrepareOptions)


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
)
