"""``bertine few-shot``: a model from a few labels of each class."""

from __future__ import annotations

from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.few_shot import FewShotOptions

    parser.require_path(
        "--model",
        "DIR",
        "model directory to start from, best one that gives texts vectors; or bertine-en "
        "(English) or bertine-zh (Chinese)",
    )
    parser.require_path(
        "--data",
        "PATH",
        "a file of labelled texts (.csv, .tsv, .jsonl, .txt, .parquet), all of which are learned "
        "from, or a folder with train.* and dev.*, val.* or validation.*",
    )
    parser.require_path("--out", "DIR", "folder of the run and its model")
    add_options(parser, FewShotOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import few_shot

    result = few_shot(**values)
    result.write_pages()
    print("\n".join([*result.lines(), *result.next_lines()]))


FEW_SHOT = Command(
    name="few-shot",
    summary="train a model on a few labels of each class",
    description="Learn from 2 to about 100 labels of each class: train the encoder so that texts\n"
    "with the same label have vectors close to each other, and fit a linear head on these. The\n"
    "model is used as that of 'bertine finetune'.",
    add_arguments=_add_arguments,
    run=_run,
    examples="bertine few-shot --model DIR --data twenty.csv --out few-model\n"
    "bertine few-shot --task multi-label --model DIR --data t.csv --out few",
    common="--model --data --out --task --text-column --label-column --max-length --seed "
    "--resume --config",
)
