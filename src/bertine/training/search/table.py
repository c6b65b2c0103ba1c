"""Hold the runs of a search, the table of its settings, and the choice.

A setting is judged by the mean score of its runs on the validation examples, without runs that
collapsed to one answer: these are due to an unlucky start (Devlin et al. 2018, section 4.1) and do
not measure the setting. The best run of the best setting gives the model.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bertine.core.console import Report, aligned, human_time
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.scores import hundredfold, ranking, score_name
from bertine.core.strict_json import Jsonable, Readable, typed
from bertine.core.text import exact_rate
from bertine.options.experiments import SearchOptions
from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, PageTable, Section
from bertine.reports.plots import spread
from bertine.reports.run_sections import sentence
from bertine.training.defaults import TrainingPlan

# The grid: each batch size with each learning rate, number of epochs and seed.
#
# The paper tries batches of 16 and 32, rates of 5e-5, 4e-5, 3e-5 and 2e-5, and 2, 3 and 4 epochs
# (section A.3; the rate of 4e-5 is in section 4.1), and takes what is best on the dev set. By
# default the search tries half, once and twice the rate of
# :mod:`bertine.training.defaults`, with its batch size and number of epochs.

#: The paper's grid, by the names of the arguments.
PAPER_GRID: dict[str, tuple[Any, ...]] = {
    "batch_sizes": (16, 32),
    "learning_rates": (5e-5, 4e-5, 3e-5, 2e-5),
    "epochs": (2, 3, 4),
}
#: The default number of seeds: on small sets results differ much from seed to seed.
RESTARTS = 3


def grid_around(plan: TrainingPlan) -> dict[str, tuple[Any, ...]]:
    """Return a grid with the batch size and the epochs of `plan`, and three rates around its rate,
    by the names of the arguments."""
    rates = tuple(float(f"{plan.learning_rate * factor:.0e}") for factor in (0.5, 1, 2))
    return {
        "batch_sizes": (plan.batch_size,),
        "learning_rates": rates,
        "epochs": (plan.epochs,),
    }


@dataclass(frozen=True)
class Setting(Readable):
    """A point of the grid."""

    batch_size: int
    learning_rate: float
    epochs: int

    @property
    def name(self) -> str:
        """The name, such as ``"batch16-lr3e-5-epochs3"``; different for each setting."""
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
        """The name of the run's folder."""
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
        """Build the grid from these options; `otherwise` has the values of the lists that are None.

        Raises:
            BertineError: a list is empty, or has a value twice or an invalid one; seeds and
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
    """Check the values of a list of the grid; a single value counts as a list of one.

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


#: The files in the folder of a search: its results as JSON, and as a page.
TABLE = "search.json"
PAGE = "search.html"
#: The columns of the table, in the terminal and on the page.
COLUMNS = ("batch", "rate", "epochs", "runs", "mean", "std", "best", "collapsed", "failed")


