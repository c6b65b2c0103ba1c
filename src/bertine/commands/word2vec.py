"""``bertine word2vec``: a vector for each word of a corpus."""

from __future__ import annotations

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import CORPUS_HELP, add_corpus_argument


def _add_arguments(parser: Parser) -> None:
    from bertine.options.word_vectors import Word2VecOptions

    add_corpus_argument(parser)
    parser.require_path(
        "--out", "VECTORS", "folder to write, or a .bin, .txt or .vec file of word2vec's"
    )
    add_options(parser, Word2VecOptions)


WORD2VEC = Command(
    name="word2vec",
    summary="train a vector for each word",
    description="Train a vector for each word of a corpus, the same wherever it stands: skip-gram\n"
    "or CBOW with negative sampling. One thread does some hundred thousand words a\n"
    "second; a run that was stopped goes on with --resume.\n" + CORPUS_HELP,
    add_arguments=_add_arguments,
)
