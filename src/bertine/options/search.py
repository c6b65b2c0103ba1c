"""Options of searching among runs of fine-tuning, and of finding a learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.options.fields import MOST_SEED, OptionGroup, declare, like
from bertine.options.reading import SplitSeed


class SearchOptions(OptionGroup):
    """The grid of a search, and who does its runs."""

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
        "of the runs of each setting",
        otherwise="the first from 0 on",
        more="Order, dropout and new weights come from them. Validation examples that are held "
        "out, because the data has none, are the same in all runs.",
        least=0,
        most=MOST_SEED,
    )
    restarts: int | None = declare(
        None, "how many seeds, where `seeds` is not given", otherwise="3", least=1
    )
    split_seed: int | None = like(
        SplitSeed,
        "split_seed",
        help="by which validation examples are held out where the data has none, the same for all "
        "runs",
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
    """The rates that are tried to find one."""

    title = "test"

    min_rate: float = declare(1e-7, "of the first step")
    max_rate: float = declare(1e-2, "of the last one", more="Reached exponentially.")
    steps: int = declare(100, "with a rising rate", least=20)
    warmup_steps: int = declare(
        10, "before them, at the lowest rate, in which Adam's moments fill", least=0
    )
