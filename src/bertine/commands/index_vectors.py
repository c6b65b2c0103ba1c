"""``bertine index-vectors``: an index of vectors, for searching among many."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.vectors import IndexOptions

    parser.add_argument(
        "vectors", metavar="VECTORS", type=Path, help="a .npy that 'bertine embed' wrote"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="folder of the index"
    )
    add_options(parser, IndexOptions)


INDEX_VECTORS = Command(
    name="index-vectors",
    summary="make an index of vectors, for many searches among many",
    description="Make an index of vectors, with which 'bertine similar' reads a small part of\n"
    "them for each query. Its scores are exact, but some of the nearest rows may be\n"
    "missed: how many is measured. Needs the package faiss-cpu. Without an index a\n"
    "search reads all vectors, which takes some tenths of a second for a million, so an\n"
    "index is for thousands of queries, or for several million vectors:\n\n"
    "    bertine index-vectors vectors.npy --out vectors-index\n"
    "    bertine similar --queries queries.txt --in vectors.npy --index vectors-index \\\n"
    "        --texts texts.csv --model MODEL --output nearest.csv",
    add_arguments=_add_arguments,
)
