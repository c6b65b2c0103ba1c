"""``bertine lr-find``: between which learning rates to fine-tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser, borrow, real, whole
from bertine.commands.options.command import Command
from bertine.commands.train.finetune import FINETUNE

#: What finding a rate has no use for: it ends before an epoch does, evaluates and answers nothing,
#: writes no model, and the rate is what is sought.
_NOT_ASKED = (
    *(
        "--out",
        "--all",
        "--epochs",
        "--learning-rate",
        "--paper",
        "--warmup-steps",
        "--warmup-ratio",
    ),
    *("--schedule", "--patience", "--shard", "--checkpoint-every", "--keep-checkpoints"),
    *("--save-best", "--log-every", "--tensorboard", "--resume"),
    *("--threshold", "--max-answer-length", "--baselines", "--frozen"),
)


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder of the curve: lr-find.json, its plot (.svg) and its page (.html)",
    )
    group = parser.add_argument_group("test")
    group.add_argument(
        "--min-rate", metavar="X", type=real(), default=1e-7, help="of the first step"
    )
    group.add_argument("--max-rate", metavar="X", type=real(), default=1e-2, help="of the last one")
    group.add_argument(
        "--steps", metavar="N", type=whole(20), default=100, help="with a rising rate"
    )
    group.add_argument(
        "--warmup-steps",
        metavar="N",
        type=whole(),
        default=10,
        help="before them, at the lowest rate, in which Adam's moments fill",
    )
    parser.left_out = borrow(parser, FINETUNE.parser(), without=_NOT_ASKED)


def _run(values: dict[str, Any]) -> None:
    from bertine import lr_find

    print("\n".join(lr_find(**values).lines()))


LR_FIND = Command(
    name="lr-find",
    summary="find between which learning rates to fine-tune",
    description="Try rising learning rates on the first steps of fine-tuning, and read off the "
    "curve of the\nloss between which to train. The arguments are those of 'bertine finetune', and "
    "so may be\nits --config file; no weights are written.",
    add_arguments=_add_arguments,
    run=_run,
    examples="bertine lr-find text --model DIR --data reviews.csv --out rate",
    common=(
        "--out",
        "--model",
        "--data",
        "--text-column",
        "--label-column",
        "--batch-size",
        "--max-length",
        "--seed",
        "--config",
    ),
)
