"""``bertine finetune``: a model, a task, labelled examples."""

from __future__ import annotations

from typing import Any, get_args

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options
from bertine.names import TaskName


def _add_arguments(parser: Parser) -> None:
    from bertine.options.finetuning import FinetuneOptions

    parser.add_argument(
        "task",
        metavar="TASK",
        choices=get_args(TaskName),
        help="text: one label for a text or a pair; multi-label: any number of them; regression: a "
        "number; choice: one of several endings; spans: the part of a context that answers a "
        "question; tagging: a tag for each word; seq2seq: a text to write; glue: a task "
        "of GLUE; squad: SQuAD v1.1 or v2.0; swag: SWAG. Vectors are trained by "
        "'bertine finetune similarity', a command of its own",
    )
    parser.require_path(
        "--model",
        "DIR",
        "model directory to start from, or a small model that is in the package: bertine-en "
        "(English) or bertine-zh (Chinese)",
    )
    parser.require_path(
        "--data",
        "PATH",
        "a file (.csv, .tsv, .jsonl, .txt, .parquet; for tagging .conll in place of .csv), or "
        "a folder with train.* and dev.*, val.* or validation.*; for GLUE the folder of its tasks' "
        "folders, or one of those; for SQuAD train-v….json, beside which dev-v….json is found",
    )
    parser.require_path("--out", "DIR", "folder of the run and its model")
    # Before the option with a value: a configuration file gives `glue_task` a value.
    parser.part("GLUE").add_argument(
        "--all",
        dest="glue_task",
        action="store_const",
        const="all",
        help="fine-tune each task that the data has, and print the table with the average (in a "
        "file: glue_task: all)",
    )
    add_options(parser, FinetuneOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import finetune

    result = finetune(**values)
    result.write_pages()
    print("\n".join([*result.lines(), *result.next_lines()]))


FINETUNE = Command(
    name="finetune",
    summary="train a model for a task on labelled examples",
    description="Train a model for a task on labelled examples, and write it as a model directory\n"
    "that 'bertine evaluate' and 'bertine predict' take.",
    add_arguments=_add_arguments,
    run=_run,
    processes=True,
    examples="bertine finetune text --model DIR --data reviews.csv --out reviews-model\n"
    "bertine finetune spans --model DIR --data questions.csv --out answers\n"
    "bertine finetune tagging --model DIR --data conll/ --out tagger",
    common="--model --data --out --text-column --label-column --epochs --batch-size "
    "--learning-rate --max-length --frozen --seed --resume --config",
)
