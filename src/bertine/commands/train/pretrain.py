"""``bertine pretrain``: MLM and NSP on a token store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from bertine.commands.options.arguments import Parser, Switch, real, share, whole
from bertine.commands.options.command import Command
from bertine.commands.options.run import add_optimizer_arguments, add_run_arguments
from bertine.names import Initialization, InputFormat, Masking, ObjectiveName


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", type=Path, help="what 'bertine prepare' wrote")
    parser.add_argument(
        "--model",
        metavar="PRESET|FILE|DIR",
        required=True,
        help="for a new model bert-tiny, -mini, -small, -medium, -base or -large, or a config.json "
        "with sizes of your own; or a model directory to go on from",
    )
    parser.add_argument(
        "--out", metavar="RUN", type=Path, required=True, help="folder of the run and its model"
    )
    length = parser.add_argument_group("how long (one of them, or the most steps in the hours)")
    parser.alternatives(
        length.add_argument("--steps", metavar="N", type=whole(1), help="updates of the weights"),
        length.add_argument(
            "--tokens", metavar="N", type=whole(1), help="tokens to see, such as 1e8"
        ),
        length.add_argument(
            "--hours",
            metavar="X",
            type=real(),
            help="wall time, kept whatever the machine's speed; with --steps or --tokens these are "
            "the most in it",
        ),
    )
    _add_objective_arguments(parser)
    _add_data_arguments(parser)
    add_optimizer_arguments(parser, learning_rate=1e-4, warmup_ratio=0.01)
    add_run_arguments(parser, checkpoint_every=1000)


def _add_objective_arguments(parser: Parser) -> None:
    group = parser.add_argument_group("what is learnt, on what")
    group.add_argument(
        "--objective",
        choices=get_args(ObjectiveName),
        default="mlm-nsp",
        help="masked tokens and next sentences, or masked tokens only",
    )
    group.add_argument(
        "--input-format",
        choices=get_args(InputFormat),
        default="segment-pair",
        help="what a sequence is made of; the last two need --objective mlm",
    )
    group.add_argument(
        "--mask-split",
        metavar="P",
        nargs=3,
        type=share,
        default=(0.8, 0.1, 0.1),
        help="of the predicted tokens, the shares masked, replaced at random, kept",
    )
    group.add_argument(
        "--initialization",
        choices=get_args(Initialization),
        default="normal",
        help="of new weights: all random, or with heads that look at neighbours and at like tokens "
        "from the first step on, which learns sooner",
    )
    group.add_argument(
        "--initializer-range",
        metavar="X",
        type=real(),
        help="standard deviation of new weights (not given: the model's, 0.02 for the presets)",
    )
    group.add_argument("--whole-word-mask", action=Switch, help="choose whole words for prediction")
    group.add_argument(
        "--masking",
        choices=get_args(Masking),
        default="dynamic",
        help="anew at every step, or in the same ways again",
    )
    group.add_argument(
        "--dupe-factor",
        metavar="N",
        type=whole(1),
        default=10,
        help="with static masking, in how many ways",
    )
    group.add_argument(
        "--held-out",
        metavar="STORE",
        type=Path,
        help="store of other text, made with the same tokenizer, to evaluate on along the way",
    )
    group.add_argument(
        "--evaluate-every",
        metavar="N",
        type=whole(1),
        help="steps between evaluations (not given: 20 in a run)",
    )
    group.add_argument(
        "--workers",
        metavar="N",
        type=whole(),
        help="processes that make batches ahead; the result is the same (not given: 0 on a CPU, "
        "1 to 4 on a GPU)",
    )
    group.add_argument(
        "--compile",
        "--no-compile",
        action=Switch,
        default=True,
        help="on a GPU, compile the model's parts: it starts slower, to be faster from then on",
    )


def _add_data_arguments(parser: Parser) -> None:
    group = parser.add_argument_group("instances (the paper's: --config paper)")
    group.add_argument(
        "--batch-size", metavar="N", type=whole(1), default=32, help="sequences in an update"
    )
    group.add_argument(
        "--max-seq-length", metavar="N", type=whole(8), default=128, help="tokens in a sequence"
    )
    group.add_argument(
        "--long-seq-length",
        metavar="N",
        type=whole(8),
        help="tokens in a sequence of a second phase, as in the paper (not given: one phase)",
    )
    group.add_argument(
        "--long-share",
        metavar="P",
        type=share,
        default=0.1,
        help="of the steps, for the second phase",
    )
    group.add_argument(
        "--masked-lm-prob", metavar="P", type=share, default=0.15, help="share of tokens to predict"
    )
    group.add_argument(
        "--max-predictions-per-seq",
        metavar="N",
        type=whole(1),
        help="at most so many of them in a sequence (not given: that share of a full one)",
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
    examples="bertine pretrain store --model bert-mini --out run --steps 20000\n"
    "bertine pretrain store --model bert-mini --out run --hours 1\n"
    "bertine pretrain store --model bert-mini --out run --hours 1 --resume",
    common=(
        "--model",
        "--out",
        "--steps",
        "--hours",
        "--tokens",
        "--batch-size",
        "--max-seq-length",
        "--learning-rate",
        "--objective",
        "--held-out",
        "--save-best",
        "--seed",
        "--resume",
        "--config",
    ),
    processes=True,
)
