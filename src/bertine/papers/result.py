"""Hold the result of a paper's table: the scores of its cells, compared with the published ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from bertine.core.console import Shown, aligned, human_count, human_time
from bertine.core.names import __version__
from bertine.papers.table import MEASURES, PaperTable
from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, PageTable, Section
from bertine.reports.plots import curves, spread

# Order: compare the order of the rows of a table with the published one.

#: The number of bootstrap samples of the seeds for an interval.
_DRAWS = 1000


@dataclass(frozen=True)
class Order:
    """The agreement of two orders of the same rows.

    Attributes:
        tau: Kendall's τ-b: 1 if they are the same, -1 if one is the reverse of the other.
        low, high: the 95% interval over the seeds; both `tau` if each row has one seed.
        rows: how many were compared.
    """

    tau: float
    low: float
    high: float
    rows: int


def kendall(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Compute Kendall's τ-b of two lists of numbers; return None if all numbers of one are
    equal."""
    tau = float(kendalltau(ours, theirs).statistic)
    return None if math.isnan(tau) else tau


def compare_order(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[str, float], seed: int = 0
) -> Order | None:
    """Compare the means of the scores of rows with published scores.

    Args:
        ours: the scores of each row, one a seed.
        theirs: the published score of each row; rows that only one of the two has are left out.
        seed: of the random samples for the interval: the seeds of each row, drawn with replacement
            (the bootstrap).

    Returns:
        None for fewer than three rows, or if all of them have the same score.
    """
    rows = [row for row in ours if row in theirs and ours[row]]
    if len(rows) < 3:
        return None
    published = [theirs[row] for row in rows]
    tau = kendall([statistics.fmean(ours[row]) for row in rows], published)
    if tau is None:
        return None
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(_DRAWS if any(len(ours[row]) > 1 for row in rows) else 0):
        means = [float(rng.choice(np.array(ours[row]), len(ours[row])).mean()) for row in rows]
        value = kendall(means, published)
        drawn.append(0.0 if value is None else value)
    low, high = np.percentile(drawn, [2.5, 97.5]).tolist() if drawn else (tau, tau)
    return Order(tau, low, high, len(rows))


#: The files in the folder of the table: its scores as JSON, and as a page.
TABLE, PAGE = "paper.json", "paper.html"
#: The key of the mean of the columns.
AVERAGE = "average"


