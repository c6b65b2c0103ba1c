"""``bertine predict``: answers for texts, or for a file of texts."""

from __future__ import annotations

from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser, Switch
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import add_texts_argument, read_what_is_piped_in


def _add_arguments(parser: Parser) -> None:
    from bertine.options.answering import PredictOptions

    parser.add_argument("model", metavar="MODEL", type=Path, help="a fine-tuned model directory")
    add_texts_argument(parser)
    parser.add_argument("--question", metavar="TEXT", help="for spans: a question about --context")
    parser.add_argument("--context", metavar="TEXT", help="for spans: the text with the answer")
    parser.add_argument(
        "--input",
        "--data",
        metavar="FILE",
        help="csv, tsv, jsonl, Parquet, or plain text with one text a line; for spans also "
        "SQuAD's JSON; for a tagger column files of words in place of csv and tsv; - is standard "
        "input (not given: what is piped in)",
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
        "--explain",
        action=Switch,
        help="add what each word contributes to the answer, as bertine explain does; to a file in "
        "JSON lines",
    )
    parser.add_argument(
        "--resume",
        action=Switch,
        help="of a table: go on where an earlier process was stopped, without loss or repetition",
    )
    add_options(parser, PredictOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import predict
    from bertine.terminal.console import say

    values["texts"] = values["texts"] or None
    if all(values[name] is None for name in ("texts", "question", "context", "input")):
        read_what_is_piped_in(values, "predict", "a text, --input FILE")
    # The answers are the result; what was done to get them is a note.
    for line in predict(**values).lines():
        say(line)


PREDICT = Command(
    name="predict",
    summary="answer texts, or a file of texts",
    description="Answer texts with a fine-tuned model. A file's answers come in its order and its\n"
    "format, its columns kept.\n\n"
    '    bertine predict MODEL "a text" "another"\n'
    '    bertine predict MODEL --question "Who wrote it?" --context "Ada wrote it."\n'
    "    bertine predict MODEL --input texts.csv --output answers.csv\n"
    "    sort texts.txt | bertine predict MODEL",
    add_arguments=_add_arguments,
    run=_run,
    brief=lambda values: bool(values["texts"] or values["question"]),
)
