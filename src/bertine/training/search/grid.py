"""List what a search tries: each batch size with each learning rate, epochs and seed.

The paper tries batches of 16 and 32, rates of 5e-5, 4e-5, 3e-5 and 2e-5, and 2, 3 and 4 epochs
(section A.3; the rate of 4e-5 is in section 4.1), and takes what is best on the dev set. Where
nothing is said, half, once and twice the rate that :mod:`bertine.training.finetuning.plan` gives
are tried, in its batches and for its number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.options.search import SearchOptions
from bertine.scores import exact_rate
from bertine.training.finetuning.plan import TrainingPlan

#: The paper's grid, by the names of the arguments.
PAPER_GRID: dict[str, tuple[Any, ...]] = {
    "batch_sizes": (16, 32),
    "learning_rates": (5e-5, 4e-5, 3e-5, 2e-5),
    "epochs": (2, 3, 4),
}
#: Seeds where nothing is said: small sets differ much from seed to seed.
RESTARTS = 3


def grid_around(plan: TrainingPlan) -> dict[str, tuple[Any, ...]]:
    """Take the batch size and the epochs of `plan`, and three rates about its own, by the names of
    the arguments."""
    rates = tuple(float(f"{plan.learning_rate * factor:.0e}") for factor in (0.5, 1, 2))
    return {
        "batch_sizes": (plan.batch_size,),
        "learning_rates": rates,
        "epochs": (plan.epochs,),
    }


@dataclass(frozen=True)
class Setting:
    """A point of the grid."""

    batch_size: int
    learning_rate: float
    epochs: int

    @property
    def name(self) -> str:
        """``"batch16-lr3e-5-epochs3"``; of other settings another."""
        return f"batch{self.batch_size}-lr{exact_rate(self.learning_rate)}-epochs{self.epochs}"

    def __str__(self) -> str:
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs} epochs"
        return f"batch {self.batch_size}, rate {exact_rate(self.learning_rate)}, {epochs}"


@dataclass(frozen=True)
class Trial:
    """A run of the search: a setting with a seed."""

    setting: Setting
    seed: int

    def __str__(self) -> str:
        return f"{self.setting}, seed {self.seed}"

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.setting.name}-seed{self.seed}"


@dataclass(frozen=True)
class SearchGrid:
    """The values that a search combines; see :func:`bertine.search`."""

    batch_sizes: tuple[int, ...]
    learning_rates: tuple[float, ...]
    epochs: tuple[int, ...]
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, options: SearchOptions, otherwise: Mapping[str, tuple[Any, ...]]) -> SearchGrid:
        """Make the grid of these options; `otherwise` has the values of the lists that are None.

        Raises:
            BertineError: a list is empty, or has a value twice or one that cannot be; seeds and
                restarts are both given.
        """
        seeds = options.seeds
        if seeds is not None and options.restarts is not None:
            raise BertineError(
                f"give {option('seeds')} or their number ({option('restarts')}), not both"
            )
        if seeds is None:
            seeds = range(RESTARTS if options.restarts is None else options.restarts)
        rates = _values("learning_rates", options.learning_rates, otherwise, least=None)
        return cls(
            _values("batch_sizes", options.batch_sizes, otherwise, least=1),
            tuple(map(float, rates)),
            _values("epochs", options.epochs, otherwise, least=1),
            _values("seeds", seeds, otherwise, least=0),
        )

    @property
    def settings(self) -> list[Setting]:
        """All combinations, the rates of a batch size together."""
        return [
            Setting(batch_size, rate, epochs)
            for batch_size in self.batch_sizes
            for epochs in self.epochs
            for rate in self.learning_rates
        ]

    @property
    def trials(self) -> list[Trial]:
        """All runs, one setting after the other."""
        return [Trial(setting, seed) for setting in self.settings for seed in self.seeds]

    def __str__(self) -> str:
        def listed(values: Sequence[Any]) -> str:
            return ", ".join(map(str, values))

        return (
            f"batches of {listed(self.batch_sizes)}; rates "
            f"{listed([exact_rate(rate) for rate in self.learning_rates])}; epochs "
            f"{listed(self.epochs)}; seeds {listed(self.seeds)}"
        )


def _values(
    name: str, values: Any, otherwise: Mapping[str, tuple[Any, ...]], least: int | None
) -> tuple[Any, ...]:
    """Check the values of a list of the grid; one alone is a list of one.

    Args:
        otherwise: the values of the lists that are None.
        least: the lowest whole number; None: they are numbers above 0.
    """
    if values is None:
        return otherwise[name]
    if isinstance(values, str):
        raise BertineError(f"{name} is {values!r}, but must be a list of numbers")
    values = tuple(values) if isinstance(values, Sequence) else (values,)
    if not values:
        raise BertineError(f"{name} is an empty list; give at least one value")
    kind = "a number above 0" if least is None else f"a whole number from {least} on"
    for index, value in enumerate(values):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if least is None:
            allowed = number and math.isfinite(value) and value > 0
        else:
            allowed = number and isinstance(value, int) and value >= least
        if not allowed:
            raise BertineError(f"{name}: {value!r} cannot be; give {kind}")
        if value in values[:index]:
            raise BertineError(f"{name}: {value} is given twice")
    return values