@dataclass(repr=False)
class PaperResult(Shown):
    """The result of running a table.

    Attributes:
        table: the table.
        out: its folder.
        columns: the columns that were run.
        scores: of each row by column, one a seed; shares are not times 100.
        scale: the scale of the runs, in words.
        parameters: the number of parameters of the model of each row.
        seconds: the total time of all steps.
        failed: the reasons of failures, by the names of the steps.
        left_out: the reasons why columns were left out.
        curves: of the pre-training of each row, (steps, losses).
    """

    table: PaperTable
    out: Path
    columns: tuple[str, ...]
    scores: Mapping[str, Mapping[str, Sequence[float]]]
    scale: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    failed: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, tuple[list[int], list[float]]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return not self.failed

    def averages(self, row: str) -> list[float]:
        """Return the means of a row over the columns with fine-tuning, one a seed; empty if a cell
        is missing."""
        columns = [name for name in self.columns if MEASURES[name].verb == "finetune"]
        of_row = [self.scores.get(row, {}).get(name, ()) for name in columns]
        seeds = min(map(len, of_row), default=0)
        return [statistics.fmean(scores[seed] for scores in of_row) for seed in range(seeds)]

    def _published_mean(self, row: str) -> float | None:
        """Return the published value by which a row is ordered: its average, or the mean of its
        scores over the columns of the paper; None if one is missing."""
        published = self.table.row(row).published
        if AVERAGE in published:
            return published[AVERAGE]
        columns = [name for name in self.table.columns if MEASURES[name].verb == "finetune"]
        columns = [n for n in columns if any(n in other.published for other in self.table.rows)]
        if not columns or any(name not in published for name in columns):
            return None
        return statistics.fmean(published[name] for name in columns)

    def orders(self) -> dict[str, Order]:
        """Compare the order of the rows with the published one, for each column and for the means
        of all columns."""
        found: dict[str, Order] = {}
        for column in self.columns:
            ours = {row: list(by.get(column, ())) for row, by in self.scores.items()}
            theirs = {row.name: row.published for row in self.table.rows}
            published = {row: by[column] for row, by in theirs.items() if column in by}
            order = compare_order(ours, published)
            if order is not None:
                found[column] = order
        averages = {row: self.averages(row) for row in self.scores}
        published = {
            row: value for row in averages if (value := self._published_mean(row)) is not None
        }
        order = compare_order(averages, published)
        if order is not None:
            found[AVERAGE] = order
        return found

    def cells(self) -> list[list[str]]:
        """Return the table as texts: a list for each row, with the published scores in brackets."""
        titles = [row for row in self.table.rows if self.table.given or row.name in self.scores]
        shown = [*self.columns, *([AVERAGE] if self._has_average() else [])]
        rows = [["", "parameters", *shown]]
        for row in titles:
            parameters = self.parameters.get(row.name)
            cells = [row.title, human_count(parameters) if parameters else ""]
            for column in shown:
                if column == AVERAGE:
                    ours, published = self.averages(row.name), row.published.get(AVERAGE)
                    cells.append(_cell(ours, published, percent=True))
                else:
                    values = self.scores.get(row.name, {}).get(column, ())
                    percent = MEASURES[column].percent
                    cells.append(_cell(values, row.published.get(column), percent=percent))
            rows.append(cells)
        return rows

    def caption(self) -> str:
        """Explain the numbers of a cell."""
        shares = ", shares times 100" if any(MEASURES[c].percent for c in self.columns) else ""
        averages = "; averages are over tasks that are fine-tuned for" * self._has_average()
        return (
            f"mean ± standard deviation over seeds{shares}; in brackets the published scores"
            f"{averages}"
        )

    def _has_average(self) -> bool:
        return sum(MEASURES[name].verb == "finetune" for name in self.columns) > 1

    def lines(self) -> list[str]:
        """Return what the command prints."""
        lines = [f"{self.table.title} ({self.table.paper})", *aligned(self.cells())]
        lines.append(self.caption())
        for name, order in self.orders().items():
            lines.append(f"{name}: {order_line(order)}")
        lines.append(self.scale)
        lines += [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]
        lines += [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        if self.seconds:
            lines.append(f"all steps together took {human_time(self.seconds)}")
        return [*lines, f"page: {self.out / PAGE}"]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "table": self.table.name,
            "paper": self.table.paper,
            "scale": self.scale,
            "columns": list(self.columns),
            "scores": {row: {c: list(v) for c, v in by.items()} for row, by in self.scores.items()},
            "published": {row.name: dict(row.published) for row in self.table.rows},
            "parameters": dict(self.parameters),
            "orders": {name: vars(order) for name, order in self.orders().items()},
            "seconds": self.seconds,
            "left_out": dict(self.left_out),
            "failed": dict(self.failed),
        }


def order_line(order: Order) -> str:
    """Describe how well the order of the rows agrees with the published one."""
    interval = f" ({order.low:.2f} to {order.high:.2f} over the seeds)"
    return (
        f"order of {order.rows} rows beside the published one: Kendall's τ {order.tau:.2f}"
        f"{interval if order.low != order.high else ''}"
    )


def _cell(values: Sequence[float], published: float | None, *, percent: bool) -> str:
    """Format the scores of a cell."""
    text = "–"
    if values:
        factor = 100 if percent else 1
        mean = factor * statistics.fmean(values)
        # Three digits, because seconds may be far below 1.
        digits = 1 if percent or mean <= 0 else max(1, 2 - math.floor(math.log10(mean)))
        text = f"{mean:.{digits}f}"
        if len(values) > 1:
            text += f" ± {factor * statistics.stdev(values):.{digits}f}"
    return text if published is None else f"{text} ({round(published, 2):g})"


# The page of a table: its scores and the published ones, their spread, the curves.


