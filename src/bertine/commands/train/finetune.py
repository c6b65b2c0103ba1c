"""``bertine finetune``: a model, a task, labelled examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from bertine.commands.options.arguments import Parser, Switch, whole
from bertine.commands.options.command import Command
from bertine.commands.options.finetune import (
    add_judging_arguments,
    add_own_data_arguments,
    add_schedule_arguments,
)
from bertine.commands.options.run import add_optimizer_arguments, add_run_arguments
from bertine.commands.options.table import (
    add_column_arguments,
    add_table_arguments,
    add_tagging_arguments,
)
from bertine.names import TaskName


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "task",
        metavar="TASK",
        choices=get_args(TaskName),
        help="text: one label for a text or a pair; multi-label: any number of them; regression: a "
        "number; choice: one of several endings; spans: the part of a context that answers a "
        "question; tagging: a tag for each word; glue: a task of GLUE; squad: SQuAD v1.1 or v2.0; "
        "swag: SWAG",
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        type=Path,
        required=True,
        help="model directory to start from, or bertine-en, a small English model that is in the "
        "package",
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        required=True,
        help="a file (.csv, .tsv, .jsonl, .txt, .parquet; for tagging .conll in place of .csv), or "
        "a folder with train.* and dev.*, val.* or validation.*; for GLUE the folder of its tasks' "
        "folders, or one of those; for SQuAD train-v….json, beside which dev-v….json is found",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="folder of the run and its model"
    )
    glue = parser.add_argument_group("GLUE")
    # Before the option with a value: a configuration file gives `glue_task` a value.
    glue.add_argument(
        "--all",
        dest="glue_task",
        action="store_const",
        const="all",
        help="fine-tune each task that the data has, and print the table with the average (in a "
        "file: glue_task: all)",
    )
    glue.add_argument(
        "--glue-task",
        "--task",
        metavar="NAME",
        help="CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI",
    )
    parser.add_argument(
        "--fresh-weights",
        action=Switch,
        help="take only the architecture and the vocabulary of --model, and begin with random "
        "weights: what a model reaches without pre-training",
    )
    add_column_arguments(parser, otherwise="the usual names", label=True)
    add_table_arguments(parser, text=False)
    add_own_data_arguments(parser)
    tagging = add_tagging_arguments(parser, otherwise=("the first", "the last"), tags=True)
    tagging.add_argument(
        "--document-context",
        action=Switch,
        help="fill the input with the sentences around, of the same document (-DOCSTART-)",
    )
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument(
        "--epochs",
        metavar="N",
        type=whole(1),
        help="passes over the training examples (not given: from 3 with many examples to 25 with "
        "few)",
    )
    recipe.add_argument(
        "--batch-size",
        metavar="N",
        type=whole(1),
        help="examples in an update (not given: 16, or 32 with more than 4,000 examples)",
    )
    recipe.add_argument(
        "--paper",
        action=Switch,
        help="train as the paper does where nothing else is said: 3 epochs, batches of 32, a "
        "learning rate of 5e-5, the weights of the last epoch",
    )
    recipe.add_argument(
        "--max-length",
        metavar="N",
        type=whole(3),
        help="tokens of an example; longer ones are cut, and counted (not given: 128, spans 384)",
    )
    recipe.add_argument(
        "--split-seed",
        metavar="N",
        type=whole(),
        help="by which validation examples are held out where the data has none (not given: that "
        "of --seed)",
    )
    spans = parser.add_argument_group("spans")
    spans.add_argument(
        "--doc-stride",
        metavar="N",
        type=whole(1),
        help="tokens from one window of a long context to the next (not given: 128)",
    )
    spans.add_argument(
        "--max-question-length",
        metavar="N",
        type=whole(1),
        help="tokens of a question; longer ones are cut, and counted (not given: 64)",
    )
    spans.add_argument(
        "--max-answer-length",
        metavar="N",
        type=whole(1),
        help="tokens of the longest answer (not given: 30)",
    )
    add_optimizer_arguments(parser, learning_rate=None, warmup_ratio=None)
    add_schedule_arguments(parser)
    add_judging_arguments(parser)
    add_run_arguments(parser, checkpoint_every=None, save_best=None)


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
    common=(
        *("--model", "--data", "--out", "--text-column", "--label-column", "--epochs"),
        *("--batch-size", "--learning-rate", "--max-length", "--frozen", "--seed", "--resume"),
        "--config",
    ),
)
