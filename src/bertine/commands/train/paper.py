"""``bertine paper``: a table of a paper, run at any scale."""

from __future__ import annotations

from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.papers import PaperOptions

    parser.add_argument(
        "name", metavar="TABLE", nargs="?", help="such as bert-5; without it the tables are listed"
    )
    parser.add_argument(
        "--corpus",
        metavar="PATH",
        nargs="+",
        help="texts to pre-train on (as for 'bertine prepare'), or a token store; tables of given "
        "weights need none",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the labelled data: glue/ with a folder for each task, squad/, swag/, ner/; "
        "columns whose data are not there are left out",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the table and its runs")
    add_options(parser, PaperOptions)
    ray = next(action for action in parser.options() if action.dest == "ray")
    ray.nargs, ray.const = "?", "auto"


def _run(values: dict[str, Any]) -> int:
    from bertine import BertineError, paper, paper_tables

    if values["name"] is None:
        print("\n".join(paper_tables().lines()))
        return 0
    if values["out"] is None:
        raise BertineError("--out is missing: the folder of the table")
    result = paper(**values)
    print("\n".join(result.lines()))
    return 0 if result.ok else 1


PAPER = Command(
    name="paper",
    summary="run a table of a paper at your scale",
    description="Run a table of a paper at your scale: prepare the text, pre-train each row for\n"
    "as long as the others, fine-tune each on the tasks of the columns with several seeds, and\n"
    "print the scores beside the published ones, with the order of the rows compared. Without a\n"
    "name: list the tables. Exit status 1: a step failed.",
    add_arguments=_add_arguments,
    run=_run,
    examples="bertine paper\n"
    "bertine paper bert-5 --corpus texts/ --data data/ --out table\n"
    "bertine paper bert-5 --corpus texts/ --data data/ --out table --resume",
    common="--corpus --data --out --model --hours --tokens --steps --seeds --rows --columns "
    "--processes --resume --again --config",
)
