"""The page of a search: its table, and how far the runs of each setting lie apart.

From plain data: what ``search.json`` holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, Section, Table
from bertine.reports.plot_style import (
    ACCENT,
    GRID,
    INK,
    MUTED,
    STYLE,
    WIDE,
    blank_axes,
    nothing_logged,
    to_svg,
)
from bertine.reports.scores import exact_rate, hundredfold, score_name
from bertine.version import __version__

#: More settings than this do not fit a plot; the best are shown.
_SHOWN = 24


def write_search_page(path: Path, result: Mapping[str, Any]) -> None:
    """Write the page of a search.

    Args:
        path: of the page.
        result: as ``search.json`` has it: ``task``, ``metric_names``, ``chosen``, ``best_run``,
            ``table``, ``runs``, ``notes``.

    Raises:
        BertineError: `path` cannot be written.
    """
    html.render_report(path, search_page(result))


def search_page(result: Mapping[str, Any]) -> html.Report:
    """The page, as data."""
    table, runs = result["table"], result["runs"]
    judged = " and ".join(map(score_name, result["metric_names"])) or "score"
    chosen = table[0] if result["chosen"] else None
    headline = [Fact("runs", str(len(runs))), Fact("settings", str(len(table)))]
    if chosen is not None:
        headline = [Fact(judged, _score(chosen), _name(chosen)), *headline]
    left_out = [
        Note(f"{_run_name(run)} collapsed to one answer, and is left out.", "warning")
        for run in runs
        if run["collapsed"]
    ] + [
        Note(f"{_run_name(run)} failed: {run['failed']}", "fault") for run in runs if run["failed"]
    ]
    lead = "No run is left to choose from: all have collapsed or failed."
    if chosen is not None:
        lead = (
            f"The best setting is {_name(chosen)}, by the mean of its runs; the model is that of "
            f"{result['best_run']}. The validation examples were used to choose: judge it on "
            "others."
        )
    return html.Report(
        title=f"Search: {result['task']}",
        lead=lead,
        headline=headline,
        sections=[
            Section("Settings", [*_spread(table, runs, judged), _table(table), *left_out]),
        ],
        footer=f"Made by bertine {__version__} with 'bertine search'.",
    )


def spread(names: Sequence[str], scores: Sequence[Sequence[float]]) -> bytes:
    """The scores of each setting as points in a row, their mean as a line across, as SVG. The first
    is the chosen one.

    Args:
        names: of the settings.
        scores: of the runs of each, as fractions of 1.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = blank_axes(WIDE, 0.7 + 0.3 * max(1, len(names)))
        if not any(scores):
            return nothing_logged(figure, axes)
        for row, values in enumerate(scores):
            colour = MUTED if row else ACCENT
            places = [100 * value for value in values]
            axes.plot(places, [row] * len(values), "o", color=colour, markersize=5, alpha=0.6)
            if values:
                mean = sum(places) / len(values)
                axes.plot([mean, mean], [row - 0.32, row + 0.32], color=colour, linewidth=2)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        return to_svg(figure, salt=repr((names, scores)))


def _spread(
    table: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], judged: str
) -> list[html.Block]:
    judged_rows = [row for row in table if row["mean"] is not None]
    rows = judged_rows[:_SHOWN]
    if not rows:
        return []
    scores = [
        [
            run["score"]
            for run in runs
            if not run["failed"] and not run["collapsed"] and _name(run) == _name(row)
        ]
        for row in rows
    ]
    caption = "A point a run, a line their mean; runs that collapsed or failed are left out."
    if len(rows) < len(judged_rows):
        caption += f" The {_SHOWN} best settings."
    alt = "; ".join(f"{_name(row)}: mean {_score(row)}" for row in rows)
    picture = spread([_name(row) for row in rows], scores)
    return [Figures([Figure(f"{judged}, times 100", picture, alt, caption)], columns=1)]


def _table(table: Sequence[Mapping[str, Any]]) -> Table:
    columns = ["batch", "rate", "epochs", "runs", "mean", "std", "best", "collapsed", "failed"]
    rows = [
        [
            str(row["batch_size"]),
            exact_rate(row["learning_rate"]),
            str(row["epochs"]),
            str(row["runs"]),
            _score(row),
            hundredfold(row["standard_deviation"]),
            hundredfold(row["best"]),
            str(row["collapsed"]),
            str(row["failed"]),
        ]
        for row in table
    ]
    caption = "Scores on the validation examples, times 100; std: the standard deviation over seeds"
    return Table(columns, rows, numeric=range(len(columns)), caption=caption)


def _name(row: Mapping[str, Any]) -> str:
    return (
        f"batch {row['batch_size']}, rate {exact_rate(row['learning_rate'])}, {row['epochs']} ep."
    )


def _run_name(run: Mapping[str, Any]) -> str:
    return f"{_name(run)}, seed {run['seed']},"


def _score(row: Mapping[str, Any]) -> str:
    return hundredfold(row["mean"])
