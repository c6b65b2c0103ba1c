"""Declare the commands for experiments, studies and reports, from ``search`` to ``inspect``."""

from __future__ import annotations

from typing import Any

from bertine.commands.parser import (
    Command,
    Parser,
    add_options,
    add_start_argument,
    borrow,
    whole,
)
from bertine.commands.train import FINETUNE, TASKS

# ``bertine search``: a grid of fine-tuning runs with several seeds, and the choice among them.


def _add_search_arguments(parser: Parser) -> None:
    from bertine.options.declare import names_of
    from bertine.options.experiments import SearchOptions
    from bertine.options.finetuning import FinetuneOptions

    parser.require_path("--out", "DIR", "folder of the runs, the table and the chosen model")
    add_options(parser, SearchOptions)
    ray = next(action for action in parser.options() if action.dest == "ray")
    ray.nargs, ray.const = "?", "auto"
    borrow(
        parser, FINETUNE.of_kind(parser.kind).parser(), names_of(FinetuneOptions, not_in="search")
    )


SEARCH = Command(
    name="search",
    summary="fine-tune with a grid of settings and seeds, and choose",
    description="Fine-tune with every combination of batch size, learning rate and epochs, with\n"
    "several seeds each; print mean and spread on the validation examples, choose the setting\n"
    "with the best mean, and keep the model of its best run. Runs that collapse to one answer\n"
    "are named and left out. Exit status 1: a run failed, or there is nothing to choose from.",
    add_arguments=_add_search_arguments,
    examples="bertine search text --model DIR --data reviews.csv --out search\n"
    "bertine search text --model DIR --data reviews.csv --epochs 5 --out search",
    common="--out --model --data --text-column --label-column --batch-sizes --learning-rates "
    "--epochs --restarts --paper-grid --processes --resume --config",
    kinds=TASKS,
)


# ``bertine lr-find``: a good learning rate for fine-tuning.


def _add_lr_find_arguments(parser: Parser) -> None:
    from bertine.options.declare import names_of
    from bertine.options.experiments import RisingRates
    from bertine.options.finetuning import FinetuneOptions

    parser.require_path(
        "--out", "DIR", "folder of the curve: lr-find.json, its plot (.svg) and its page (.html)"
    )
    add_options(parser, RisingRates)
    without = names_of(FinetuneOptions, not_in="lr-find")
    parser.left_out = borrow(parser, FINETUNE.of_kind(parser.kind).parser(), without)


LR_FIND = Command(
    name="lr-find",
    summary="find the learning rate to fine-tune with",
    description="Try rising learning rates on the first steps of fine-tuning, and name the one to "
    "train\nwith by the curve of the loss. The arguments are those of 'bertine finetune', and so "
    "may be\nits --config file; no weights are written.",
    add_arguments=_add_lr_find_arguments,
    examples="bertine lr-find text --model DIR --data reviews.csv --out rate",
    common="--out --model --data --text-column --label-column --batch-size --max-length --seed "
    "--config",
    kinds=TASKS,
)


# ``bertine learning-curve``: the quality of each method by the number of labels.


def _add_learning_curve_arguments(parser: Parser) -> None:
    add_start_argument(parser)
    parser.require_path(
        "--data",
        "PATH",
        "a file of labelled texts (.csv, .tsv, .jsonl, .xlsx, .parquet), of which some are held "
        "out to judge on, or a folder with train.* and dev.*, val.* or validation.*",
    )
    parser.require_path("--out", "DIR", "folder of the curve")


LEARNING_CURVE = Command(
    name="learning-curve",
    summary="see what more labels would bring, and which way to learn",
    description="Learn from 8 labels of each class to all, several draws each, in four ways:\n"
    "tf-idf with logistic regression, the model's vectors with logistic regression (frozen),\n"
    "few-shot, and fine-tuning. DIR/learning-curve.html has the plot, and says what to use now\n"
    "and what twice as many labels would bring.",
    add_arguments=_add_learning_curve_arguments,
    options="bertine.options.experiments:LearningCurveOptions",
    examples="bertine learning-curve --model DIR --data reviews.csv --out curve\n"
    "bertine learning-curve --model DIR --data r.csv --out c --methods tf-idf frozen",
    common="--model --data --out --text-column --label-column --methods --repeats --min-labels "
    "--max-labels --resume --config",
)


