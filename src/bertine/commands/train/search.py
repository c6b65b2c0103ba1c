"""``bertine search``: a grid of fine-tuning runs with several seeds, and the choice among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser, Switch, borrow, real, whole
from bertine.commands.options.command import Command
from bertine.commands.train.finetune import FINETUNE

#: What a search has in the plural, decides itself, or means otherwise.
_OWN = (
    *("--out", "--all", "--batch-size", "--learning-rate", "--epochs", "--paper", "--seed"),
    *("--shard", "--resume", "--split-seed", "--baselines", "--frozen"),
)


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder of the runs, the table and the chosen model",
    )
    grid = parser.add_argument_group("grid")
    grid.add_argument(
        "--batch-sizes",
        metavar="N",
        nargs="+",
        type=whole(1),
        help="examples in an update (not given: as finetune by itself)",
    )
    grid.add_argument(
        "--learning-rates",
        metavar="X",
        nargs="+",
        type=real(),
        help="highest values of the rate (not given: half, once and twice that of finetune by "
        "itself)",
    )
    grid.add_argument(
        "--epochs",
        metavar="N",
        nargs="+",
        type=whole(1),
        help="passes (not given: as finetune by itself)",
    )
    grid.add_argument(
        "--seeds",
        metavar="N",
        nargs="+",
        type=whole(),
        help="of the runs of each setting (not given: the first from 0 on)",
    )
    grid.add_argument(
        "--restarts",
        metavar="N",
        type=whole(1),
        help="how many seeds, where --seeds is not given (not given: 3)",
    )
    grid.add_argument(
        "--split-seed",
        metavar="N",
        type=whole(),
        help="by which validation examples are held out where the data has none, the same for all "
        "runs (not given: 0)",
    )
    grid.add_argument(
        "--paper-grid",
        action=Switch,
        help="for the lists that are not given, use the paper's: batches of 16 and 32, rates of "
        "5e-5, 4e-5, 3e-5 and 2e-5, 2, 3 and 4 epochs",
    )
    work = parser.add_argument_group("search")
    work.add_argument(
        "--processes",
        metavar="N",
        type=whole(1),
        help="runs at a time, in processes that share the cores (not given: one after the other)",
    )
    work.add_argument(
        "--ray",
        metavar="ADDRESS",
        nargs="?",
        const="auto",
        help="let a Ray cluster do the runs (not followed by an address: auto), or 'local'; needs "
        "the package ray, and model, data and output where all its machines see them",
    )
    work.add_argument(
        "--keep-models", action=Switch, help="keep the weights of all runs, not of the best alone"
    )
    work.add_argument(
        "--resume",
        action=Switch,
        help="go on with the search in the output folder; runs that are done are not done again",
    )
    borrow(parser, FINETUNE.parser(), without=_OWN)


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
    common=(
        "--out",
        "--model",
        "--data",
        "--text-column",
        "--label-column",
        "--batch-sizes",
        "--learning-rates",
        "--epochs",
        "--restarts",
        "--paper-grid",
        "--processes",
        "--resume",
        "--config",
    ),
)
