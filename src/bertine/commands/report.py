"""``bertine report``: one HTML page for a training run."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="folder of a run of pretrain or finetune"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="the page (report.html in RUN unless given)"
    )


REPORT = Command(
    name="report",
    summary="one HTML page for a training run, with a diagnosis",
    description="Write one HTML page for a run, be it finished, running or killed: its curves, "
    "what\nstands out in them, masks filled along the way, scores, settings.",
    add_arguments=_add_arguments,
)
