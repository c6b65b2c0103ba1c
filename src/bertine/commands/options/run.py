"""The arguments of a training run as such; ``pretrain`` and ``finetune`` have them in common."""

from __future__ import annotations

from argparse import _ActionsContainer
from typing import get_args

from bertine.commands.options.arguments import Parser, Switch, real, share, whole
from bertine.names import AnswerPrecision, Precision


def add_machine_arguments(
    parser: _ActionsContainer, *, int8: bool = False, as_trained: bool = False
) -> None:
    """``--device`` and ``--precision``: where, and in what, to compute.

    Args:
        int8: whether 8 bits can be asked for, as in answering.
        as_trained: whether ``auto`` is the precision of the model's training, as in scoring.
    """
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda or cuda:1 (not given: the GPU if there is one)"
    )
    parser.add_argument(
        "--precision",
        choices=get_args(AnswerPrecision if int8 else Precision),
        default="auto",
        help="number format to compute in; auto is "
        + (
            "the one the model was trained in (bf16 or fp32)"
            if as_trained
            else "the fastest whose outputs a check finds close to those in fp32"
            if int8
            else "bf16 where the machine has it"
        ),
    )


def add_run_arguments(
    parser: Parser, *, checkpoint_every: int | None, save_best: bool | None = False
) -> None:
    """Seed, precision, checkpoints, logs. `save_best` is the default of ``--save-best``; None: the
    best model is saved where it is better by more than chance."""
    group = parser.add_argument_group("run")
    add_machine_arguments(group)
    group.add_argument(
        "--shard",
        action=Switch,
        help="under torchrun: divide weights and moments among the processes (FSDP)",
    )
    group.add_argument("--seed", metavar="N", type=whole(), default=0, help="random seed")
    group.add_argument(
        "--checkpoint-every",
        metavar="N",
        type=whole(1),
        default=checkpoint_every,
        help="steps between checkpoints" + ("" if checkpoint_every else " (not given: an epoch)"),
    )
    group.add_argument(
        "--keep-checkpoints",
        metavar="N",
        type=whole(1),
        default=2,
        help="older ones are removed, but for that of the best evaluation",
    )
    group.add_argument(
        "--save-best",
        *(["--no-save-best"] if save_best is None else []),
        action=Switch,
        default=save_best,
        help="write the model of the best evaluation, not of the last step"
        + (
            " (not given: where its score is better by more than chance)"
            if save_best is None
            else ""
        ),
    )
    group.add_argument(
        "--log-every", metavar="N", type=whole(1), default=10, help="steps between lines of the log"
    )
    group.add_argument(
        "--tensorboard",
        action=Switch,
        help="write TensorBoard files as well (needs the package tensorboard)",
    )
    group.add_argument(
        "--resume",
        action=Switch,
        help="go on from the last checkpoint in the output folder, exactly as if never stopped",
    )


def add_optimizer_arguments(
    parser: Parser, *, learning_rate: float | None, warmup_ratio: float | None
) -> None:
    """AdamW, its schedule, and what goes with an update."""
    group = parser.add_argument_group("optimizer")
    group.add_argument(
        "--learning-rate",
        metavar="X",
        type=real(),
        default=learning_rate,
        help="its highest value"
        + ("" if learning_rate is not None else " (not given: by the width of the model)"),
    )
    parser.alternatives(
        group.add_argument(
            "--warmup-steps", metavar="N", type=whole(), help="steps of warm-up (or --warmup-ratio)"
        ),
        group.add_argument(
            "--warmup-ratio",
            metavar="P",
            type=share,
            default=warmup_ratio,
            help="warm-up as a share of all steps, where --warmup-steps is not given"
            + ("" if warmup_ratio is not None else " (not given: 0.1, of one-cycle 0.3)"),
        ),
    )
    group.add_argument(
        "--weight-decay", metavar="X", type=real(), default=0.01, help="none on biases and norms"
    )
    group.add_argument("--adam-beta1", metavar="P", type=share, default=0.9, help="of AdamW")
    group.add_argument("--adam-beta2", metavar="P", type=share, default=0.999, help="of AdamW")
    group.add_argument("--adam-epsilon", metavar="X", type=real(), default=1e-6, help="of AdamW")
    group.add_argument(
        "--bias-correction",
        "--no-bias-correction",
        action=Switch,
        default=True,
        help="of AdamW; the paper's code has none",
    )
    group.add_argument(
        "--max-grad-norm", metavar="X", type=real(), default=1.0, help="gradients are clipped to it"
    )
    group.add_argument(
        "--max-tokens-per-micro-batch",
        metavar="N",
        type=whole(1),
        help="compute each update in parts of so many tokens: the same result in less memory",
    )
    group.add_argument(
        "--dropout",
        metavar="P",
        type=share,
        help="on hidden states and attention, instead of the model's own rate",
    )
