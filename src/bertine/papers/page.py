"""Make the page of a table: its scores beside the published ones, their spread, the curves."""

from __future__ import annotations

import statistics

from bertine.papers.measures import MEASURES
from bertine.papers.result import AVERAGE, PaperResult
from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, PageTable, Section
from bertine.reports.plots import curves, spread
from bertine.version import __version__


def paper_page(result: PaperResult) -> html.Page:
    """Make the page of a table."""
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
