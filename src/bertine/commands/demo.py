"""``bertine demo``: from raw text to a model that answers, on the bundled books."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.arguments import Parser, Switch, real, whole
from bertine.commands.command import Command


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
        help="for all of it; on a slow machine pre-training is made as short as that asks "
        "(default: 5.2; with --fast: 0.75)",
    )
    parser.add_argument("--seed", metavar="N", type=whole(), default=0, help="random seed")


def _run(values: dict[str, Any]) -> None:
    from bertine import run_demo

    print("\n".join(run_demo(**values).lines()))


DEMO = Command(
    name="demo",
    summary="all of it, on the bundled books, in minutes",
    description="Train a vocabulary, prepare a store, pre-train a small BERT, fine-tune it to\n"
    "tell who wrote a passage, and write a report: under 6 minutes on 2 cores.",
    add_arguments=_add_arguments,
    run=_run,
)
