"""``bertine pretrain``: MLM and NSP on a token store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.arguments import Parser, share, whole
from bertine.commands.command import Command
from bertine.commands.run_arguments import add_optimizer_arguments, add_run_arguments


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", type=Path, help="what 'bertine prepare' wrote")
    parser.add_argument(
        "--model",
        metavar="PRESET|DIR",
        required=True,
        help="bert-tiny, -mini, -small, -medium, -base or -large for a new model; or a model "
        "directory to go on from",
    )
    parser.add_argument(
        "--out", metavar="RUN", type=Path, required=True, help="folder of the run and its model"
    )
    length = parser.add_argument_group("how long (one of the two)")
    length.add_argument("--steps", metavar="N", type=whole(1), help="updates of the weights")
    length.add_argument("--tokens", metavar="N", type=whole(1), help="tokens to see, such as 1e8")
    _add_data_arguments(parser)
    add_optimizer_arguments(parser, learning_rate=1e-4, warmup_ratio=0.01)
    add_run_arguments(parser, checkpoint_every=1000)


def _add_data_arguments(parser: Parser) -> None:
    group = parser.add_argument_group("instances (defaults are the paper's)")
    group.add_argument(
        "--batch-size", metavar="N", type=whole(1), default=32, help="sequences in an update"
    )
    group.add_argument(
        "--max-seq-length", metavar="N", type=whole(8), default=128, help="tokens in a sequence"
    )
    group.add_argument(
        "--masked-lm-prob", metavar="P", type=share, default=0.15, help="share of tokens to predict"
    )
    group.add_argument(
        "--max-predictions-per-seq",
        metavar="N",
        type=whole(1),
        default=20,
        help="at most so many of them in a sequence",
    )
    group.add_argument(
        "--short-seq-prob",
        metavar="P",
        type=share,
        default=0.1,
        help="share of sequences made shorter on purpose",
    )


def _run(values: dict[str, Any]) -> None:
    from bertine import pretrain

    print("\n".join(pretrain(**values).lines()))


PRETRAIN = Command(
    name="pretrain",
    summary="pre-train a model on a token store",
    description="Pre-train with masked tokens and next sentences (Devlin et al. 2018). Shows the\n"
    "loss beside the unigram entropy of the corpus, which is the line to beat.",
    add_arguments=_add_arguments,
    run=_run,
)