# ``bertine check-labels``: labels of a file that are probably wrong.


def _add_check_labels_arguments(parser: Parser) -> None:
    parser.add_argument("data", metavar="DATA", help="labelled file; of a folder the training file")
    add_start_argument(parser)
    parser.require_path("--out", "DIR", "folder of the check")


CHECK_LABELS = Command(
    name="check-labels",
    summary="find labels that are probably wrong",
    description="Find labels of texts, or of pairs, that are probably wrong: fine-tune a model on\n"
    "all parts of the examples but one, ask it for that one, and compare what it is sure of with\n"
    "the labels. DIR/checked.csv has all examples, with a suggested label where one is more\n"
    "probable: correct the labels there, and train on that file.",
    add_arguments=_add_check_labels_arguments,
    options="bertine.options.experiments:LabelCheckOptions",
    examples="bertine check-labels reviews.csv --model bertine-en --out check\n"
    "bertine check-labels reviews.csv --model bertine-en --frozen --out check",
    common="--model --out --text-column --label-column --folds --frozen --processes --resume "
    "--config",
)


# ``bertine suggest``: the texts to label next.


def _add_suggest_arguments(parser: Parser) -> None:
    parser.add_argument(
        "texts", metavar="FILE", help="texts: csv, tsv, jsonl, Parquet, a workbook, plain text"
    )
    parser.add_path(
        "--labelled",
        "FILE",
        "what is labelled already, in that order: the column of the texts, and one of labels (not "
        "given: the rows of FILE that have a label)",
    )
    add_start_argument(parser)
    parser.add_argument("--num", metavar="N", type=whole(1), default=50, help="texts to suggest")
    parser.add_output(
        "write the suggested rows, with all their columns and the reason: .csv, .tsv, .jsonl or "
        ".parquet; - is standard output (not given: the texts are printed)",
    )


def _run_suggest(values: dict[str, Any]) -> None:
    from bertine import suggest
    from bertine.core.console import log_all

    report = suggest(**values)
    if str(values["output"]) != "-":
        print("\n".join(report.lines()))
        return
    log_all(report.lines())


SUGGEST = Command(
    name="suggest",
    summary="choose the texts to label next",
    description="Choose the texts whose labels teach most; a fifth is set apart, to judge by. "
    "Label\nwhat comes out, add it to --labelled, and run it again:\n\n"
    "    bertine suggest texts.csv --labels refund delivery other --num 20 --out next.csv\n"
    "    bertine suggest texts.csv --labelled labelled.csv --num 50 --out next.csv",
    add_arguments=_add_suggest_arguments,
    options="bertine.options.inference:SuggestOptions",
    common="--labelled --model --num --output --labels --text-column --label-column --vectors "
    "--config",
    run=_run_suggest,
)


# ``bertine label``: a page to label texts on.


def _add_label_arguments(parser: Parser) -> None:
    parser.add_argument(
        "texts", metavar="FILE", help="texts: csv, tsv, jsonl, Parquet, a workbook, plain text"
    )
    add_start_argument(parser)
    parser.require_path(
        "--out",
        "FILE",
        "the labelled rows, .csv, .tsv or .jsonl; complete after each label, and read first if it "
        "is there",
    )


LABEL = Command(
    name="label",
    summary="label texts on a local page",
    description="Label texts on a page of this machine: keys 1 to 9, undo, skip, notes, new "
    "labels.\nThe text whose label teaches most is asked next. The file is complete after each "
    "label:\nend it when you like, and start it again to go on.",
    add_arguments=_add_label_arguments,
    options="bertine.options.inference:LabelOptions",
    examples="bertine label texts.csv --labels refund delivery other --out labelled.csv\n"
    "bertine label texts.csv --labels person place --spans --out labelled.csv",
    common="--out --labels --several --spans --text-column --label-column --model --then --vectors "
    "--port --config",
)


# ``bertine drift``: what has changed since the training.


