"""Write the files of a learning-rate range test: its curve, its plot and its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from bertine.files import write_json, write_text
from bertine.reports.html import (
    Block,
    Commands,
    Fact,
    Figure,
    Figures,
    Note,
    Page,
    PageTable,
    Section,
)
from bertine.reports.plot_style import (
    ACCENT,
    DASHED,
    INK,
    canvas,
    label_ticks,
    legend_above,
    to_svg,
)
from bertine.reports.run_sections import sentence, setting_facts
from bertine.scores import rate_text
from bertine.training.rate.curve import PAPER_RATES, Bracket, RateCurve
from bertine.training.rate.report import CURVE, PAGE, PLOT, LrFindReport
from bertine.version import __version__

_HOW = (
    "Each step has a higher rate than the one before, by the same factor; its loss is that of its "
    "batch before the update. The smoothed loss is their exponential moving average with its bias "
    "corrected, set at the rate that is averaged in the same way, so that it does not lag.",
    "The bracket lies between the rate at which the smoothed loss falls fastest (the steepest "
    "straight line through half a decade of the curve, left of the lowest point) and a tenth of "
    "the rate up to which it stays at its lowest, as far as its noise lets tell: near that one a "
    "run is already about to diverge.",
    "The rates are those of a warmed-up run: the climb itself is a warm-up, and Adam's moments are "
    "filled at the lowest rate before it. Keep a warm-up when you train; without it take the lower "
    "end.",
    "A test sees a hundred steps with a fresh head, not a whole run, and it is noisy. So the "
    "advised rate is the usual one for a model of this size, unless the loss rises there (then a "
    "third of the rate up to which it stays at its lowest, or half of the usual rate if that is "
    "more) or rises only far above it (then twice the usual rate); epochs and batch size follow "
    "from the number of examples. A search (bertine search) is the check.",
)


def write_files(report: LrFindReport, settings: Mapping[str, Any]) -> None:
    """Write the three files of a test; `settings` are shown in them.

    Raises:
        BertineError: they cannot be written.
    """
    shown = {name: _json(value) for name, value in settings.items() if value is not None}
    plot = rate_plot(report.curve, report.bracket)
    write_json(report.out / CURVE, {**report.to_dict(), "settings": shown})
    write_text(report.out / PLOT, plot.decode("utf-8") + "\n")
    rate_page(report, plot, shown).write(report.out / PAGE)


def rate_page(report: LrFindReport, plot: bytes, settings: Mapping[str, Any]) -> Page:
    """Make the page of a test.

    Args:
        plot: of :func:`rate_plot`.
        settings: as JSON values.
    """
    bracket = report.bracket
    headline = []
    if bracket is not None:
        beyond = "the test ended there" if report.still_falling else "beyond it the loss rises"
        between = f"{rate_text(bracket.low)} to {rate_text(bracket.high)}"
        headline = [
            Fact("Bracket", between, "learning rate"),
            Fact("Steepest", rate_text(bracket.steepest), "the loss falls fastest"),
            Fact("Lowest", rate_text(bracket.lowest), beyond),
        ]
    caption = (
        "Faint: the loss of each step's batch. Shaded: the bracket. Dashed: the rates that the "
        "paper tries."
    )
    figure = Figure("Loss over the learning rate", plot, report.lead(), caption)
    curve: list[Block] = [Note(sentence(note), "warning") for note in report.notes]
    curve.append(Figures([figure], columns=1, wide=True))
    columns = ("rate", "smoothed loss", "the curve says")
    table = PageTable(columns, report.grid_rows(), numeric=(0, 1))
    tries = (
        "Devlin et al. 2018, section A.3, tries these rates for every task and takes the best on "
        "the dev set."
    )
    command = Commands([("", report.command)])
    return Page(
        title=f"Learning rate: {settings.get('glue_task') or settings['task']}",
        lead=report.lead(),
        headline=headline,
        sections=[
            Section("The curve", curve),
            Section("Next", [command], lead="Train with this rate, for this long:"),
            Section("The paper's grid", [table], lead=tries),
            Section("How to read the curve", [Note(text) for text in _HOW], folded=True),
            Section("Settings", [setting_facts(settings)], folded=True),
        ],
        footer=f"Made by bertine {__version__} with 'bertine lr-find'.",
    )


def rate_plot(curve: RateCurve, bracket: Bracket | None) -> bytes:
    """Draw the loss over the rate as SVG: each step faint, the smoothed curve, the bracket shaded,
    the paper's rates as dashed lines."""
    rates, losses = curve.rates[curve.warmup :], curve.losses[curve.warmup :]
    smoothed_at, smoothed = curve.points()
    with canvas(7.2, 3.7) as (figure, axes):
        axes.set_xscale("log")
        if bracket is not None:
            # A bracket of one rate is still to be seen.
            low, high = bracket.low / 1.03, bracket.high * 1.03
            axes.axvspan(low, high, color=ACCENT, alpha=0.14, linewidth=0, label="bracket")
        for number, rate in enumerate(PAPER_RATES):
            name = None if number else "the paper's rates"
            axes.axvline(rate, linewidth=1.1, label=name, **DASHED)
        axes.plot(rates, losses, color=ACCENT, linewidth=0.9, alpha=0.35, label="loss")
        axes.plot(smoothed_at, smoothed, color=ACCENT, linewidth=2.2, label="smoothed")
        if bracket is not None:
            loss = float(np.interp(bracket.lowest, smoothed_at, smoothed))
            axes.plot([bracket.lowest], [loss], "o", color=INK, markersize=5, label="lowest")
        if rates:
            axes.set_xlim(rates[0], max(rates[-1], rates[0] * 1.01))
            axes.set_ylim(*_limits(losses, smoothed))
        legend_above(axes, columns=5)
        axes.set(xlabel="learning rate", ylabel="loss")
        axes.xaxis.set_major_locator(LogLocator(10, numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: rate_text(value)))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        label_ticks(axes.yaxis)
        return to_svg(figure, salt=repr((curve, bracket)))


def _limits(losses: list[float], smoothed: np.ndarray) -> tuple[float, float]:
    """Choose which losses are shown: those of the first two thirds and the smoothed curve's lowest,
    with room for a rise; not the flight at the end, which would press the rest flat."""
    early = losses[: max(1, 2 * len(losses) // 3)]
    low = min(float(smoothed.min()), float(np.quantile(early, 0.02)))
    high = max(float(smoothed[0]), float(np.quantile(early, 0.98)))
    room = max(high - low, 1e-6)
    return low - 0.08 * room, high + 0.25 * room


def _json(value: Any) -> Any:
    """Make a setting a JSON value."""
    if isinstance(value, list | tuple):
        return [*map(_json, value)]
    return value if isinstance(value, str | int | float) else str(value)
