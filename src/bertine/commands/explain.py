"""``bertine explain``: what each word of a text contributes to an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.options.inputs import add_texts_argument, read_what_is_piped_in
from bertine.names import ExplanationMethod


def _add_arguments(parser: Parser) -> None:
    from bertine.options.answering import ExplainOptions

    parser.add_argument("model", metavar="MODEL", type=Path, help="a fine-tuned model directory")
    add_texts_argument(parser)
    parser.add_argument(
        "--input",
        "--data",
        metavar="FILE",
        help="csv, tsv, jsonl, Parquet, or plain text with one text a line; - is standard input "
        "(not given: what is piped in)",
    )
    parser.add_argument(
        "--output",
        "--out",
        metavar="FILE",
        help="write JSON lines there, with the columns of the input; - is standard output (not "
        "given: a table for each text is printed)",
    )
    parser.add_argument(
        "--method",
        choices=get_args(ExplanationMethod),
        default="leave-one-out",
        help="leave-one-out: what the answer loses without the word; integrated-gradients: "
        "contributions that add up, from a text of nothing but masks",
    )
    parser.add_argument(
        "--label",
        metavar="LABEL",
        help="the label to explain; for a tagger the type of the entities (not given: the answer)",
    )
    parser.add_argument(
        "--word",
        metavar="WORD",
        help="of a tagger: explain the tag of this word alone, at its first place in the text (not "
        "given: the tags of all entities together)",
    )
    add_options(parser, ExplainOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import explain
    from bertine.terminal.console import say

    values["texts"] = values["texts"] or None
    if values["texts"] is None and values["input"] is None:
        read_what_is_piped_in(values, "explain", "a text, --input FILE")
    report = explain(**values)
    if values["output"] is None:
        print("\n".join(report.lines()).rstrip("\n"))
        return
    for line in report.lines():
        say(line)


EXPLAIN = Command(
    name="explain",
    summary="show which words an answer hangs on",
    description="Show what each word of a text contributes to the model's answer:\n\n"
    '    bertine explain MODEL "Arrived late, but what a book."\n'
    "    bertine explain MODEL --input new.csv --output explained.jsonl",
    add_arguments=_add_arguments,
    run=_run,
    brief=lambda values: bool(values["texts"]),
)
