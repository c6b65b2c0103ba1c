"""``bertine distill``: a small model that does what a large one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.distillation import DistillOptions

    parser.add_argument(
        "data",
        metavar="DATA",
        type=Path,
        nargs="?",
        help="what 'bertine prepare' wrote; or texts of a task, with labels or without: a file "
        "(.csv, .tsv, .jsonl, .txt, .parquet; for tagging .conll), or a folder with train.* and "
        "dev.*, val.* or validation.*; of static vectors any texts, or nothing",
    )
    parser.require_path("--out", "RUN", "folder of the run and its model")
    add_options(parser, DistillOptions)


def _run(values: dict[str, Any]) -> None:
    from bertine import distill

    result = distill(**values)
    if hasattr(result, "write_pages"):  # a table of vectors has none
        result.write_pages()
    print("\n".join([*result.lines(), *result.next_lines()]))


DISTILL = Command(
    name="distill",
    summary="train a small model to do what a large one does",
    description="Train a small, fast model (the student) to do what a large, slow one does (the\n"
    "teacher). On texts of a task the teacher is a fine-tuned model, or a file of another\n"
    "model's answers; on a token store it is a pre-trained one (DistilBERT). With --static a\n"
    "table of word-piece vectors is made of any model, whose means take the place of its vectors.",
    add_arguments=_add_arguments,
    run=_run,
    processes=True,
    examples="bertine distill reviews.csv --teacher reviews-model --out small\n"
    "bertine distill texts.txt --teacher reviews-model --layers 0 2 4 --out s\n"
    "bertine distill new.csv --probabilities p.csv --student model --out small\n"
    "bertine distill store --teacher run --steps 20000 --out small\n"
    "bertine distill texts.txt --static --teacher model --out vectors",
    common="--teacher --probabilities --student --layers --out "
    "--static --epochs --steps --resume --config",
)
