"""The result of a table: the scores of its cells beside the published ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertine.papers.measures import MEASURES
from bertine.papers.order import Order, compare_order
from bertine.papers.table import PaperTable
from bertine.terminal.console import aligned, human_count, human_time
from bertine.terminal.shown import Shown

#: In the folder of the table: its scores, and the same as a page.
TABLE, PAGE = "paper.json", "paper.html"
#: Where the mean of the columns stands.
AVERAGE = "average"


@dataclass(repr=False)
class PaperResult(Shown):
    """A table that was run.

    Attributes:
        table: what was to be run.
        out: its folder.
        columns: that were run.
        scores: of each row by column, one a seed; shares are not times 100.
        scale: what it was run at, in words.
        parameters: of the model of each row.
        seconds: that all steps took together.
        failed: why steps failed, by their names.
        left_out: why columns were left out.
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
        """Whether nothing failed."""
        return not self.failed

    def averages(self, row: str) -> list[float]:
        """Return the mean of a row over the columns of tasks that are fine-tuned for, one a seed;
        empty where a cell is missing."""
        columns = [name for name in self.columns if MEASURES[name].verb == "finetune"]
        of_row = [self.scores.get(row, {}).get(name, ()) for name in columns]
        seeds = min(map(len, of_row), default=0)
        return [statistics.fmean(scores[seed] for scores in of_row) for seed in range(seeds)]

    def _published_mean(self, row: str) -> float | None:
        """Return by what the paper orders a row: its average, or the mean of its scores over the
        columns that the paper has; None where one is missing."""
        published = self.table.row(row).published
        if AVERAGE in published:
            return published[AVERAGE]
        columns = [name for name in self.table.columns if MEASURES[name].verb == "finetune"]
        columns = [n for n in columns if any(n in other.published for other in self.table.rows)]
        if not columns or any(name not in published for name in columns):
            return None
        return statistics.fmean(published[name] for name in columns)

    def orders(self) -> dict[str, Order]:
        """Compare the order of the rows with the published one, by column, and that of the means of
        all columns."""
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
        """Return the table as texts: a row each, with the published scores in brackets."""
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
        """Say what the numbers of a cell are."""
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
    """Say how far the order of the rows is the published one."""
    interval = f" ({order.low:.2f} to {order.high:.2f} over the seeds)"
    return (
        f"order of {order.rows} rows beside the published one: Kendall's τ {order.tau:.2f}"
        f"{interval if order.low != order.high else ''}"
    )


def _cell(values: Sequence[float], published: float | None, *, percent: bool) -> str:
    """Write the scores of a cell."""
    text = "–"
    if values:
        factor = 100 if percent else 1
        mean = factor * statistics.fmean(values)
        # Three digits: seconds may be far below 1.
        digits = 1 if percent or mean <= 0 else max(1, 2 - math.floor(math.log10(mean)))
        text = f"{mean:.{digits}f}"
        if len(values) > 1:
            text += f" ± {factor * statistics.stdev(values):.{digits}f}"
    return text if published is None else f"{text} ({round(published, 2):g})"
