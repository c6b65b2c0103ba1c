"""Write the files of a learning-rate range test: its curve, its plot and its page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertine.files import write_json, write_text
from bertine.reports.html import (
    Block,
    Commands,
    Fact,
    Figure,
    Figures,
    Note,
    Page,
    Section,
)
from bertine.reports.run_sections import sentence, setting_facts
from bertine.reports.svg import ACCENT, INK, REFERENCE, Axis, Plot, Stroke, log_ticks, number_axis
from bertine.scores import rate_text
from bertine.training.rate.curve import Landmarks, RateCurve
from bertine.training.rate.report import CURVE, PAGE, PLOT, LrFindReport
from bertine.version import __version__

_HOW = (
    "Each step has a higher rate than the one before, by the same factor; its loss is that of its "
    "batch before the update. The smoothed loss is their exponential moving average with its bias "
    "corrected, set at the rate that is averaged in the same way, so that it does not lag.",
    "The rates are those of a warmed-up run: the climb itself is a warm-up, and Adam's moments are "
    "filled at the lowest rate before it. Keep a warm-up when you train.",
    "A test sees a hundred steps with a fresh head, not a whole run, and it is noisy. So the rate "
    "is the usual one for a model of this size, unless the loss rises there (then a third of the "
    "rate from which it rises, or half of the usual rate if that is more) or rises only far above "
    "it (then twice the usual rate). Epochs and batch size follow from the number of examples. A "
    "search (bertine search) is the check.",
)


def write_files(report: LrFindReport, settings: Mapping[str, Any]) -> None:
    """Write the three files of a test; `settings` are shown in them.

    Raises:
        BertineError: they cannot be written.
    """
    shown = {name: _json(value) for name, value in settings.items() if value is not None}
    plot = rate_plot(report.curve, report.landmarks, report.learning_rate)
    write_json(report.out / CURVE, {**report.to_dict(), "settings": shown})
    write_text(report.out / PLOT, plot.decode("utf-8") + "\n")
    rate_page(report, plot, shown).write(report.out / PAGE)


def rate_page(report: LrFindReport, plot: bytes, settings: Mapping[str, Any]) -> Page:
    """Make the page of a test.

    Args:
        plot: of :func:`rate_plot`.
        settings: as JSON values.
    """
    headline = [Fact("Learning rate", rate_text(report.learning_rate), "to train with")]
    if report.landmarks is not None:
        marks = report.landmarks
        headline += [
            Fact("Steepest", rate_text(marks.steepest), "the loss falls fastest"),
            Fact("Lowest", rate_text(marks.lowest), "the smoothed loss is lowest"),
        ]
        if not marks.ends:
            headline.append(Fact("Rises", rate_text(marks.rises), "from here on the loss rises"))
    caption = "Faint: the loss of each step's batch. Dashed: the rate to train with."
    figure = Figure("Loss over the learning rate", plot, report.shown(), caption)
    curve: list[Block] = [Note(sentence(note), "warning") for note in report.notes]
    curve.append(Figures([figure], columns=1, wide=True))
    command = Commands([("", report.command)])
    return Page(
        title=f"Learning rate: {settings.get('glue_task') or settings['task']}",
        lead=report.lead(),
        headline=headline,
        sections=[
            Section("The curve", curve),
            Section("Next", [command], lead="Train with this rate, for this long:"),
            Section("How to read the curve", [Note(text) for text in _HOW], folded=True),
            Section("Settings", [setting_facts(settings)], folded=True),
        ],
        footer=f"Made by bertine {__version__} with 'bertine lr-find'.",
    )


def rate_plot(curve: RateCurve, landmarks: Landmarks | None, rate: float) -> bytes:
    """Draw the loss over the rate as SVG: each step faint, the smoothed curve with a dot where it
    is lowest, and the `rate` to train with as a dashed line."""
    rates, losses = curve.rates[curve.warmup :], curve.losses[curve.warmup :]
    smoothed_at, smoothed = curve.points()
    low, high = _limits(losses, smoothed)
    first, last = (rates[0], max(rates[-1], rates[0] * 1.01)) if rates else (1e-6, 1e-2)
    ticks = log_ticks(first, last)
    x = Axis(first, last, ticks, [rate_text(tick) for tick in ticks], "learning rate", log=True)
    lines = {
        "to train with": dataclasses.replace(REFERENCE, width=1.1),
        "loss": Stroke(ACCENT, 0.9, opacity=0.35),
        "smoothed": Stroke(ACCENT, 2.2),
        "lowest": Stroke(INK, 0, dot=2.5),
    }
    shown = [item for item in lines.items() if landmarks or item[0] != "lowest"]
    plot = Plot(518, 266, x, number_axis(low, high, label="loss"), legend=shown)
    if first <= rate <= last:
        plot.line((rate, rate), (low, high), lines["to train with"])
    plot.line(rates, losses, lines["loss"])
    plot.line(smoothed_at.tolist(), smoothed.tolist(), lines["smoothed"])
    if landmarks is not None:
        loss = float(np.interp(landmarks.lowest, smoothed_at, smoothed))
        plot.line([landmarks.lowest], [loss], lines["lowest"])
    return plot.svg()


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
