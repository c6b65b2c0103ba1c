"""``bertine vocab``: train a vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from bertine.commands.options.arguments import Parser, Switch, whole
from bertine.commands.options.command import Command
from bertine.commands.options.corpus import (
    CORPUS_HELP,
    add_corpus_argument,
    add_reading_arguments,
)
from bertine.names import TokenizerKind


def _add_arguments(parser: Parser) -> None:
    add_corpus_argument(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="folder to write the tokenizer to"
    )
    group = parser.add_argument_group("vocabulary")
    group.add_argument(
        "--kind",
        choices=get_args(TokenizerKind),
        default="wordpiece",
        help="wordpiece: BERT's; byte-bpe: RoBERTa's byte-level BPE, which keeps case and accents, "
        "has no unknown characters, and takes none of the options for them",
    )
    group.add_argument(
        "--vocab-size", metavar="N", type=whole(1), default=30522, help="pieces, specials included"
    )
    group.add_argument(
        "--extend",
        metavar="DIR",
        type=Path,
        help="keep the tokens of this tokenizer or model, and add to them up to --vocab-size; text "
        "is read as it reads it",
    )
    group.add_argument(
        "--lowercase",
        "--cased",
        action=Switch,
        default=None,
        help="one case, or both (not given: one for WordPiece)",
    )
    group.add_argument(
        "--strip-accents",
        "--keep-accents",
        action=Switch,
        default=None,
        help="not given: stripped where text is lowercased, kept where it is cased",
    )
    group.add_argument(
        "--split-chinese",
        "--no-split-chinese",
        action=Switch,
        default=True,
        help="make every Chinese character a word",
    )
    group.add_argument(
        "--min-frequency", metavar="N", type=whole(1), default=2, help="rarer pieces are left out"
    )
    group.add_argument(
        "--limit-alphabet",
        metavar="N",
        type=whole(1),
        help="keep the N most frequent characters (not given: as many as make up 99.99% of the "
        "text)",
    )
    add_reading_arguments(parser)


def _run(values: dict[str, Any]) -> None:
    from bertine import train_vocab

    print("\n".join(train_vocab(**values).lines()))


VOCAB = Command(
    name="vocab",
    summary="train a vocabulary",
    description="Train a vocabulary, WordPiece or byte-level BPE, and print its report: size,\n"
    "pieces per word, share of unknown tokens on held-out text.\n" + CORPUS_HELP,
    add_arguments=_add_arguments,
    run=_run,
)
