"""Declare the commands that train: vocabularies, token stores, models and word vectors."""

from __future__ import annotations

from typing import get_args

from bertine.commands.parser import (
    CORPUS_HELP,
    Command,
    Elsewhere,
    Parser,
    add_corpus_argument,
    add_start_argument,
)
from bertine.core.contrib import registered
from bertine.core.names import TaskName

# ``bertine vocab``: train a vocabulary.


def _add_vocab_arguments(parser: Parser) -> None:
    add_corpus_argument(parser)
    parser.require_path("--out", "DIR", "folder to write the tokenizer to")


VOCAB = Command(
    name="vocab",
    summary="train a vocabulary",
    description="Train a vocabulary, WordPiece or byte-level BPE, and print its report: size,\n"
    "pieces per word, share of unknown tokens on held-out text.\n" + CORPUS_HELP,
    add_arguments=_add_vocab_arguments,
    options="bertine.options.data:VocabOptions",
    verb="train_vocab",
)


# ``bertine prepare``: documents to a token store.


def _add_prepare_arguments(parser: Parser) -> None:
    add_corpus_argument(parser)
    parser.require_path("--tokenizer", "DIR", "folder of a tokenizer or a model, or a vocab.txt")
    parser.require_path("--out", "STORE", "folder to write the store to")


PREPARE = Command(
    name="prepare",
    summary="turn documents into a token store",
    description="Split documents into sentences and sentences into tokens, and write them to a\n"
    "store that pre-training reads: memory-mapped, about two bytes a token.\n"
    + CORPUS_HELP
    + "\nInput files are worked on side by side, a large one by one process: divide a huge one.\n"
    "Killed and run again with the same arguments, it goes on after the files that are done. Each\n"
    "process takes some 400 MB of memory, whatever the size of the corpus.",
    add_arguments=_add_prepare_arguments,
    options="bertine.options.data:PrepareOptions",
)


# ``bertine pretrain``: MLM and NSP on a token store.


def _add_pretrain_arguments(parser: Parser) -> None:
    parser.add_path("store", "STORE", "what 'bertine prepare' wrote")
    parser.add_argument(
        "--model",
        metavar="PRESET|FILE|DIR",
        required=True,
        help="for a new model bert-tiny, -mini, -small, -medium, -base or -large, or a config.json "
        "with sizes of your own; or a model directory to go on from",
    )
    parser.require_path("--out", "RUN", "folder of the run and its model")


PRETRAIN = Command(
    name="pretrain",
    summary="pre-train a model on a token store",
    description="Pre-train with masked tokens and next sentences (Devlin et al. 2018). Shows the\n"
    "loss beside the unigram entropy of the corpus, which is the line to beat.",
    add_arguments=_add_pretrain_arguments,
    options="bertine.options.pretraining:PretrainOptions",
    examples="bertine pretrain store --model bert-mini --out run --steps 20000\n"
    "bertine pretrain store --model bert-mini --out run --hours 1\n"
    "bertine pretrain store --model bert-mini --out run --hours 1 --resume",
    common="--model --out --steps --hours --tokens --batch-size --max-seq-length "
    "--learning-rate --objective --held-out --save-best --seed --resume --config",
    processes=True,
)


# ``bertine finetune``: a model for a task, from labelled examples.

#: The tasks, as `finetune`, `search` and `lr-find` list them.
TASKS: dict[str, str] = {
    "text": "one label of a text or a pair of texts",
    "multi-label": "any number of labels of a text",
    "regression": "a number for a text or a pair of texts",
    "choice": "one of several endings",
    "spans": "the part of a text that answers a question",
    "tagging": "a tag for each word",
    "seq2seq": "a text to write",
    "glue": "a task of GLUE, or all of them",
    "squad": "SQuAD v1.1 or v2.0",
    "swag": "SWAG",
}


_TABLES = (
    "a file (.csv, .tsv, .jsonl, .xlsx, .parquet), a folder with train.* and dev.*, or hf:NAME"
)
#: The data by task, where it is not a table.
_DATA = {
    "tagging": "a file (.conll, .tsv, .csv, .jsonl, .xlsx, .parquet), or a folder with train.* and "
    "dev.*",
    "glue": "the folder of its tasks' folders, or one of those",
    "squad": "train-v….json, in whose folder dev-v….json is looked for",
    "swag": "the folder of its files, or one of them",
}


def _add_finetune_arguments(parser: Parser) -> None:
    parser.add_kind("task", "TASK", get_args(TaskName), "; ".join(map(": ".join, TASKS.items())))
    add_start_argument(parser)
    parser.require_path(
        "--data",
        "PATH",
        _DATA.get(parser.kind, _TABLES)
        if parser.kind
        else "; ".join([_TABLES, *(f"of {kind} {words}" for kind, words in _DATA.items())]),
    )
    parser.require_path("--out", "DIR", "folder of the run and its model")
    if parser.kind in ("", "glue"):
        # Before the option with a value: a configuration file gives `glue_task` a value.
        parser.part("GLUE").add_argument(
            "--all",
            dest="glue_task",
            action="store_const",
            const="all",
            help="fine-tune each task that the data has, and print the table with the average (in "
            "a file: glue_task: all)",
        )
        parser.of_few_kinds.add("--all")
    else:
        parser.elsewhere["--all"] = Elsewhere("glue_task", None, ["glue"])


