"""Define the options of experiments: searches, learning curves, label checks, paper tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertine.core.names import FeatureTask, LabelledFormat
from bertine.options.data import (
    Cleaning,
    DocumentContext,
    SplitSeed,
    TableColumns,
    TableReading,
    TaggedColumns,
)
from bertine.options.declare import MOST_SEED, OptionGroup, declare, like
from bertine.options.finetuning import FewShotTaskChoice, FinetuneRecipe, InputLength, LabelTables
from bertine.options.training import Machine, Rate, Resuming, Seed

# Searches: over fine-tuning runs, and for a learning rate.


class SearchOptions(OptionGroup):
    """The grid of a search, and the processes that do its runs."""

    title = "grid"

    batch_sizes: Sequence[int] | int | None = declare(
        None,
        "examples in an update",
        otherwise="as finetune by itself",
        more="In the paper's grid 16 and 32.",
        least=1,
    )
    learning_rates: Sequence[float] | float | None = declare(
        None,
        "highest values of the rate",
        otherwise="half, once and twice that of finetune by itself",
        more="In the paper's grid 5e-5, 4e-5, 3e-5 and 2e-5.",
        least=0,
    )
    epochs: Sequence[int] | int | None = declare(
        None,
        "passes",
        otherwise="as finetune by itself",
        more="In the paper's grid 2, 3 and 4.",
        least=1,
    )
    seeds: Sequence[int] | int | None = declare(
        None,
        "random seeds of the runs of each setting",
        otherwise="the first from 0 on",
        more="Order, dropout and new weights come from them. Validation examples that are held "
        "out, because the data has none, are the same in all runs.",
        least=0,
        most=MOST_SEED,
    )
    restarts: int | None = declare(
        None, "number of seeds, if `seeds` is not given", otherwise="3", least=1
    )
    split_seed: int | None = like(
        SplitSeed,
        "split_seed",
        help="random seed for holding out validation examples if the data has none, the same for "
        "all runs",
        otherwise="0",
        more="",
    )
    paper_grid: bool = declare(
        False,
        "for the lists that are not given, use the paper's: batches of 16 and 32, rates of 5e-5, "
        "4e-5, 3e-5 and 2e-5, 2, 3 and 4 epochs",
        more="These are 24 settings; the weights are those of the last epoch unless `save_best` "
        "says otherwise.",
    )
    processes: int | None = declare(
        None,
        "runs at a time, in processes that share the cores",
        otherwise="one after the other",
        more="They take turns with the GPUs. Over Ray None is one a machine or GPU.",
        least=1,
        title="search",
    )
    ray: str | None = declare(
        None,
        "let a Ray cluster do the runs (not followed by an address: auto), or 'local'; needs the "
        "package ray, and model, data and output where all its machines see them",
        more="The address of the cluster; the paths must be the same everywhere.",
        metavar="ADDRESS",
        title="search",
    )
    keep_models: bool = declare(
        False, "keep the weights of all runs, not of the best alone", title="search"
    )
    resume: bool = declare(
        False,
        "go on with the search in the output folder; runs that are done are not done again",
        more="One that was stopped goes on, one that failed is tried again. The grid may be "
        "another: runs that were done stay in the table.",
        title="search",
    )


class RisingRates(OptionGroup):
    """The rates that are tried to find a learning rate."""

    title = "test"

    min_rate: float = declare(1e-7, "rate of the first step")
    max_rate: float = declare(1e-2, "rate of the last step", more="Reached exponentially.")
    steps: int = declare(100, "steps with a rising rate", least=20)
    warmup_steps: int = declare(
        10, "steps before them at the lowest rate, in which Adam's moments fill", least=0
    )


# Learning curves.


class CurvePoints(OptionGroup):
    """The models to train, the numbers of labels, and the repetitions."""

    title = "curve"

    methods: Sequence[str] | str | None = declare(
        None,
        "tf-idf, or the vectors of the model as it is (frozen), with logistic regression; "
        "few-shot; finetune",
        otherwise="all four",
        metavar="WAY",
    )
    repeats: int = declare(3, "draws of each number of labels", least=1)
    min_labels: int = declare(8, "labels of each class in the smallest draw", least=2)
    max_labels: int | None = declare(
        None, "labels in all in the largest draw", otherwise="all that there are", least=4
    )
    growth_factor: float = declare(2.0, "times as many labels from one number to the next", above=1)
    test_share: float = declare(
        0.2,
        "share of the examples to judge on, where there is no validation file",
        above=0,
        below=1,
    )
    most_tested: int = declare(2_000, "examples to judge on, at most", least=10)


class LearningCurveOptions(
    CurvePoints,
    FewShotTaskChoice,
    TableColumns,
    TableReading,
    LabelTables,
    InputLength,
    Machine,
    Seed,
    Resuming,
):
    """All options of ``learning_curve``."""

    resume: bool = like(
        Resuming,
        "resume",
        help="go on with the curve in the output folder; what is trained and judged is not trained "
        "again",
        more="",
    )


# Search for wrong labels.


class LabelCheckOptions(
    TableColumns, TableReading, FinetuneRecipe, InputLength, Rate, Machine, Seed, Resuming
):
    """All options of ``check_labels``."""

    folds: int = declare(
        5,
        "parts of the examples; each is judged by a model that was trained on the others",
        least=2,
        title="check",
    )
    frozen: bool = declare(
        False,
        "train no layer: fit the head alone, in seconds, on the vectors that the model gives "
        "already; mostly the better way with pairs and with few labels",
        title="recipe",
    )
    processes: int = declare(
        1, "models that are trained at a time, in processes that share the cores", least=1,
        title="check",
    )  # fmt: skip
    resume: bool = like(
        Resuming,
        "resume",
        help="go on with the check in the output folder; parts that are judged are not judged "
        "again",
        more="",
        title="check",
    )


# Tables of papers.


class PaperScale(OptionGroup):
    """The scale at which a table is reproduced."""

    title = "scale"

    model: str = declare(
        "bert-mini",
        "preset, or configuration file, whose sizes replace those of the paper's base model; for "
        "ELMo's tables elmo-tiny, elmo-mini, …",
        metavar="PRESET",
    )
    vocab_size: int = declare(8192, "pieces of the vocabulary that is trained", least=100)
    hours: float | None = declare(
        None,
        "hours of pre-training for each row, instead of tokens",
        otherwise="tokens decide",
        above=0,
    )
    steps: int | None = declare(
        None,
        "steps of pre-training for each row, instead of tokens",
        otherwise="tokens decide",
        least=1,
    )
    tokens: int | None = declare(
        None, "tokens of pre-training for each row", otherwise="30 million", least=1, most=10**15
    )
    max_seq_length: int | None = declare(
        None,
        "tokens of a sequence of pre-training; a batch always has 2,048 tokens",
        otherwise="128; short runs learn more with 64",
        least=8,
    )
    seeds: int = declare(3, "runs of fine-tuning for each row and column", least=1)
    epochs: int | None = declare(
        None,
        "passes of fine-tuning, and of what is trained on frozen states",
        otherwise="as finetune and feature-based by themselves",
        least=1,
    )


class GivenWeights(OptionGroup):
    """Options of the tables that fine-tune existing weights."""

    title = "tables of given weights (bert-1 to bert-4, distilbert-1, -3)"

    weights: Sequence[Path | str] | None = declare(
        None,
        "model directories, each a row of the table",
        otherwise="none; other tables pre-train their rows",
        metavar="DIR",
    )
    paper_grid: bool = declare(
        False,
        "for every cell search as the paper does: batches of 16 and 32, four rates, 2 to 4 epochs, "
        "as many restarts as there are seeds; the scores are those of the best setting",
    )


class PaperRunning(OptionGroup):
    """The part of a table to run, and the processes that run it."""

    title = "run"

    rows: Sequence[str] | None = declare(
        None, "names of the rows to run, instead of all", otherwise="all"
    )
    columns: Sequence[str] | None = declare(
        None, "names of the columns to run, instead of all", otherwise="all whose data are there"
    )
    rerun: Sequence[str] | None = declare(
        None,
        "rows, or cells as ROW/COLUMN, to run anew although they are done",
        otherwise="what is done stays",
    )
    held_out: Path | str | None = declare(
        None,
        "token store of other text, where the corpus is a token store too",
        otherwise="documents of the corpus",
        metavar="STORE",
    )
    processes: int = declare(1, "steps at a time, in processes that share the cores", least=1)
    ray: str | None = declare(
        None,
        "let a Ray cluster do the steps (not followed by an address: auto), or 'local'; needs the "
        "package ray, and all folders where all its machines see them",
        metavar="ADDRESS",
    )
    resume: bool = declare(
        False, "go on with the table in the output folder; what is done is not done again"
    )


class PaperOptions(PaperScale, GivenWeights, PaperRunning):
    """All options of ``paper``."""


class BilstmRecipe(Seed):
    """The architecture and training of a BiLSTM."""

    title = "recipe"

    epochs: int = declare(10, "passes of the BiLSTM over the training sentences", least=1)
    batch_size: int = declare(32, "sentences in an update, of fine-tuning too", least=1)
    learning_rate: float = declare(
        1e-3, "highest learning rate of the BiLSTM, with which it begins", least=0
    )
    lstm_size: int = declare(768, "units of each direction", least=1)
    lstm_layers: int = declare(2, "layers of the BiLSTM", least=1)
    dropout: float = declare(
        0.5, "rate of dropout around each layer of the BiLSTM", least=0, most=1
    )
    max_grad_norm: float = declare(
        5.0, "the BiLSTM's gradients are scaled down to this norm; 0 does not clip", least=0
    )
    layer_penalty: float | None = declare(
        None,
        "λ of the squared weights that layers are summed with: the higher, the nearer they stay to "
        "the mean of the layers",
        otherwise="0.1 of an ELMo, as its paper has for entities, else 0",
        least=0,
    )
    crf: bool = declare(
        False,
        "of tagging: a chain over the tags (CRF), whose answers are valid sequences, as in ELMo's "
        "paper",
    )


class FeatureBasedOptions(
    TableColumns, TaggedColumns, DocumentContext, BilstmRecipe, Machine, Resuming
):
    """All options of ``feature_based``."""

    task: FeatureTask = declare(
        "tagging",
        "what is learned: a tag for each word (tagging); for each text or pair a label (text), "
        "several (multi-label) or a number (regression); or a task of GLUE (glue)",
        title="",
    )
    glue_task: str | None = declare(
        None,
        "with the task glue: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI",
        title="",
    )
    rows: Sequence[str] | None = declare(
        None,
        "of fine-tuning, embeddings, second-to-last, last, sum-last-four, concat-last-four, "
        "sum-all; mix (all layers, embeddings among them), mix-both (also at the output of the "
        "BiLSTM), mix-output (there alone, over the words by themselves); of vectors of words "
        "word-vectors, bag-of-vectors",
        otherwise="all of an encoder but the mixes; of an ELMo embeddings, second-to-last, last, "
        "mix and mix-both",
    )
    word_vectors: Path | str | None = declare(
        None,
        "vectors of words for a row more, in the place of states (of texts also their mean, with "
        "logistic regression): a folder of word2vec, or a .bin, .txt or .vec file",
        otherwise="no such row",
        metavar="VECTORS",
    )
    format: LabelledFormat | None = declare(
        None,
        "format of the files",
        otherwise="detected from the name of the file and its first line",
        title="reading",
    )
    strict: bool = like(
        Cleaning,
        "strict",
        help="refuse invalid UTF-8 and NUL bytes instead of mending and counting them",
        title="reading",
    )
    max_length: int = declare(
        128,
        "tokens of an input, or words if the task has texts; the rest is cut",
        least=3,
        title="tagging",
    )
    finetune_epochs: int = declare(3, "passes of fine-tuning", least=1, title="recipe")
    finetune_learning_rate: float = declare(
        5e-5, "learning rate of fine-tuning", least=0, title="recipe"
    )
    resume: bool = like(
        Resuming,
        "resume",
        help="keep the rows that the output folder has already",
        more="If they were made with the same settings.",
    )
