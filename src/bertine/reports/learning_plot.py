"""Draw scores, and seconds, over the number of labels, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bertine.reports.svg import (
    ACCENT,
    INK,
    MUTED,
    SECOND,
    WIDE,
    Axis,
    Plot,
    Stroke,
    limits,
    nothing_logged,
    number_axis,
)

_COLOURS = (MUTED, INK, ACCENT, SECOND)
_HEIGHT = 245


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
    if not any(line.points for line in lines):
        return nothing_logged(WIDE, _HEIGHT)
    y = number_axis(*limits(v for line in lines for p in line.points for v in p[1:]), percent=True)
    legend = _legend([line.name for line in lines])
    counts = [point[0] for line in lines for point in line.points]
    plot = Plot(WIDE, _HEIGHT, _counts_axis(counts), y, legend=legend)
    for number, line in enumerate(lines):
        stroke = legend[number][1]
        # Intervals beside each other, not over each other.
        apart = 1 + 0.02 * (number - len(lines) / 2)
        plot.line([p[0] * apart for p in line.points], [p[1] for p in line.points], stroke)
        for count, _, low, high in line.points:
            plot.line([count * apart] * 2, (low, high), Stroke(stroke.colour, 1.2, opacity=0.7))
    return plot.svg()


def seconds_plot(lines: Sequence[tuple[str, Sequence[tuple[int, float]]]]) -> bytes:
    """Draw seconds of training over the number of labels, both with a logarithmic axis.

    Args:
        lines: name and points of each curve.
    """
    if not any(points for _, points in lines):
        return nothing_logged(WIDE, _HEIGHT)
    shown = [[(count, max(1e-3, seconds)) for count, seconds in points] for _, points in lines]
    ends = limits((seconds for points in shown for _, seconds in points), log=True)
    legend = _legend([name for name, _ in lines])
    counts = [count for points in shown for count, _ in points]
    plot = Plot(WIDE, _HEIGHT, _counts_axis(counts), number_axis(*ends, log=True), legend=legend)
    for points, (_, stroke) in zip(shown, legend, strict=True):
        plot.line([count for count, _ in points], [seconds for _, seconds in points], stroke)
    return plot.svg()


def _legend(names: Sequence[str]) -> list[tuple[str, Stroke]]:
    """Give each curve a colour of its own, as far as there are some."""
    return [
        (name, Stroke(_COLOURS[number % len(_COLOURS)], dot=2)) for number, name in enumerate(names)
    ]


def _counts_axis(counts: Sequence[int]) -> Axis:
    """Return the axis of the numbers of labels, lettered with those that there are."""
    shown = sorted(set(counts))
    shown = shown[:: -(-len(shown) // 7)]
    low, high = limits(counts, log=True)
    return Axis(low, high, shown, [f"{count:,}" for count in shown], "labels", log=True)
