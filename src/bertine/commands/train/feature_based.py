"""``bertine feature-based``: taggers and classifiers over a frozen model, in a table."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.feature_based import FeatureBasedOptions

    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="model directory of an encoder or an ELMo, or vectors of words (bertine word2vec)",
    )
    parser.require_path(
        "--data",
        "PATH",
        "a file of tagged words (.conll, .jsonl), or a folder with train.*, dev.* and test.*; of "
        "texts as finetune takes them",
    )
    parser.require_path(
        "--out",
        "DIR",
        "folder of the results, the model's states, the answers and the run of fine-tuning",
    )
    add_options(parser, FeatureBasedOptions)


FEATURE_BASED = Command(
    name="feature-based",
    summary="tag words or classify texts over a frozen model: the paper's table",
    description="Tag words with a frozen encoder and a BiLSTM over its layers' states, which are\n"
    "computed once: the paper's table of seven rows, fine-tuning among them. Or with an\n"
    "ELMo and a mix of its layers, or vectors of words; or classify texts (--task).\n"
    "The table and all answers are kept, the taggers are not.",
    add_arguments=_add_arguments,
    examples="bertine feature-based bertine-en --data conll/ --out table\n"
    "bertine feature-based elmo --data conll/ --rows last mix --crf --out elmo-table\n"
    "bertine feature-based vectors --task text --data reviews.csv --out baseline",
)
