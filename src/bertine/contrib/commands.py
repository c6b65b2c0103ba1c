"""Declare the commands of contrib: the demo, ELMo, word2vec, feature-based taggers, papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.commands.parser import (
    CORPUS_HELP,
    Command,
    Parser,
    Switch,
    add_corpus_argument,
    add_options,
    real,
    whole,
)

# ``bertine demo``: the gain from pre-training, on bundled texts.


def _add_demo_arguments(parser: Parser) -> None:
    parser.add_path("--out", "DIR", "folder for everything it makes", default=Path("bertine-demo"))
    parser.add_argument(
        "--fast",
        action=Switch,
        help="every stage in a minute, to see that all works; too short to learn much",
    )
    parser.add_argument(
        "--minutes",
        metavar="X",
        type=real(),
        help="time for the whole demo; pre-training gets what the other stages leave, at least a "
        "minute (default: 4.5; with --fast: 0.75)",
    )
    parser.add_argument("--seed", metavar="N", type=whole(), default=0, help="random seed")


DEMO = Command(
    name="demo",
    summary="see what pre-training is worth, in minutes",
    description="Teach bertine-en a task with a few labels, pre-train another model before your\n"
    "eyes, compare them on that task, and write a report: about 5 minutes on 2 cores.",
    add_arguments=_add_demo_arguments,
    verb="run_demo",
)


# ``bertine pretrain-elmo``: two language models over words.


def _add_pretrain_elmo_arguments(parser: Parser) -> None:
    add_corpus_argument(parser)
    parser.add_argument(
        "--model",
        metavar="SIZE|FILE|DIR",
        required=True,
        help="for a new model elmo-tiny, -mini, -small, -medium or -original, or a config.json "
        "with sizes of your own; or an ELMo to go on from",
    )
    parser.require_path("--out", "RUN", "folder of the run and its model")


PRETRAIN_ELMO = Command(
    name="pretrain-elmo",
    summary="train an ELMo on text",
    description="Train ELMo: a language model forwards and one backwards, over characters of\n"
    "words (Peters et al. 2018).\n" + CORPUS_HELP,
    add_arguments=_add_pretrain_elmo_arguments,
    options="bertine.contrib.options:ElmoOptions",
)


# ``bertine word2vec``: a vector for each word of a corpus.


def _add_word2vec_arguments(parser: Parser) -> None:
    add_corpus_argument(parser)
    parser.require_path(
        "--out", "VECTORS", "folder to write, or a .bin, .txt or .vec file of word2vec's"
    )


WORD2VEC = Command(
    name="word2vec",
    summary="train a vector for each word",
    description="Train a vector for each word of a corpus, the same wherever it stands: skip-gram\n"
    "or CBOW with negative sampling. One thread does some hundred thousand words a\n"
    "second; a run that was stopped goes on with --resume.\n" + CORPUS_HELP,
    add_arguments=_add_word2vec_arguments,
    options="bertine.contrib.options:Word2VecOptions",
)


# ``bertine feature-based``: taggers and classifiers over a frozen model, in a table.


def _add_feature_based_arguments(parser: Parser) -> None:
    parser.add_model(
        "model directory of an encoder or an ELMo, or vectors of words (bertine word2vec)"
    )
    parser.require_path(
        "--data",
        "PATH",
        "a file of tagged words (.conll, .jsonl), or a folder with train.*, dev.* and test.*; of "
        "texts as finetune takes them",
    )
    parser.require_path(
        "--out",
        "DIR",
        "folder of the results, the model's states, the answers and the run of fine-tuning",
    )


FEATURE_BASED = Command(
    name="feature-based",
    summary="tag words or classify texts over a frozen model: the paper's table",
    description="Tag words with a frozen encoder and a BiLSTM over its layers' states, which are\n"
    "computed once: the paper's table of seven rows, fine-tuning among them. Or with an\n"
    "ELMo and a mix of its layers, or vectors of words; or classify texts (--task).\n"
    "The table and all answers are kept, the taggers are not.",
    add_arguments=_add_feature_based_arguments,
    options="bertine.contrib.options:FeatureBasedOptions",
    examples="bertine feature-based bertine-en --data conll/ --out table\n"
    "bertine feature-based elmo --data conll/ --rows last mix --crf --out elmo-table\n"
    "bertine feature-based vectors --task text --data reviews.csv --out baseline",
)


# ``bertine paper``: a table of a paper, run at any scale.


def _add_paper_arguments(parser: Parser) -> None:
    from bertine.contrib.options import PaperOptions

    parser.add_argument(
        "name", metavar="TABLE", nargs="?", help="such as bert-5; without it the tables are listed"
    )
    parser.add_argument(
        "--corpus",
        metavar="PATH",
        nargs="+",
        help="texts to pre-train on (as for 'bertine prepare'), or a token store; tables of given "
        "weights need none",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the labelled data: glue/ with a folder for each task, squad/, swag/, "
        "race/, ner/; columns whose data are not there are left out",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the table and its runs")
    add_options(parser, PaperOptions)
    ray = next(action for action in parser.options() if action.dest == "ray")
    ray.nargs, ray.const = "?", "auto"


def _run_paper(values: dict[str, Any]) -> int:
    from bertine import BertineError, paper, paper_tables

    if values["name"] is None:
        print("\n".join(paper_tables().lines()))
        return 0
    if values["out"] is None:
        raise BertineError("--out is missing: the folder of the table")
    result = paper(**values)
    print("\n".join(result.lines()))
    return 0 if result.ok else 1


PAPER = Command(
    name="paper",
    summary="run a table of a paper at your scale",
    description="Run a table of a paper at your scale: prepare the text, pre-train each row for\n"
    "as long as the others, fine-tune each on the tasks of the columns with several seeds, and\n"
    "print the scores beside the published ones, with the order of the rows compared. Without a\n"
    "name: list the tables. Exit status 1: a step failed.",
    add_arguments=_add_paper_arguments,
    run=_run_paper,
    examples="bertine paper\n"
    "bertine paper bert-5 --corpus texts/ --data data/ --out table\n"
    "bertine paper bert-5 --corpus texts/ --data data/ --out table --resume",
    common="--corpus --data --out --model --hours --tokens --steps --seeds --rows --columns "
    "--processes --resume --rerun --config",
)
