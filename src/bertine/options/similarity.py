"""Options of training vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bertine.names import PairKind, PairLossName, PlainFormat, TrainedPooling
from bertine.options.fields import NOT_KNOWN, OptionGroup, declare, like
from bertine.options.finetuning import InputLength
from bertine.options.machine import Machine
from bertine.options.optimization import DropoutRate, Patience, Rate, Updates, WarmUp
from bertine.options.reading import Mending, TableColumns
from bertine.options.run import Notes, Resuming, RunOutput, Seed


class PairTables(TableColumns, Mending):
    """Options that say which texts of a table are alike."""

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
        None, "of the table", otherwise="detected from its name and its first line", title="reading"
    )


class PairTraining(OptionGroup):
    """Options that say what is learned from pairs of texts."""

    title = "vectors"

    loss: PairLossName | None = declare(
        None,
        "ranking: a match is nearer than all other texts of the batch; cosent: cosines are in the "
        "order of the scores; cosine: cosines are the scores",
        otherwise="cosent for pairs with scores, else ranking",
        unknown=NOT_KNOWN,
    )
    scale: float = declare(20.0, "of ranking and cosent: what cosines are multiplied by", above=0)
    symmetric: bool = declare(
        False, "of ranking: the first text of a pair is also to be the nearest to its match"
    )
    mine_negatives: int = declare(
        0,
        "of pairs: find so many texts for each that look right and are not, with the vectors of "
        "the "
        "model as it is, and train on them as well",
        least=0,
        most=100,
    )
    mine_below: float = declare(
        0.95,
        "with `mine_negatives`: skip texts whose cosine is above this share of the match's, since "
        "they may be right",
        least=0,
        most=1,
        metavar="P",
    )
    vector_lengths: Sequence[int] | None = declare(
        None,
        "train vectors so that their first numbers, so many, can be used alone",
        otherwise="all numbers",
        more="Matryoshka: Kusupati et al. 2022.",
    )
    pooling: TrainedPooling | None = declare(
        None,
        "what becomes of the tokens' states",
        otherwise="as the model directory says, else mean",
        unknown=NOT_KNOWN,
    )


class PairPasses(OptionGroup):
    """Options that say how long to train on pairs."""

    title = "recipe"
    alternatives: ClassVar[tuple[str, ...]] = ("epochs", "steps")

    epochs: int | None = declare(
        None,
        "passes over the rows",
        otherwise="4 up to 10,000 rows, else 1",
        least=1,
    )
    steps: int | None = declare(
        None,
        "updates of the weights, in place of `epochs`",
        otherwise="as many as the epochs have",
        least=1,
    )


class SimilarityOptions(
    PairTables,
    PairTraining,
    PairPasses,
    InputLength,
    Rate,
    WarmUp,
    Updates,
    DropoutRate,
    Patience,
    Machine,
    Seed,
    RunOutput,
    Notes,
    Resuming,
):
    """All options of ``finetune_similarity``."""

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
    held_out_pairs: int | None = declare(
        None,
        "pairs that are held out to judge by, with all others that have a text in common with "
        "them, where no validation file is given; 0: none",
        otherwise="a tenth, at most 2,000",
        least=0,
        title="score",
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
        help="stop when the score on the validation rows was not better for so many evaluations",
        more="",
    )