@dataclass(frozen=True)
class SearchRun(Readable):
    """The record of a run of a search.

    Attributes:
        trial: its setting and seed.
        score: the mean of the metrics by which the task is judged; None if the run failed.
        metrics: on the validation examples.
        collapsed: whether it gave every validation example the same answer, according to the task's
            report.
        elapsed: seconds of training.
        failed: the reason of the failure, in one line; None if it did not fail.
        examples: hashes of the training and of the validation examples.
        weights: a hash of its initial weights.
        seen: the validation examples that these weights had been trained on; 0 if they are few.
    """

    trial: Trial
    score: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    collapsed: bool = False
    elapsed: float = 0.0
    failed: str | None = None
    examples: str = ""
    weights: str = ""
    seen: int = 0

    json_keys = (
        *("**trial.setting", "seed=trial.seed", "score", "metrics", "collapsed", "elapsed"),
        *("failed", "examples", "weights", "seen"),
    )

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.trial.name

    @property
    def counts(self) -> bool:
        """Whether the run takes part in the choice."""
        return self.failed is None and not self.collapsed and self.score is not None

    @classmethod
    def done(cls, trial: Trial, outcome: dict[str, Any]) -> SearchRun:
        """Create the record of a finished run from the result of
        :func:`~bertine.training.search.search.do_run`."""
        score = outcome["score"]
        if not math.isfinite(score):
            return cls(trial, failed=f"its score is not a number ({score})")
        keys = ("metrics", "collapsed", "elapsed", "examples", "weights", "seen")
        return cls(trial, score, **{key: outcome[key] for key in keys})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a run that :meth:`to_dict` wrote."""
        trial = Trial(Setting.from_dict(values), typed(int, values.get("seed"), "seed"))
        return super().from_dict({**values, "trial": trial})


@dataclass(frozen=True)
class SettingRow(Jsonable):
    """A setting and its runs, in the order of their seeds."""

    setting: Setting
    runs: tuple[SearchRun, ...]

    json_keys = (
        *("**setting", "runs=num_runs", "mean", "standard_deviation=deviation", "best=best.score"),
        *("best_run=best.name", "collapsed", "failed"),
    )

    @property
    def num_runs(self) -> int:
        """The number of its runs."""
        return len(self.runs)

    @property
    def scores(self) -> list[float]:
        """The scores of the runs that take part in the choice."""
        return [run.score for run in self.runs if run.score is not None and run.counts]

    @property
    def mean(self) -> float | None:
        """The mean of the scores of the runs that count; None if there are none."""
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the scores, of a sample (divided by one less than their
        number); None for fewer than two."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def best(self) -> SearchRun | None:
        """The run with the highest score, the first of equal ones."""
        return best_run(self.runs)

    @property
    def collapsed(self) -> int:
        """The number of its runs that collapsed."""
        return sum(run.collapsed for run in self.runs)

    @property
    def failed(self) -> int:
        """The number of its runs that failed."""
        return sum(run.failed is not None for run in self.runs)


def best_run(runs: Iterable[SearchRun]) -> SearchRun | None:
    """Return the run with the highest score of those that take part in the choice."""
    counted = [run for run in runs if run.counts]
    best = ranking([run.score or 0.0 for run in counted], 1)
    return counted[best[0]] if counted else None


def rows_of(runs: Iterable[SearchRun]) -> list[SettingRow]:
    """Create a row for each setting, the best mean first, those without a score last."""
    by_setting: dict[Setting, list[SearchRun]] = {}
    for run in runs:
        by_setting.setdefault(run.trial.setting, []).append(run)
    rows = [
        SettingRow(setting, tuple(sorted(group, key=lambda run: run.trial.seed)))
        for setting, group in by_setting.items()
    ]
    means = [-math.inf if row.mean is None else row.mean for row in rows]
    return [rows[at] for at in ranking(means)]  # of equal ones the first of the grid


def best_of(runs: Iterable[SearchRun]) -> SearchRun | None:
    """Return the best run of the setting with the best mean; None if no run counts."""
    rows = rows_of(runs)
    return rows[0].best if rows else None


@dataclass(repr=False)
class SearchResult(Report):
    """The result of a search, which is also in ``search.json``.

    Attributes:
        out: the folder of the search.
        task: the task of the runs, e.g. "text" or "glue/RTE".
        metric_names: the metrics by which the task is judged; their mean is the score.
        runs: every run, in the order of the grid.
        notes: further notes.
    """

    out: Path
    task: str
    metric_names: tuple[str, ...]
    runs: list[SearchRun]
    notes: list[str] = field(default_factory=list)

    chosen_on = "the validation examples, so judge the model on others"
    json_keys = (
        *("task", "metric_names", "chosen_on", "chosen=chosen.setting", "best_run=best.name"),
        *("table=rows", "runs", "notes=_all_notes"),
    )

    @property
    def rows(self) -> list[SettingRow]:
        """A row for each setting, the best mean first."""
        return rows_of(self.runs)

    @property
    def chosen(self) -> SettingRow | None:
        """The setting with the best mean over its runs that did not collapse."""
        return next((row for row in self.rows if row.mean is not None), None)

    @property
    def best(self) -> SearchRun | None:
        """The best run of the chosen setting, whose model is `model`."""
        return best_of(self.runs)

    @property
    def score(self) -> float | None:
        """The mean score of the chosen setting."""
        return None if self.chosen is None else self.chosen.mean

    @property
    def model(self) -> Path | None:
        """The model directory of the best run; None if nothing could be chosen."""
        return None if self.best is None else self.out / "model"

    @property
    def failed(self) -> list[SearchRun]:
        """The runs that failed."""
        return [run for run in self.runs if run.failed is not None]

    @property
    def collapsed(self) -> list[SearchRun]:
        """The runs that gave every validation example the same answer."""
        return [run for run in self.runs if run.collapsed]

    @property
    def seen_note(self) -> str:
        """How many of the validation examples the initial weights had been trained on, in words; ""
        if they are few."""
        if self.best is None or not self.best.seen:
            return ""
        return (
            f"note: the model that the runs begin with was trained on {self.best.seen:,} of the "
            "validation examples: scores on them say little about new texts, and the choice as "
            "little"
        )

    @property
    def ok(self) -> bool:
        """Whether every run finished and there is a choice."""
        return not self.failed and self.best is not None

    def lines(self) -> list[str]:
        """List the table, the choice, and the runs that are left out of it."""
        lines = [
            f"{' and '.join(self.metric_names) or 'score'} on the validation examples, times 100"
            + (" (their mean)" if len(self.metric_names) > 1 else "")
            + "; mean and standard deviation over seeds:",
            *self._table(),
        ]
        lines += [f"collapsed to one answer, left out: {run.name}" for run in self.collapsed]
        lines += [f"failed: {run.name}: {run.failed}" for run in self.failed]
        chosen, best = self.chosen, self.best
        if chosen is None or best is None:
            lines.append(
                "nothing to choose from: every run has collapsed or failed; try lower rates, more "
                "epochs or other seeds"
            )
        else:
            lines.append(f"chosen: {chosen.setting}; its best run: seed {best.trial.seed}")
            lines += self._doubts(chosen, best)
        lines += self.notes
        lines.append(f"trained in {human_time(sum(run.elapsed for run in self.runs))}")
        lines.append(f"results: {self.out / TABLE}, {self.out / PAGE}")
        if self.model is not None:
            lines.append(
                f"model: {self.model} (chosen on the validation examples: judge it on others)"
            )
        return lines

    def _table(self) -> list[str]:
        rows = [COLUMNS, *map(cells, self.rows)]
        if not self.failed:
            rows = [row[:-1] for row in rows]
        return aligned(rows, left=(), head=True)

    def _doubts(self, chosen: SettingRow, best: SearchRun) -> list[str]:
        """List the reasons to doubt the choice."""
        doubts = []
        if self.seen_note:
            doubts.append(self.seen_note)
        rival = best_run(self.runs) or best
        if (rival.score or 0.0) > (best.score or 0.0):
            doubts.append(
                f"a single run scored more, of a setting with a lower mean: {rival.name} "
                f"({hundredfold(rival.score)})"
            )
        if chosen.collapsed:
            doubts.append(
                f"{chosen.collapsed} of its {len(chosen.runs)} runs collapsed: another may, too"
            )
        if len(chosen.scores) < 2:
            doubts.append("its mean is of one run, so chance is not told from merit; add seeds")
        elif len(self.rows) > 1 and self.rows[1].mean is not None:
            second = self.rows[1]
            gap = (chosen.mean or 0.0) - (second.mean or 0.0)
            if len(second.scores) < 2 or gap <= _error_of_gap(chosen, second):
                doubts.append(f"not clearly better than {second.setting}: more seeds would tell")
        return doubts

    def _all_notes(self) -> list[str]:
        return [*self.notes, *filter(None, [self.seen_note])]


def cells(row: SettingRow) -> tuple[str, ...]:
    """Write a row of the table, a cell for each of `COLUMNS`."""
    setting = row.setting
    return (
        str(setting.batch_size),
        exact_rate(setting.learning_rate),
        str(setting.epochs),
        str(row.num_runs),
        hundredfold(row.mean),
        hundredfold(row.deviation),
        hundredfold(None if row.best is None else row.best.score),
        str(row.collapsed),
        str(row.failed),
    )


def _error_of_gap(one: SettingRow, other: SettingRow) -> float:
    """Compute the standard error of the difference of two means whose deviations may differ (Welch
    1947): a gap within it may well be chance."""
    squares = (row.deviation**2 / len(row.scores) for row in (one, other) if row.deviation)
    return math.sqrt(sum(squares))


# The page of a search: its table, and the spread of the runs of each setting.

#: More settings than this do not fit a plot; the best are shown.
_SHOWN = 24


def search_page(result: SearchResult) -> html.Page:
    """Build the page of a search."""
    rows, chosen = result.rows, result.chosen
    score = " and ".join(map(score_name, result.metric_names)) or "score"
    headline = [Fact("runs", str(len(result.runs))), Fact("settings", str(len(rows)))]
    lead = "No run is left to choose from: all have collapsed or failed."
    if chosen is not None and result.best is not None:
        headline.insert(0, Fact(score, hundredfold(chosen.mean), str(chosen.setting)))
        lead = (
            f"The best setting is {chosen.setting}, by the mean of its runs; the model is that of "
            f"{result.best.name}. The validation examples were used to choose: judge it on others."
        )
    blocks: list[html.Block] = [*_spread(rows, score), _table(rows)]
    if result.seen_note:
        blocks.insert(0, Note(sentence(result.seen_note), "warning"))
    for run in result.collapsed:
        text = f"{run.trial}, collapsed to one answer, and is left out."
        blocks.append(Note(text, "warning"))
    blocks += [Note(f"{run.trial}, failed: {run.failed}", "fault") for run in result.failed]
    return html.Page(
        title=f"Search: {result.task}",
        lead=lead,
        headline=headline,
        sections=[Section("Settings", blocks)],
        command="search",
    )


def _spread(rows: list[SettingRow], score: str) -> list[html.Block]:
    judged = [row for row in rows if row.mean is not None]
    shown = judged[:_SHOWN]
    if not shown:
        return []
    caption = "A point a run, a line their mean; runs that collapsed or failed are left out."
    if len(shown) < len(judged):
        caption += f" The {_SHOWN} best settings."
    alt = "; ".join(f"{row.setting}: mean {hundredfold(row.mean)}" for row in shown)
    picture = spread([str(row.setting) for row in shown], [row.scores for row in shown])
    return [Figures([Figure(f"{score}, times 100", picture, alt, caption)], columns=1)]


def _table(rows: list[SettingRow]) -> PageTable:
    caption = "Scores on the validation examples, times 100; std: the standard deviation over seeds"
    return PageTable(COLUMNS, [*map(cells, rows)], numeric=range(len(COLUMNS)), caption=caption)
