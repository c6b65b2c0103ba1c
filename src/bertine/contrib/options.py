"""Define the options of contrib's verbs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bertine.core.names import LabelledFormat
from bertine.options.data import (
    Cleaning,
    CorpusReading,
    DocumentContext,
    TableColumns,
    TableReading,
    TaggedColumns,
)
from bertine.options.declare import NOT_KNOWN, OptionGroup, declare, like
from bertine.options.finetuning import FinetuneRecipe, InputLength
from bertine.options.training import Machine, Rate, Resuming, RunOutput, Seed, TeacherModel

#: The tasks that can be learned from the states of a frozen model.
FeatureTask = Literal["tagging", "text", "regression", "multi-label", "glue"]
#: How a text becomes words: at spaces, or with punctuation apart.
WordSplitting = Literal["spaces", "punctuation"]
#: What a language model's next word is compared with (:mod:`bertine.contrib.elmo.model`).
SoftmaxName = Literal["auto", "full", "sampled"]
#: How word2vec learns (:mod:`bertine.contrib.word2vec.train`).
WordVectorModel = Literal["skip-gram", "cbow"]
#: The number type in the file of a table of static vectors.
StaticPrecision = Literal["fp32", "fp16", "int8"]
#: How the pieces in a table of static vectors are weighted.
StaticWeights = Literal["counts", "rank", "none"]

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

    title = "tables of given weights (bert-1 to bert-4, albert-2, distilbert-1, -3)"

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


# Taggers and classifiers over frozen models.


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


# ELMo.


class ElmoOptions(CorpusReading, Machine, Seed, RunOutput, Resuming):
    """All options of ``pretrain_elmo``."""

    steps: int | None = declare(
        None, "updates of the weights", otherwise="as many as `epochs` has", least=1, title="length"
    )
    epochs: float = declare(
        10.0, "passes over the corpus, if `steps` is not given", above=0, title="length"
    )
    word_splitting: WordSplitting = declare(
        "punctuation",
        "how text becomes words: punctuation apart, or what stands between spaces, each line being "
        "a sentence",
        title="reading",
    )
    language: str = declare("en", "language of the text, for splitting sentences", title="reading")
    min_count: int = declare(
        2, "rarer words are unknown to the softmax, not to the model", least=1, title="vocabulary"
    )
    vocab_size: int | None = declare(
        None, "words of the softmax at most", otherwise="all", least=4, title="vocabulary"
    )
    softmax: SoftmaxName = declare(
        "auto",
        "full: every word is compared with all others; sampled: with `negatives` of them; auto: "
        "full where there are not four times as many words as these",
        title="recipe",
    )
    negatives: int = declare(
        8192, "words that a sampled softmax compares with, drawn anew each step", least=1,
        title="recipe",
    )  # fmt: skip
    batch_size: int = declare(128, "rows that are read at once", least=1, title="recipe")
    window: int = declare(
        20, "words of a row in a step; the state goes on, gradients do not", least=1, title="recipe"
    )
    learning_rate: float = declare(0.2, "learning rate of Adagrad", above=0, title="recipe")
    max_grad_norm: float = declare(
        10.0,
        "gradients are scaled down to this norm; 0 does not clip",
        more="They are those of the loss times `window`, as published.",
        least=0,
        title="recipe",
    )
    dropout: float | None = declare(
        None, "on what goes into each LSTM and comes out of the last",
        otherwise="0.1", least=0, below=1, title="recipe",
    )  # fmt: skip
    held_out: Path | str | None = declare(
        None, "text to score along the way and at the end", metavar="PATH", title="run"
    )
    evaluate_every: int | None = declare(
        None, "steps between scores of `held_out`", otherwise="at the end", least=1, title="run"
    )
    checkpoint_every: int | None = like(
        RunOutput, "checkpoint_every", default=500, otherwise="none", more=""
    )
    log_every: int = like(RunOutput, "log_every", default=20)


# Word2vec: train word vectors.


class WordVectorRecipe(OptionGroup):
    """What word2vec learns."""

    title = "vectors"

    method: WordVectorModel = declare(
        "skip-gram",
        "skip-gram: a word is to predict each word around it; cbow: the mean of those around is to "
        "predict it, which is quicker and has less of rare words",
        unknown=NOT_KNOWN,
    )
    dimensions: int = declare(100, "numbers of a vector", least=1, most=65536)
    window: int = declare(
        5,
        "words to each side, at most",
        more="For each word a number from 1 to this is drawn.",
        least=1,
        most=1000,
    )
    min_count: int = declare(5, "rarer words get no vector, and are left out of the text", least=1)
    max_words: int | None = declare(
        None, "give a vector only to this many of the most frequent words", otherwise="all", least=2
    )
    lowercase: bool = declare(True, "lowercase the text", no="cased")
    negatives: int = declare(5, "random words drawn to contrast with each pair", least=1, most=1000)
    negative_exponent: float = declare(
        0.75,
        "power of the word counts; negatives are drawn in proportion to it",
        least=-10,
        most=10,
    )
    subsample: float = declare(
        1e-3,
        "of words that are a larger share of the text than this, occurrences are left out by "
        "chance; 0 keeps all",
        least=0,
        most=1,
    )
    epochs: int = declare(5, "passes over the text", least=1)
    learning_rate: float | None = declare(
        None,
        "learning rate at first; it falls to 0",
        otherwise="0.025 for skip-gram, 0.05 for cbow",
        above=0,
    )


class Word2VecOptions(WordVectorRecipe, CorpusReading, Seed, Resuming):
    """All options of ``word2vec``."""

    resume: bool = like(
        Resuming,
        "resume",
        help="go on with a run that was stopped, exactly as if never stopped",
        more="Its ``.NAME.unfinished`` is next to `out`; if there is none, a new run begins.",
    )


# Static vectors: a table made from a model.


class StaticTableOptions(OptionGroup):
    """Options of a table of static vectors."""

    title = "static vectors"

    static: bool = declare(
        False,
        "make a table with one vector for each piece of the teacher's vocabulary: each goes "
        "through the teacher alone; a text's vector is the mean of its pieces'. DATA may be left "
        "out",
    )
    dimensions: int = declare(
        256, "numbers of a vector: the first principal components, at most the teacher's", least=1
    )
    piece_weights: StaticWeights | None = declare(
        None,
        "what makes frequent pieces count less: how often they come in DATA (counts), their place "
        "in the vocabulary (rank), or nothing (none)",
        otherwise="counts, without DATA rank",
    )
    sif_coefficient: float = declare(
        1e-4,
        "a of the weight a / (a + p) of a piece with the probability p (smooth inverse frequency)",
        above=0,
        below=1,
    )
    fit_tokens: bool = declare(
        True,
        "fit the table to the teacher's vectors of texts in DATA; otherwise pieces are only "
        "counted in them",
    )
    teacher_texts: int = declare(
        20_000,
        "number of texts of DATA, spread evenly, whose vectors the teacher computes to be learned "
        "from; this takes most of the time",
        least=100,
    )
    add_words: int = declare(
        0,
        "give this many words a vector of their own: the most frequent ones in DATA that are "
        "several pieces; only with WordPiece",
        least=0,
    )
    table_precision: StaticPrecision = declare(
        "fp16",
        "number format of the file; int8 takes a quarter of the space of fp32 and hardly changes "
        "directions",
    )


class StaticOptions(TeacherModel, StaticTableOptions, TableReading, InputLength, Seed, Machine):
    """The options of a table of static vectors."""

    teacher: Path | str | None = like(
        TeacherModel, "teacher", help="model directory whose vectors the table takes the place of"
    )
    text_columns: Sequence[str] | str | None = like(
        TableColumns, "text_columns", help="the text", more="", title="columns"
    )
    epochs: int | None = like(FinetuneRecipe, "epochs", otherwise="10")
    batch_size: int | None = like(FinetuneRecipe, "batch_size", otherwise="128")
    learning_rate: float | None = like(Rate, "learning_rate", otherwise="3e-3")
