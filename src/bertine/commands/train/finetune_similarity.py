"""``bertine finetune similarity``: a model, and texts that are alike."""

from __future__ import annotations

from pathlib import Path

from bertine.commands.options.arguments import Parser
from bertine.commands.options.command import Command
from bertine.commands.options.group import add_options


def _add_arguments(parser: Parser) -> None:
    from bertine.options.similarity import SimilarityOptions

    parser.require_path("--model", "DIR", "model directory to start from, such as bertine-en")
    parser.require_path(
        "--data",
        "PATH",
        "a file (.csv, .tsv, .jsonl, .txt, .parquet), or a folder with train.* and dev.*, val.* or "
        "validation.*",
    )
    parser.require_path("--out", "DIR", "folder of the run and its model")
    parser.add_argument(
        "--validation",
        metavar="FILE",
        type=Path,
        help="pairs that the model is judged on, with a score (Spearman) or without (nDCG@10) (not "
        "given: that of the folder, else a tenth of the pairs is held out)",
    )
    add_options(parser, SimilarityOptions)


FINETUNE_SIMILARITY = Command(
    name="finetune-similarity",
    summary="train vectors on texts that are alike",
    description="Train a model to give vectors that are near where texts are alike, from pairs,\n"
    "pairs with scores, texts with labels, or texts alone. The result is a model directory that\n"
    "'bertine embed', 'similar', 'serve' and sentence-transformers open.",
    add_arguments=_add_arguments,
    examples="bertine finetune similarity --model DIR --data pairs.csv --out vectors",
    common="--model --data --out --validation --text-column --label-column --kind --loss "
    "--mine-negatives --vector-lengths --epochs --batch-size --resume "
    "--config",
)
