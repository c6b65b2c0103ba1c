"""``bertine feature-based``: the paper's table of taggers over a frozen encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from bertine.commands.options.arguments import Parser, Switch, real, share, whole
from bertine.commands.options.command import Command
from bertine.commands.options.run import add_machine_arguments
from bertine.commands.options.table import add_column_arguments, add_tagging_arguments
from bertine.names import TaggedFormat


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="model directory of the encoder")
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        required=True,
        help="a file of tagged words (.conll, .jsonl), or a folder with train.*, dev.* and test.*",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder of the results, the encoder's states and the run of fine-tuning",
    )
    parser.add_argument(
        "--rows",
        metavar="NAME",
        nargs="+",
        help="of fine-tuning, embeddings, second-to-last, last, sum-last-four, concat-last-four, "
        "sum-all (not given: all)",
    )
    add_column_arguments(parser, otherwise="the usual names", label=True)
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--format",
        choices=get_args(TaggedFormat),
        help="not given: told by the name of the file and its first line",
    )
    reading.add_argument(
        "--strict",
        action=Switch,
        help="refuse invalid UTF-8 and NUL bytes instead of mending and counting them",
    )
    tagging = add_tagging_arguments(parser, otherwise=("the first", "the last"), tags=True)
    tagging.add_argument(
        "--document-context",
        action=Switch,
        help="fill the encoder's input with the sentences around, of the same document",
    )
    tagging.add_argument(
        "--max-length", metavar="N", type=whole(3), default=128, help="tokens of an input"
    )
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument("--epochs", metavar="N", type=whole(1), default=10, help="of the BiLSTM")
    recipe.add_argument(
        "--batch-size", metavar="N", type=whole(1), default=32, help="sentences in an update"
    )
    recipe.add_argument(
        "--learning-rate", metavar="X", type=real(), default=1e-3, help="of the BiLSTM, at first"
    )
    recipe.add_argument(
        "--lstm-size", metavar="N", type=whole(1), default=768, help="units of each direction"
    )
    recipe.add_argument(
        "--lstm-layers", metavar="N", type=whole(1), default=2, help="of the BiLSTM"
    )
    recipe.add_argument(
        "--dropout", metavar="P", type=share, default=0.5, help="around each layer of the BiLSTM"
    )
    recipe.add_argument(
        "--max-grad-norm", metavar="X", type=real(), default=5.0, help="gradients are clipped to it"
    )
    recipe.add_argument(
        "--finetune-epochs", metavar="N", type=whole(1), default=3, help="of fine-tuning"
    )
    recipe.add_argument(
        "--finetune-learning-rate", metavar="X", type=real(), default=5e-5, help="of fine-tuning"
    )
    run = parser.add_argument_group("run")
    add_machine_arguments(run)
    run.add_argument("--seed", metavar="N", type=whole(), default=0, help="random seed")
    run.add_argument(
        "--resume", action=Switch, help="keep the rows that the output folder has already"
    )


def _run(values: dict[str, Any]) -> None:
    from bertine import feature_based

    print("\n".join(feature_based(**values).lines()))


FEATURE_BASED = Command(
    name="feature-based",
    summary="tag words over a frozen encoder: the paper's table",
    description="Tag words with a frozen encoder and a BiLSTM over its layers' states, which are\n"
    "computed once: the paper's table of seven rows, fine-tuning among them.",
    add_arguments=_add_arguments,
    run=_run,
)
