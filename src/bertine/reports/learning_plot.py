"""Draw scores, and seconds, over the number of labels, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from bertine.reports.plot_style import (
    ACCENT,
    INK,
    MUTED,
    SECOND,
    WIDE,
    canvas,
    label_ticks,
    legend_above,
    nothing_logged,
    number_text,
    to_svg,
)

_COLOURS = (MUTED, INK, ACCENT, SECOND)


@dataclass(frozen=True)
class Line:
    """A curve.

    Attributes:
        name: for the legend.
        points: number of labels, score, and the ends of its interval, as shares of 1.
    """

    name: str
    points: Sequence[tuple[int, float, float, float]]


def learning_plot(lines: Sequence[Line]) -> bytes:
    """Draw scores with their intervals."""
    with canvas(WIDE, 3.4) as (figure, axes):
        if not any(line.points for line in lines):
            return nothing_logged(figure, axes)
        for number, line in enumerate(lines):
            counts, scores, lows, highs = zip(*line.points, strict=True)
            # Intervals beside each other, not over each other.
            shifted = [count * (1 + 0.02 * (number - len(lines) / 2)) for count in counts]
            colour = _COLOURS[number % len(_COLOURS)]
            axes.plot(
                shifted, scores, color=colour, linewidth=1.8, marker="o", markersize=4,
                label=line.name,
            )  # fmt: skip
            axes.vlines(shifted, lows, highs, color=colour, linewidth=1.2, alpha=0.7)
        _label_counts(axes, [point[0] for line in lines for point in line.points])
        axes.yaxis.set_major_locator(MaxNLocator(6))
        label_ticks(axes.yaxis, percent=True, between=axes.get_ylim())
        legend_above(axes, columns=2)
        return to_svg(figure, salt=repr(lines))


def seconds_plot(lines: Sequence[tuple[str, Sequence[tuple[int, float]]]]) -> bytes:
    """Draw seconds of training over the number of labels, both with a logarithmic axis.

    Args:
        lines: name and points of each curve.
    """
    with canvas(WIDE, 3.4) as (figure, axes):
        if not any(points for _, points in lines):
            return nothing_logged(figure, axes)
        for number, (name, points) in enumerate(lines):
            counts = [count for count, _ in points]
            seconds = [max(1e-3, value) for _, value in points]
            colour = _COLOURS[number % len(_COLOURS)]
            axes.plot(
                counts, seconds, color=colour, linewidth=1.8, marker="o", markersize=4, label=name
            )
        _label_counts(axes, [count for _, points in lines for count, _ in points])
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, numticks=7))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value, False)))
        legend_above(axes, columns=2)
        return to_svg(figure, salt=repr(lines))


def _label_counts(axes: Any, counts: Sequence[int]) -> None:
    """Letter the axis of the numbers of labels with those that there are."""
    axes.set_xscale("log")
    axes.set_xlabel("labels")
    axes.xaxis.set_minor_locator(NullLocator())
    shown = sorted(set(counts))
    axes.set_xticks(shown[:: -(-len(shown) // 7)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
