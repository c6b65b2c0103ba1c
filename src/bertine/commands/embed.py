"""``bertine embed``: vectors for a file of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import read_what_is_piped_in


def _add_arguments(parser: Parser) -> None:
    from bertine.options.answering import EmbedOptions

    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="a model directory of any kind, bertine-en, bertine-zh, or vectors of words, of which "
        "a text gets the mean of its words'",
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="csv, tsv, jsonl, Parquet, or plain text with one text a line; - is standard input "
        "(not given: what is piped in)",
    )
    parser.add_argument(
        "--output",
        "--out",
        metavar="FILE",
        required=True,
        help=".npy: the numbers alone; .parquet or .jsonl: the columns of the input and the vector",
    )
    add_options(parser, EmbedOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import embed

    if values["input"] is None:
        read_what_is_piped_in(values, "embed", "--input FILE")
    print("\n".join(embed(**values).lines()))


EMBED = Command(
    name="embed",
    summary="turn the texts of a file into vectors",
    description="Turn the texts of a file into vectors, in their order. The modules of a\n"
    "sentence-transformers directory (pooling, normalizing, maximum length) hold:\n\n"
    "    bertine embed MODEL --input texts.csv --output vectors.npy",
    add_arguments=_add_arguments,
    run=_run,
)
