"""``bertine inspect``: show what the model will see, or what a model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from bertine.commands.options.arguments import Parser, Switch, whole
from bertine.commands.options.command import Command
from bertine.names import InputFormat, Masking


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "path", metavar="PATH", type=Path, help="a token store, a model directory or bertine-en"
    )
    group = parser.add_argument_group("of a store")
    group.add_argument(
        "--num-instances", metavar="N", type=whole(), default=3, help="instances to show"
    )
    group.add_argument(
        "--max-seq-length", metavar="N", type=whole(8), default=128, help="tokens in an instance"
    )
    group.add_argument(
        "--input-format",
        choices=get_args(InputFormat),
        default="segment-pair",
        help="what an instance is made of",
    )
    group.add_argument("--whole-word-mask", action=Switch, help="choose whole words for prediction")
    group.add_argument(
        "--masking",
        choices=get_args(Masking),
        default="dynamic",
        help="anew at every step, or in the same ways again",
    )
    group.add_argument("--seed", metavar="N", type=whole(), default=0, help="of the instances")
    group.add_argument(
        "--html", metavar="FILE", type=Path, help="write the same to a page for the browser"
    )


def _run(values: dict[str, Any]) -> None:
    from bertine import inspect

    print("\n".join(inspect(**values).lines()))


INSPECT = Command(
    name="inspect",
    summary="show what a store or a model holds",
    description="Show what the model will see (of a token store), or what a model is: its sizes,\n"
    "its heads, its task (of a model directory).",
    add_arguments=_add_arguments,
    run=_run,
)
