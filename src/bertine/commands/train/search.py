"""``bertine search``: a grid of fine-tuning runs with several seeds, and the choice among them."""

from __future__ import annotations

from typing import Any

from bertine.commands.options.arguments import Parser, borrow
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.train.finetune import FINETUNE


def _add_arguments(parser: Parser) -> None:
    from bertine.options.fields import names_of
    from bertine.options.finetuning import FinetuneOptions
    from bertine.options.search import SearchOptions

    parser.require_path("--out", "DIR", "folder of the runs, the table and the chosen model")
    add_options(parser, SearchOptions)
    ray = next(action for action in parser.options() if action.dest == "ray")
    ray.nargs, ray.const = "?", "auto"
    borrow(parser, FINETUNE.parser(), names_of(FinetuneOptions, not_in="search"))


def _run(values: dict[str, Any]) -> int:
    from bertine import search

    result = search(**values)
    print("\n".join(result.lines()))
    return 0 if result.ok else 1


SEARCH = Command(
    name="search",
    summary="fine-tune with a grid of settings and seeds, and choose",
    description="Fine-tune with every combination of batch size, learning rate and epochs, with\n"
    "several seeds each; print mean and spread on the validation examples, choose the setting\n"
    "with the best mean, and keep the model of its best run. Runs that collapse to one answer\n"
    "are named and left out. Exit status 1: a run failed, or there is nothing to choose from.",
    add_arguments=_add_arguments,
    run=_run,
    examples="bertine search text --model DIR --data reviews.csv --out search\n"
    "bertine search text --model DIR --data reviews.csv --epochs 5 --out search",
    common="--out --model --data --text-column --label-column --batch-sizes --learning-rates "
    "--epochs --restarts --paper-grid --processes --resume --config",
)
