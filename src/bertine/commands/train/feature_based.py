"""``bertine feature-based``: the paper's table of taggers over a frozen encoder."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.feature_based import FeatureBasedOptions

    parser.add_argument("model", metavar="MODEL", type=Path, help="model directory of the encoder")
    parser.require_path(
        "--data",
        "PATH",
        "a file of tagged words (.conll, .jsonl), or a folder with train.*, dev.* and test.*",
    )
    parser.require_path(
        "--out", "DIR", "folder of the results, the encoder's states and the run of fine-tuning"
    )
    add_options(parser, FeatureBasedOptions)


FEATURE_BASED = Command(
    name="feature-based",
    summary="tag words over a frozen encoder: the paper's table",
    description="Tag words with a frozen encoder and a BiLSTM over its layers' states, which are\n"
    "computed once: the paper's table of seven rows, fine-tuning among them.",
    add_arguments=_add_arguments,
)
