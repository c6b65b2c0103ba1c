"""``bertine vocab``: train a vocabulary."""

from __future__ import annotations

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import CORPUS_HELP, add_corpus_argument


def _add_arguments(parser: Parser) -> None:
    from bertine.options.corpus import VocabOptions

    add_corpus_argument(parser)
    parser.require_path("--out", "DIR", "folder to write the tokenizer to")
    add_options(parser, VocabOptions)


VOCAB = Command(
    name="vocab",
    summary="train a vocabulary",
    description="Train a vocabulary, WordPiece or byte-level BPE, and print its report: size,\n"
    "pieces per word, share of unknown tokens on held-out text.\n" + CORPUS_HELP,
    add_arguments=_add_arguments,
    verb="train_vocab",
)
