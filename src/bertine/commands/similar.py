"""``bertine similar``: the texts of a file that are nearest to a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser, whole
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.answering import SimilarOptions

    parser.add_argument(
        "query", metavar="QUERY", nargs="?", help="a text (not given: those of --queries)"
    )
    parser.add_argument(
        "--queries",
        metavar="FILE",
        type=Path,
        help="a file of queries in place of one: its column query, text or sentence, or a text on "
        "each line",
    )
    parser.add_argument(
        "--in",
        "--input",
        dest="input",
        metavar="FILE",
        help="texts (csv, tsv, jsonl, Parquet, plain text), or vectors that 'bertine embed' wrote "
        "(.npy, .parquet, .jsonl; not given: with vectors of words, the words themselves)",
    )
    parser.require_path("--model", "MODEL", "a model directory of any kind, or vectors of words")
    parser.add_argument(
        "--texts",
        metavar="FILE",
        type=Path,
        help="the file that a .npy was made of (not given: rows are shown by number)",
    )
    parser.add_argument(
        "--index",
        metavar="DIR",
        type=Path,
        help="what 'bertine index-vectors' made of a .npy: a part of the vectors is read (not "
        "given: all)",
    )
    parser.add_argument(
        "--output",
        "--out",
        metavar="FILE",
        help="write a row for each of the nearest rows of each query, with all columns of both: "
        ".csv, .tsv, .jsonl or .parquet; - is standard output (not given: they are printed)",
    )
    parser.add_argument("--top", metavar="N", type=whole(1), default=10, help="rows to show")
    add_options(parser, SimilarOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import similar
    from bertine.terminal.console import say

    report = similar(**values)
    if str(values["output"]) != "-":
        print("\n".join(report.lines()))
        return
    for line in report.lines():
        say(line)


SIMILAR = Command(
    name="similar",
    summary="find the texts of a file nearest to a text",
    description="Find the texts of a file that are nearest to a text, by the cosine of their\n"
    "vectors:\n\n"
    '    bertine similar "a late delivery" --in reviews.csv --model MODEL\n\n'
    "Many queries at once, and their nearest rows as a table:\n\n"
    "    bertine similar --queries questions.csv --in answers.csv --model MODEL \\\n"
    "        --output nearest.csv\n\n"
    "With vectors of words (bertine word2vec) and no --in, find the nearest words. With\n"
    "--word compare one word as it stands in each text:\n\n"
    '    bertine similar "the bank of the river" --word bank --in texts.txt --model MODEL',
    add_arguments=_add_arguments,
    run=_run,
)
