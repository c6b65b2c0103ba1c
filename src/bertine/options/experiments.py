"""Define the options of experiments: searches, learning curves, label checks."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.options.data import (
    LabelNames,
    OutputEncoding,
    SplitSeed,
    TableColumns,
    TableReading,
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
    TableColumns,
    LabelNames,
    TableReading,
    OutputEncoding,
    FinetuneRecipe,
    InputLength,
    Rate,
    Machine,
    Seed,
    Resuming,
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
