"""``bertine check-labels``: which labels of a file are probably wrong."""

from __future__ import annotations

from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.label_check import LabelCheckOptions

    parser.add_argument("data", metavar="DATA", help="labelled file; of a folder the training file")
    parser.require_path("--model", "DIR", "model directory to start from, such as bertine-en")
    parser.require_path("--out", "DIR", "folder of the check")
    add_options(parser, LabelCheckOptions)


def _run(values: dict[str, Any]) -> int:
    from bertine import check_labels

    print("\n".join(check_labels(**values).lines()))
    return 0


CHECK_LABELS = Command(
    name="check-labels",
    summary="find labels that are probably wrong",
    description="Find labels of texts, or of pairs, that are probably wrong: fine-tune a model on\n"
    "all parts of the examples but one, ask it for that one, and compare what it is sure of with\n"
    "the labels. DIR/checked.csv has all examples, with a suggested label where one is more\n"
    "probable: correct the labels there, and train on that file.",
    add_arguments=_add_arguments,
    run=_run,
    examples="bertine check-labels reviews.csv --model bertine-en --out check\n"
    "bertine check-labels reviews.csv --model bertine-en --frozen --out check",
    common="--model --out --text-column --label-column --folds --frozen --processes --resume "
    "--config",
)
