"""Define the options of text vectors and their training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bertine.core.names import (
    PairKind,
    PairLossName,
    PlainFormat,
    PoolingName,
    TrainedPooling,
    VectorPooling,
)
from bertine.options.data import Cleaning, TableColumns
from bertine.options.declare import NOT_KNOWN, OptionGroup, declare, like
from bertine.options.finetuning import InputLength
from bertine.options.training import (
    Device,
    DropoutRate,
    Machine,
    Notes,
    Patience,
    Rate,
    Resuming,
    RunOutput,
    Seed,
    Updates,
    WarmUp,
)

# The vector of a text.


class VectorForm(OptionGroup):
    """The states that become a vector, and how much of a text is read."""

    title = "vectors"

    layer: int | None = declare(
        None,
        "layer whose states are used: 0 is the embeddings, -1 the last layer, -2 the one before it",
        otherwise="the last",
        least=-1000,
    )
    max_length: int | None = declare(
        None,
        "pieces of a text, longer ones are cut",
        otherwise="as the model directory says, else all that the model has positions for",
    )


class TextVectors(VectorForm):
    """How one vector of a text is made."""

    title = "vectors"

    pooling: VectorPooling | None = declare(
        None,
        "how the tokens' states are combined into one vector",
        otherwise="as the model directory says, else mean",
    )


class AnyVectors(VectorForm):
    """How one vector of a text, or one of each token, is made."""

    title = "vectors"

    pooling: PoolingName | None = like(
        TextVectors,
        "pooling",
        help="how the tokens' states are combined into one vector; tokens: each token keeps its "
        "own",
        unknown=NOT_KNOWN,
    )


class Normalizing(OptionGroup):
    """The length of vectors."""

    title = "vectors"

    normalize: bool | None = declare(
        None, "scale vectors to length 1", otherwise="as the model directory says, else not"
    )


class Prompt(OptionGroup):
    """The prompt put before texts."""

    title = "vectors"

    prompt: str | None = declare(
        None,
        "one of the prompts of the model directory, put before every text; '' for none",
        otherwise="its default",
    )


class Shortening(OptionGroup):
    """How many numbers of a vector are kept."""

    title = "vectors"

    dimensions: int | None = declare(
        None,
        "keep only this many of a vector's first numbers; for static vectors, and models that are "
        "trained for it ('bertine finetune similarity' with lengths of vectors)",
        otherwise="as the model directory says, else all",
        more="What is kept has length 1 again where whole vectors have.",
        least=1,
    )


class VectorOptions(AnyVectors, Normalizing, Shortening, Prompt, Device):
    """All options with which an :class:`~bertine.Embedder` is loaded, except its precision."""


class IndexOptions(OptionGroup):
    """Options of ``index``."""

    title = "index"

    recall: float = declare(
        0.95,
        "share of the ten nearest rows that a search is to find; higher is slower",
        above=0,
        most=1,
    )
    seed: int = like(
        Seed,
        "seed",
        help="random seed of the rows that the index is built and measured with",
        title="",
    )


class PairTables(TableColumns, Cleaning):
    """The columns of a table of matching texts."""

    text_columns: Sequence[str] | str | None = like(
        TableColumns,
        "text_columns",
        help="the two texts of a pair, or the one text of a row",
        more="",
        title="columns",
    )
    label_column: str | None = like(
        TableColumns, "label_column", help="the score of a pair, or the label of a text",
        title="columns",
    )  # fmt: skip
    negative_columns: Sequence[str] | str | None = declare(
        None,
        "texts that do not match the first one of a pair",
        otherwise="all columns whose name begins with negative",
        title="columns",
    )
    kind: PairKind | None = declare(
        None,
        "what the rows are: pairs of a text and its match; pairs with scores; texts with labels; "
        "texts alone (each is its own match, read under another dropout); or texts whose "
        "neighbouring sentences are pairs",
        otherwise="recognized by the columns",
        title="columns",
        unknown=NOT_KNOWN,
    )
    format: PlainFormat | None = declare(
        None,
        "format of the table",
        otherwise="detected from its name and its first line",
        title="reading",
    )


class PairTraining(OptionGroup):
    """What is learned from pairs of texts."""

    title = "vectors"

    loss: PairLossName | None = declare(
        None,
        "ranking: a match is nearer than all other texts of the batch; cosent: cosines are in the "
        "order of the scores; cosine: cosines are the scores",
        otherwise="cosent for pairs with scores, else ranking",
        unknown=NOT_KNOWN,
    )
    scale: float = declare(
        20.0, "for ranking and cosent: factor that cosines are multiplied by", above=0
    )
    symmetric: bool = declare(
        False, "for ranking: the first text of a pair must also be the nearest to its match"
    )
    mine_negatives: int = declare(
        0,
        "for pairs: find this many wrong texts for each that look right, with the vectors of the "
        "model before training, and train on them too",
        least=0,
        most=100,
    )
    negative_max_ratio: float = declare(
        0.95,
        "with `mine_negatives`: skip texts whose cosine is above this share of the match's, since "
        "they may be right",
        least=0,
        most=1,
        metavar="P",
    )
    vector_lengths: Sequence[int] | None = declare(
        None,
        "lengths that vectors may be cut to: they are trained so that their first numbers can be "
        "used alone",
        otherwise="all numbers",
        more="Matryoshka: Kusupati et al. 2022.",
    )
    pooling: TrainedPooling | None = like(TextVectors, "pooling", unknown=NOT_KNOWN)


class PairPasses(OptionGroup):
    """The length of the training on pairs."""

    title = "recipe"
    alternatives: ClassVar[tuple[str, ...]] = ("epochs", "steps")

    epochs: int | None = declare(
        None, "passes over the rows", otherwise="4 up to 10,000 rows, else 1", least=1
    )
    steps: int | None = declare(
        None,
        "updates of the weights, in place of `epochs`",
        otherwise="as many as the epochs have",
        least=1,
    )


class VectorTraining(
    PairPasses,
    InputLength,
    Seed,
    Rate,
    WarmUp,
    Updates,
    DropoutRate,
    Patience,
    Machine,
    RunOutput,
    Resuming,
):
    """How a model for sentence vectors is trained and judged."""

    batch_size: int | None = declare(
        None,
        "pairs of an update; with ranking all its texts are compared with one another, so more are "
        "harder",
        otherwise="64, with scores 32",
        least=2,
        title="recipe",
    )
    max_length: int | None = like(
        InputLength,
        "max_length",
        help="tokens of a text; longer ones are cut, and counted",
        otherwise="as the model directory says, at most 128",
        more="",
    )
    evaluate_every: int | None = declare(
        None,
        "steps between evaluations",
        otherwise="an epoch, at most 1,000",
        least=1,
        title="score",
    )
    patience: int | None = like(
        Patience,
        "patience",
        help="stop when the score on the validation rows has not improved for this many "
        "evaluations",
        more="",
    )


class SimilarityOptions(PairTables, PairTraining, VectorTraining, Notes):
    """All options of ``finetune_similarity``."""

    held_out_pairs: int | None = declare(
        None,
        "pairs that are held out to judge by, with all others that have a text in common with "
        "them, where no validation file is given; 0: none",
        otherwise="a tenth, at most 2,000",
        least=0,
        title="score",
    )
