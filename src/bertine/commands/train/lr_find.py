"""``bertine lr-find``: with which learning rate to fine-tune."""

from __future__ import annotations

from bertine.commands.options.arguments import Parser, borrow
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.commands.train.finetune import FINETUNE


def _add_arguments(parser: Parser) -> None:
    from bertine.options.fields import names_of
    from bertine.options.finetuning import FinetuneOptions
    from bertine.options.search import RisingRates

    parser.require_path(
        "--out", "DIR", "folder of the curve: lr-find.json, its plot (.svg) and its page (.html)"
    )
    add_options(parser, RisingRates)
    without = names_of(FinetuneOptions, not_in="lr-find")
    parser.left_out = borrow(parser, FINETUNE.parser(), without)


LR_FIND = Command(
    name="lr-find",
    summary="find the learning rate to fine-tune with",
    description="Try rising learning rates on the first steps of fine-tuning, and name the one to "
    "train\nwith by the curve of the loss. The arguments are those of 'bertine finetune', and so "
    "may be\nits --config file; no weights are written.",
    add_arguments=_add_arguments,
    examples="bertine lr-find text --model DIR --data reviews.csv --out rate",
    common="--out --model --data --text-column --label-column --batch-size --max-length --seed "
    "--config",
)