def _add_drift_arguments(parser: Parser) -> None:
    parser.add_model("a directory of a model that chooses one label of a text")
    parser.add_argument(
        "texts", metavar="FILE", help="new texts: csv, tsv, jsonl, Parquet, a workbook, plain text"
    )
    parser.add_path(
        "--reference",
        "FILE",
        "labelled rows that the model was not trained on, to compare with (not given: those that "
        "its fine-tuning held out)",
    )
    parser.add_output(
        "write the rows to label first, with all their columns and the model's answer: .csv, "
        ".tsv, .jsonl or .parquet"
    )
    parser.add_argument("--num", metavar="N", type=whole(1), default=50, help="rows to label first")


DRIFT = Command(
    name="drift",
    summary="estimate without labels how right a model still is, and what is new",
    description="Compare new texts, without labels, with those that were held out when the model "
    "was\nfine-tuned: the estimated accuracy now, labels that have become more or less frequent, "
    "what\nis new, and which rows to label first. Exit status 1: the loss is above --fail-above.",
    add_arguments=_add_drift_arguments,
    options="bertine.options.inference:DriftOptions",
    examples="bertine drift MODEL new.csv\n"
    "bertine drift MODEL new.csv --output label-first.csv --html drift.html --fail-above 3",
)


# ``bertine blimp``: how often a model gives the right one of two sentences the higher probability.


def _add_blimp_arguments(parser: Parser) -> None:
    parser.add_model("a model directory as pre-training left it")
    parser.add_path(
        "--data",
        "PATH",
        "other minimal pairs: JSON lines with sentence_good and sentence_bad, or a folder of "
        "such files (not given: BLiMP, which is in the package)",
    )


BLIMP = Command(
    name="blimp",
    summary="score a language model on pairs of a right and a wrong sentence",
    description="Score a pre-trained model on BLiMP: how often it finds the right one of two\n"
    "sentences more probable than the wrong one, over 67,000 pairs of 67 paradigms:\n\n"
    "    bertine blimp bertine-en\n\n"
    "Masked models are asked for the pseudo-log-likelihood, GPT-1, ELMo, XLNet and BART\n"
    "for the log-probabilities that they were trained to give, ELECTRA's discriminator for\n"
    "its scores of replaced tokens. Two sentences that are equally probable count as wrong.",
    add_arguments=_add_blimp_arguments,
    options="bertine.options.inference:BlimpOptions",
)


# ``bertine report``: one HTML page for a training run.


def _add_report_arguments(parser: Parser) -> None:
    parser.add_path("run", "RUN", "folder of a run of pretrain or finetune")
    parser.add_path("--out", "FILE", "the page (report.html in RUN unless given)")


REPORT = Command(
    name="report",
    summary="one HTML page for a training run, with a diagnosis",
    description="Write one HTML page for a run, be it finished, running or killed: its curves, "
    "what\nstands out in them, masks filled along the way, scores, settings.",
    add_arguments=_add_report_arguments,
)


# ``bertine inspect``: the contents of a token store or of a model directory.


def _add_inspect_arguments(parser: Parser) -> None:
    from bertine.options.declare import declared
    from bertine.options.pretraining import InspectionOptions, ReadTexts

    parser.add_path(
        "path",
        "PATH",
        "a token store, a model of any kind, bertine-en or bertine-zh, or a preset such "
        "as bert-base (not given: this machine)",
        nargs="?",
    )
    add_options(parser, ReadTexts)
    add_options(
        parser,
        InspectionOptions,
        but=[entry.name for entry in declared(ReadTexts)],
        help={"input_format": "what an instance is made of"},
        title="of a store",
    )


INSPECT = Command(
    name="inspect",
    summary="show what a store or a model holds, and what a model reads",
    description="Show what the model will see (of a token store), or what a model is: its sizes,\n"
    "its heads, its task (of a model directory). With a text, what the model reads of it:\n\n"
    '    bertine inspect MODEL --text "my dog is cute" "he likes playing" --mask\n'
    '    bertine inspect MODEL --text "The bank of the river" --attention --html bank.html\n'
    "    bertine inspect albert-xxlarge\n"
    "    bertine inspect --presets",
    add_arguments=_add_inspect_arguments,
    brief=lambda values: bool(values["text"] or values["presets"]),
)
