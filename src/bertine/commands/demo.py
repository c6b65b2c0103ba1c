"""``bertine demo``: what reading is worth to a model, on bundled texts."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser, Switch, real, whole
from bertine.commands.options.command import Command


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("bertine-demo"),
        help="folder for everything it makes",
    )
    parser.add_argument(
        "--fast",
        action=Switch,
        help="every stage in a minute, to see that all works; too short to learn much",
    )
    parser.add_argument(
        "--minutes",
        metavar="X",
        type=real(),
        help="time for the whole demo; pre-training gets what the other stages leave, at least a "
        "minute (default: 4.5; with --fast: 0.75)",
    )
    parser.add_argument("--seed", metavar="N", type=whole(), default=0, help="random seed")


DEMO = Command(
    name="demo",
    summary="see what pre-training is worth, in minutes",
    description="Teach bertine-en a task with a few labels, pre-train another model before your\n"
    "eyes, compare them on that task, and write a report: about 5 minutes on 2 cores.",
    add_arguments=_add_arguments,
    verb="run_demo",
)
