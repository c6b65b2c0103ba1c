"""The arguments of a training run as such; ``pretrain`` and ``finetune`` have them in common."""

from __future__ import annotations

from argparse import _ActionsContainer

from bertine.commands.arguments import Parser, Switch, whole


def add_precision_argument(parser: _ActionsContainer) -> None:
    """``--precision``: what the matrix products are computed in."""
    parser.add_argument(
        "--precision",
        choices=("auto", "bf16", "fp32"),
        default="auto",
        help="of the computation; auto is bf16 where the machine has it",
    )


def add_run_arguments(parser: Parser, *, checkpoint_every: int | None) -> None:
    """Seed, precision, checkpoints, logs."""
    group = parser.add_argument_group("run")
    add_precision_argument(group)
    group.add_argument("--seed", metavar="N", type=whole(), default=0, help="of all that is random")
    group.add_argument(
        "--checkpoint-every",
        metavar="N",
        type=whole(1),
        default=checkpoint_every,
        help="steps between checkpoints" + ("" if checkpoint_every else " (none unless given)"),
    )
    group.add_argument(
        "--keep-checkpoints",
        metavar="N",
        type=whole(1),
        default=2,
        help="older ones are removed",
    )
    group.add_argument(
        "--log-every", metavar="N", type=whole(1), default=10, help="steps between lines of the log"
    )
    group.add_argument(
        "--tensorboard",
        action=Switch,
        help="write TensorBoard files as well (needs bertine[tensorboard])",
    )
    group.add_argument(
        "--resume",
        action=Switch,
        help="go on from the last checkpoint in the output folder, exactly as if never stopped",
    )