FINETUNE = Command(
    name="finetune",
    summary="train a model for a task on labelled examples",
    description="Train a model for a task on labelled examples, and write it as a model directory\n"
    "that 'bertine evaluate' and 'bertine predict' take. Vectors of texts are trained with\n"
    "'bertine finetune similarity'.",
    add_arguments=_add_finetune_arguments,
    options="bertine.options.finetuning:FinetuneOptions",
    processes=True,
    examples="bertine finetune text --data reviews.csv --out reviews-model\n"
    "bertine finetune spans --model DIR --data questions.csv --out answers\n"
    "bertine finetune tagging --model DIR --data conll/ --out tagger",
    common="--model --data --out --text-column --label-column --epochs --batch-size "
    "--learning-rate --max-length --frozen --seed --resume --config",
    kinds=TASKS,
)


# ``bertine finetune similarity``: a model and pairs of similar texts.


def _add_finetune_similarity_arguments(parser: Parser) -> None:
    add_start_argument(parser)
    parser.require_path(
        "--data",
        "PATH",
        "a file (.csv, .tsv, .jsonl, .xlsx, .parquet), or a folder with train.* and dev.*, val.* "
        "or validation.*",
    )
    parser.require_path("--out", "DIR", "folder of the run and its model")
    parser.add_path(
        "--validation",
        "FILE",
        "pairs that the model is judged on, with a score (Spearman) or without (nDCG@10) (not "
        "given: that of the folder, else a tenth of the pairs is held out)",
    )


FINETUNE_SIMILARITY = Command(
    name="finetune-similarity",
    summary="train vectors on texts that are alike",
    description="Train a model to give vectors that are near where texts are alike, from pairs,\n"
    "pairs with scores, texts with labels, or texts alone. The result is a model directory that\n"
    "'bertine embed', 'similar', 'serve' and sentence-transformers open.",
    add_arguments=_add_finetune_similarity_arguments,
    options="bertine.options.vectors:SimilarityOptions",
    examples="bertine finetune similarity --model DIR --data pairs.csv --out vectors",
    common="--model --data --out --validation --text-column --label-column --kind --loss "
    "--mine-negatives --vector-lengths --epochs --batch-size --resume "
    "--config",
)


# ``bertine few-shot``: a model from a few labels of each class.


def _add_few_shot_arguments(parser: Parser) -> None:
    add_start_argument(parser)
    parser.require_path(
        "--data",
        "PATH",
        "a file of labelled texts (.csv, .tsv, .jsonl, .xlsx, .parquet), all of which are learned "
        "from, or a folder with train.* and dev.*, val.* or validation.*",
    )
    parser.require_path("--out", "DIR", "folder of the run and its model")


FEW_SHOT = Command(
    name="few-shot",
    summary="train a model on a few labels of each class",
    description="Learn from 2 to about 100 labels of each class: train the encoder so that texts\n"
    "with the same label have vectors close to each other, and fit a linear head on these. The\n"
    "model is used as that of 'bertine finetune'.",
    add_arguments=_add_few_shot_arguments,
    options="bertine.options.finetuning:FewShotOptions",
    examples="bertine few-shot --model DIR --data twenty.csv --out few-model\n"
    "bertine few-shot --task multi-label --model DIR --data t.csv --out few",
    common="--model --data --out --task --text-column --label-column --max-length --seed "
    "--resume --config",
)


# ``bertine distill``: a small model that imitates a large one.


def _add_distill_arguments(parser: Parser) -> None:
    store = "what 'bertine prepare' wrote"
    texts = (
        "texts, with labels or without: a file (.csv, .tsv, .jsonl, .xlsx, .parquet; for tagging "
        ".conll), or a folder with train.* and dev.*, val.* or validation.*"
    )
    words = {
        "lm": store,
        "task": texts,
        "vectors": "texts: a file (.txt, with a text on each line, .csv, .tsv, .jsonl, .parquet)",
    }
    words |= {kind: more["data"] for kind, more in _MORE.items()}
    parser.add_path(
        "data",
        "DATA",
        words.get(parser.kind, "; ".join(f"{kind}: {text}" for kind, text in words.items())),
        nargs=None if parser.kind in ("lm", "task", "vectors") else "?",
    )
    parser.require_path("--out", "RUN", "folder of the run and its model")
    if parser.kind:
        parser.decided["kind"] = parser.kind


#: The kinds of contrib.
_MORE = registered("DISTILL")
DISTILL = Command(
    name="distill",
    summary="train a small model to do what a large one does",
    description="Train a small, fast model (the student) to do what a large, slow one does (the\n"
    "teacher).",
    add_arguments=_add_distill_arguments,
    options="bertine.options.distillation:DistillOptions",
    processes=True,
    examples="bertine distill task reviews.csv --teacher reviews-model --out small\n"
    "bertine distill task texts.txt --teacher reviews-model --layers 0 2 4 --out s\n"
    "bertine distill task new.csv --probabilities p.csv --student model --out small\n"
    "bertine distill lm store --teacher run --steps 20000 --out small\n"
    "bertine distill vectors texts.txt --teacher minilm --layers 0 2 5 --out s\n"
    "bertine distill vectors texts.txt --vectors v.npy --student model --out s"
    + "".join(f"\n{more['example']}" for more in _MORE.values()),
    common="--teacher --probabilities --vectors --student --layers --relation-weight "
    "--mlm-weight --validation --out --epochs --steps --dimensions "
    "--resume --config",
    kinds={
        "task": "on texts of a task, from a fine-tuned model or a file of another model's answers",
        "lm": "on a token store, from a pre-trained model (DistilBERT)",
        "vectors": "on texts, from a model's vectors of them or a file of vectors",
        **{kind: more["help"] for kind, more in _MORE.items()},
    },
    kind_word="KIND",
)
