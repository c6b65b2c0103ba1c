"""``bertine pretrain``: MLM and NSP on a token store."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.pretraining import PretrainOptions

    parser.add_argument("store", metavar="STORE", type=Path, help="what 'bertine prepare' wrote")
    parser.add_argument(
        "--model",
        metavar="PRESET|FILE|DIR",
        required=True,
        help="for a new model bert-tiny, -mini, -small, -medium, -base or -large, or a config.json "
        "with sizes of your own; or a model directory to go on from",
    )
    parser.require_path("--out", "RUN", "folder of the run and its model")
    add_options(parser, PretrainOptions)


PRETRAIN = Command(
    name="pretrain",
    summary="pre-train a model on a token store",
    description="Pre-train with masked tokens and next sentences (Devlin et al. 2018). Shows the\n"
    "loss beside the unigram entropy of the corpus, which is the line to beat.",
    add_arguments=_add_arguments,
    examples="bertine pretrain store --model bert-mini --out run --steps 20000\n"
    "bertine pretrain store --model bert-mini --out run --hours 1\n"
    "bertine pretrain store --model bert-mini --out run --hours 1 --resume",
    common="--model --out --steps --hours --tokens --batch-size --max-seq-length "
    "--learning-rate --objective --held-out --save-best --seed --resume --config",
    processes=True,
)
