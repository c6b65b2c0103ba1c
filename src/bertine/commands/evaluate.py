"""``bertine evaluate``: score a model on labelled examples, or on held-out text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser, Switch, whole
from bertine.commands.options.command import Command
from bertine.commands.options.run import add_machine_arguments
from bertine.commands.options.table import (
    add_column_arguments,
    add_table_arguments,
    add_tagging_arguments,
)


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="a model directory")
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        required=True,
        help="a file with the columns the model was trained with, or a folder with dev.*, val.* "
        "or validation.*; for a pre-trained model, a token store of other text",
    )
    add_column_arguments(parser, otherwise="as in training", label=True)
    add_table_arguments(parser, text=False)
    add_tagging_arguments(parser, otherwise=("as in training", "as in training"), tags=True)
    parser.add_argument(
        "--worst",
        metavar="N",
        type=whole(),
        default=0,
        help="also list the N examples with the highest loss, with file and line; wrong labels are "
        "often among them, in a training file only while the model has not learned them by heart",
    )
    parser.add_argument(
        "--baselines",
        action=Switch,
        help="also score the task's baselines on these examples, fitted on the training file if it "
        "is still there and unchanged",
    )
    add_machine_arguments(parser, int8=True, as_trained=True)


def _run(values: dict[str, Any]) -> None:
    from bertine import evaluate

    print("\n".join(evaluate(**values).lines()))


EVALUATE = Command(
    name="evaluate",
    summary="score a model on labelled examples, or on held-out text",
    description="Score a fine-tuned model on labelled examples, beside the majority class; or a\n"
    "pre-trained one on a token store: MLM loss, perplexity, accuracy; NSP accuracy.",
    add_arguments=_add_arguments,
    run=_run,
)
