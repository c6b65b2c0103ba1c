"""``bertine evaluate``: score a model on labelled examples, or on held-out text."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.answering import EvaluateOptions

    parser.add_argument("model", metavar="MODEL", type=Path, help="a model directory")
    parser.require_path(
        "--data",
        "PATH",
        "a file with the columns the model was trained with, or a folder with dev.*, val.* "
        "or validation.*; for a pre-trained model, a token store of other text, for an ELMo that "
        "text itself; or minimal pairs as BLiMP has them",
    )
    add_options(parser, EvaluateOptions)


EVALUATE = Command(
    name="evaluate",
    summary="score a model on labelled examples, or on held-out text",
    description="Score a fine-tuned model on labelled examples, beside the majority class; or a\n"
    "pre-trained one on a token store (MLM loss, perplexity, accuracy; NSP accuracy), an\n"
    "ELMo that was trained here on text (the perplexity of both directions), or either on\n"
    "minimal pairs: how often it finds the right sentence more probable than the wrong one.",
    add_arguments=_add_arguments,
)
