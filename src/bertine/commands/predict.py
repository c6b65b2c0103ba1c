"""``bertine predict``: answers for a file of texts."""

from __future__ import annotations

from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from bertine.commands.arguments import Parser, Switch
from bertine.commands.command import Command
from bertine.commands.run_arguments import add_machine_arguments
from bertine.commands.table_arguments import (
    add_column_arguments,
    add_table_arguments,
    add_tagging_arguments,
)


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a fine-tuned model directory, or its ONNX export"
    )
    parser.add_argument(
        "--input",
        "--data",
        metavar="FILE",
        required=True,
        help="csv, tsv, jsonl, Parquet, or plain text with one text a line; for spans also "
        "SQuAD's JSON; for a tagger column files of words in place of csv and tsv; - is standard "
        "input",
    )
    parser.add_argument(
        "--output",
        "--out",
        metavar="FILE",
        default="-",
        help="where the answers go, in the format of the input (of Parquet, and tags of plain "
        "text: jsonl); named .jsonl or .parquet: that; - is standard output",
    )
    # Before the switch: a configuration file gives that a value.
    parser.add_argument(
        "--nbest",
        dest="all_probabilities",
        action="store_const",
        const=True,
        default=SUPPRESS,
        help="of spans: the 20 best answers of each question; the same as --all-probabilities",
    )
    parser.add_argument(
        "--all-probabilities", action=Switch, help="of every label, not of the best alone"
    )
    parser.add_argument(
        "--resume",
        action=Switch,
        help="of a table: go on where an earlier process was stopped, without loss or repetition",
    )
    add_column_arguments(parser, otherwise="as in training", label=False)
    add_table_arguments(parser)
    add_tagging_arguments(parser, otherwise=("as in training", "as in training"), tags=False)
    add_machine_arguments(parser, int8=True)


def _run(values: dict[str, Any]) -> None:
    from bertine import predict
    from bertine.console import say

    # The answers are the result; what was done to get them is a note.
    for line in predict(**values, show_progress=True).lines():
        say(line)


PREDICT = Command(
    name="predict",
    summary="label the texts of a file",
    description="Label the texts of a file with a fine-tuned model. The answers come in the order\n"
    "and the format of the input, its columns kept.",
    add_arguments=_add_arguments,
    run=_run,
)
