"""``bertine glue-submission``: predictions for the GLUE leaderboard."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.machine import TrainedMachine

    parser.add_argument(
        "models",
        metavar="MODEL",
        type=Path,
        nargs="+",
        help="models of 'bertine finetune glue', or the folder of 'bertine finetune glue --all'",
    )
    parser.require_path(
        "--data", "DIR", "the folder of GLUE's tasks' folders, with their test files"
    )
    parser.require_path("--out", "FILE", "the zip file to write")
    add_options(parser, TrainedMachine)


GLUE_SUBMISSION = Command(
    name="glue-submission",
    summary="predict GLUE's test files, zipped for the leaderboard",
    description="Predict GLUE's test files and zip the answers as the leaderboard wants them:\n"
    "CoLA.tsv, SST-2.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, MNLI-m.tsv, MNLI-mm.tsv, QNLI.tsv,\n"
    "RTE.tsv, WNLI.tsv, AX.tsv. The ones for which there is no model are named.",
    add_arguments=_add_arguments,
)
