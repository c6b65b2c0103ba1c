"""``bertine learning-curve``: how good each way of learning is with how many labels."""

from __future__ import annotations

from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.learning_curve import LearningCurveOptions

    parser.require_path("--model", "DIR", "model directory to start from, such as bertine-en")
    parser.require_path(
        "--data",
        "PATH",
        "a file of labelled texts (.csv, .tsv, .jsonl, .txt, .parquet), of which some are held out "
        "to judge on, or a folder with train.* and dev.*, val.* or validation.*",
    )
    parser.require_path("--out", "DIR", "folder of the curve")
    add_options(parser, LearningCurveOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import learning_curve

    print("\n".join(learning_curve(**values).lines()))


LEARNING_CURVE = Command(
    name="learning-curve",
    summary="see what more labels would bring, and which way to learn",
    description="Learn from 8 labels of each class to all, several draws each, in four ways:\n"
    "tf-idf with logistic regression, the model's vectors with logistic regression (frozen),\n"
    "few-shot, and fine-tuning. DIR/learning-curve.html has the plot, and says what to use now\n"
    "and what twice as many labels would bring.",
    add_arguments=_add_arguments,
    run=_run,
    examples="bertine learning-curve --model DIR --data reviews.csv --out curve\n"
    "bertine learning-curve --model DIR --data r.csv --out c --ways tf-idf frozen",
    common="--model --data --out --text-column --label-column --ways --draws --least --most "
    "--resume --config",
)
