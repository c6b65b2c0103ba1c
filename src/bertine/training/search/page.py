"""Make the page of a search: its table, and how far the runs of each setting lie apart."""

from __future__ import annotations

from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, PageTable, Section
from bertine.reports.plots import spread
from bertine.reports.run_sections import sentence
from bertine.scores import hundredfold, score_name
from bertine.training.search.table import COLUMNS, SearchResult, SettingRow, cells
from bertine.version import __version__

#: More settings than this do not fit a plot; the best are shown.
_SHOWN = 24


def search_page(result: SearchResult) -> html.Page:
    """Make the page of a search."""
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
        footer=f"Made by bertine {__version__} with 'bertine search'.",
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