def paper_page(result: PaperResult) -> html.Page:
    """Build the page of a table."""
    table = result.table
    orders = result.orders()
    headline = [Fact("rows", str(len(result.scores)))]
    if AVERAGE in orders:
        order = orders[AVERAGE]
        note = f"{order.low:.2f} to {order.high:.2f} over the seeds"
        headline.insert(0, Fact("Kendall's τ of the averages", f"{order.tau:.2f}", note))
    head, *rows = result.cells()
    notes: list[html.Block] = []
    if orders:
        shown = [
            [name, f"{o.tau:.2f}", f"{o.low:.2f} to {o.high:.2f}"] for name, o in orders.items()
        ]
        below = "1: the rows are in the published order; -1: in the opposite one."
        columns = ["", "Kendall's τ", "over the seeds"]
        notes.append(
            PageTable(columns, shown, numeric=(1, 2), caption=f"The order of rows. {below}")
        )
    if result.left_out:
        reasons = "; ".join(f"{name} ({why})" for name, why in result.left_out.items())
        notes.append(Note(f"Left out: {reasons}."))
    notes += [Note(f"{name} failed: {why}", "fault") for name, why in result.failed.items()]
    caption = result.caption()
    caption = f"{caption[0].upper()}{caption[1:]}."
    blocks = [PageTable(head, rows, numeric=range(1, len(head)), caption=caption), *notes]
    lead = f"{result.scale[0].upper()}{result.scale[1:]}. {table.note}".strip()
    sections = [Section("Scores", blocks, lead=lead)]
    if result.table.runs:
        sections.append(Section("Along the way", [Figures(_along(result), columns=2)]))
    elif pictures := _spreads(result):
        lead = "A point a run, a line their mean; the first row stands out."
        sections.append(Section("Spread", [Figures(pictures, columns=2)], lead=lead))
    if result.curves:
        sections.append(Section("Pre-training", [Figures([_curves(result)], columns=1)]))
    return html.Page(
        title=table.title,
        lead=f"{table.paper}, {table.url}",
        headline=headline,
        sections=sections,
        footer=f"Made by bertine {__version__} with 'bertine paper {table.name}'.",
    )


def _spreads(result: PaperResult) -> list[Figure]:
    """Draw the scores of the rows for each column."""
    figures = []
    titles = {row.name: row.title for row in result.table.rows}
    for column in result.columns:
        if not MEASURES[column].percent:
            continue
        rows = [(titles[row], list(by.get(column, ()))) for row, by in result.scores.items()]
        rows = [(title, values) for title, values in rows if values]
        if not rows:
            continue
        alt = "; ".join(f"{title}: {100 * statistics.fmean(values):.1f}" for title, values in rows)
        picture = spread([title for title, _ in rows], [values for _, values in rows])
        figures.append(Figure(f"{column}, times 100", picture, alt))
    return figures


def _along(result: PaperResult) -> list[Figure]:
    """Draw the scores of a curve for each column, over the share of the steps."""
    figures = []
    for column in result.columns:
        factor = 100 if MEASURES[column].percent else 1
        lines, names = [], []
        for run in result.table.runs:
            points = [
                (100 * row.share, factor * statistics.fmean(values))
                for row in result.table.rows
                if row.snapshot_of == run.name
                and (values := result.scores.get(row.name, {}).get(column))
            ]
            if points:
                names.append(run.title)
                lines.append(([x for x, _ in points], [y for _, y in points]))
        if not lines:
            continue
        alt = "; ".join(
            f"{name}: {', '.join(f'{y:.1f} after {x:.0f}%' for x, y in zip(*line, strict=True))}"
            for name, line in zip(names, lines, strict=True)
        )
        picture = curves(names, lines, label="% of the steps")
        figures.append(Figure(f"{column}, times 100" if factor > 1 else column, picture, alt))
    return figures


def _curves(result: PaperResult) -> Figure:
    names = [result.table.row(name).title for name in result.curves]
    ends = (
        f"{name}: {line[1][-1]:.2f}"
        for name, line in zip(names, result.curves.values(), strict=True)
    )
    caption = "The loss that is minimized; rows of different objectives have different losses."
    return Figure("Loss", curves(names, list(result.curves.values())), "; ".join(ends), caption)
