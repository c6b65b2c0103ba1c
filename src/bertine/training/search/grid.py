"""List what a search tries: each batch size with each learning rate, epochs and seed.

The paper tries batches of 16 and 32, rates of 5e-5, 4e-5, 3e-5 and 2e-5, and 2, 3 and 4 epochs
(section A.3; the rate of 4e-5 is in section 4.1), and takes what is best on the dev set. Where
nothing is said, half, once and twice the rate that :mod:`bertine.training.finetuning.plan` gives
are tried, in its batches and for its number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertine.errors import BertineError
from bertine.options.names import option
from bertine.reports.scores import exact_rate
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
    def of(
        cls,
        batch_sizes: Sequence[int] | int | None,
        learning_rates: Sequence[float] | float | None,
        epochs: Sequence[int] | int | None,
        seeds: Sequence[int] | int | None,
        restarts: int | None,
        otherwise: Mapping[str, tuple[Any, ...]],
    ) -> SearchGrid:
        """Make the grid of these arguments of the search; `otherwise` has the values of the lists
        that are None.

        Raises:
            BertineError: a list is empty, or has a value twice or one that cannot be; seeds and
                restarts are both given.
        """
        if seeds is not None and restarts is not None:
            raise BertineError(
                f"give {option('seeds')} or their number ({option('restarts')}), not both"
            )
        if restarts is not None and not _whole(restarts, 1):
            raise BertineError(f"restarts is {restarts!r}, but must be a whole number from 1 on")
        if seeds is None:
            seeds = range(RESTARTS if restarts is None else restarts)
        count, number = "a whole number from 1 on", "a whole number from 0 on"
        return cls(
            _values("batch_sizes", batch_sizes, otherwise, lambda v: _whole(v, 1), count),
            tuple(
                float(rate)
                for rate in _values(
                    "learning_rates", learning_rates, otherwise, _rate, "a number above 0"
                )
            ),
            _values("epochs", epochs, otherwise, lambda v: _whole(v, 1), count),
            _values("seeds", seeds, {}, lambda v: _whole(v, 0), number),
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
    name: str,
    given: Any,
    otherwise: Mapping[str, tuple[Any, ...]],
    allowed: Callable[[Any], bool],
    kind: str,
) -> tuple[Any, ...]:
    """Check the values of a list of the grid; one alone is a list of one."""
    if given is None:
        return otherwise[name]
    if isinstance(given, str):
        raise BertineError(f"{name} is {given!r}, but must be a list of numbers")
    values = tuple(given) if isinstance(given, Sequence) else (given,)
    if not values:
        raise BertineError(f"{name} is an empty list; give at least one value")
    for index, value in enumerate(values):
        if not allowed(value):
            raise BertineError(f"{name}: {value!r} cannot be; give {kind}")
        if value in values[:index]:
            raise BertineError(f"{name}: {value} is given twice")
    return values


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _rate(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0
