"""Draw the plots of reports as SVG for an HTML page: light or dark, at any width.

Their look is that of :mod:`bertine.reports.svg`. Each plot is small, 300 to 350 units wide: a page
shows several in a row, a phone one per row, and in both the lettering keeps a readable size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertine.core.text import cut
from bertine.reports.svg import (
    ACCENT,
    GOOD,
    GRID,
    INK,
    MUTED,
    NARROW,
    REFERENCE,
    SECOND,
    WIDE,
    Axis,
    Plot,
    Stroke,
    canvas,
    decimals,
    limits,
    nothing_logged,
    number_axis,
    number_text,
    printable,
    width_of,
)

#: With more points than this a curve is drawn faint, with its running mean over it.
_SMOOTH_FROM = 30
#: More points than this are not drawn one by one: a plot is 300 units wide.
_MOST_POINTS = 1200


@dataclass(frozen=True)
class Bar:
    """One bar of a comparison. All numbers are shares from 0 to 1.

    `low` and `high` bound the 95% interval; None for a value that has none.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    highlight: bool = False


def curve(
    steps: Sequence[float],
    values: Sequence[float],
    *,
    percent: bool = False,
    reference: float | None = None,
    reference_label: str = "",
    from_zero: bool = False,
    noisy: bool = True,
    overlay: tuple[Sequence[float], Sequence[float]] | None = None,
    names: tuple[str, str] = ("training", "held-out"),
    log_scale: bool = False,
) -> bytes:
    """Draw one quantity over the training steps, as SVG.

    Args:
        steps: step numbers, ascending.
        values: the quantity at each step; a share from 0 to 1 if `percent`.
        percent: label the axis in percent.
        reference: a value to compare with, drawn as a dashed line.
        reference_label: the name of the dashed line.
        from_zero: start the axis at zero.
        noisy: draw many points faint, with their running mean over them, whose end is the number
            next to the plot; otherwise draw every point and label the last.
        overlay: steps and values of a second curve, sparse and drawn point by point, e.g. the
            same quantity on held-out text; with it the plot has a legend.
        names: the names of the curve and the overlay, for the legend.
        log_scale: a logarithmic axis; values that are not above zero are left out.
    """
    if log_scale:
        points = [(s, v) for s, v in zip(steps, values, strict=True) if v > 0]
        steps, values = [s for s, _ in points], [v for _, v in points]
    height = 194
    if not values:
        return nothing_logged(NARROW, height)
    over = overlay if overlay is not None and overlay[1] else ([], [])
    low, high = limits([*values, *(v for v in over[1] if v > 0 or not log_scale)], log=log_scale)
    if from_zero:
        low = min(0.0, low)
    below = reference is not None and float(np.mean(values[len(values) // 2 :])) < reference
    if reference is not None:
        low, high = _with_room(low, high, reference, below, log_scale)
    first, end = min([*steps, *over[0]]), max([*steps, *over[0]])
    ends = (first, end) if end > first else (first - 1, first + 1)
    y = number_axis(low, high, percent=percent, log=log_scale)
    mean = _running_mean(values).tolist() if noisy and len(values) >= _SMOOTH_FROM else None
    last = values[-1] if mean is None else mean[-1]
    extra = number_text(last, percent, decimals(y.ticks, percent))
    one = Stroke(ACCENT, 0, dot=3) if len(values) == 1 else Stroke(ACCENT, 2.2)
    second = Stroke(INK, 1.4, dot=1.8)
    plot = Plot(
        NARROW,
        height,
        number_axis(*ends, whole=True, label="step"),
        y,
        legend=[(names[0], one), (names[1], second)] if over[1] else (),
        side_label=extra,
    )
    if mean is not None:
        plot.line(*_thinned(steps, values), Stroke(ACCENT, 0.9, opacity=0.35))
    plot.line(*_thinned(steps, values if mean is None else mean), one)
    plot.line(*_thinned(*over), second)
    if reference is not None:
        plot.line(ends, (reference, reference), REFERENCE)
        # On the side where the curve is not.
        at = plot.down(reference) + (-8 if below else 9)
        plot.text(plot.right - 2, at, reference_label, SECOND, anchor="end")
    # The last value is outside the box, at its height, where no line can cross it.
    at = plot.down(min(max(last, low), high))
    plot.text(plot.right + 5, at, extra, ACCENT, bold=True)
    return plot.svg()


def _with_room(
    low: float, high: float, reference: float, below: bool, log: bool
) -> tuple[float, float]:
    """Return the ends of an axis that also shows a reference line and has room for its label: above
    it where the curve is `below`."""
    under, over = (0.08, 0.14) if below else (0.14, 0.08)
    if log:
        return min(low, reference / (1 + 4 * under)), max(high, reference * 1.5)
    span = max(high, reference) - min(low, reference)
    return min(low, reference - under * span), max(high, reference + over * span)


def comparison(bars: Sequence[Bar]) -> bytes:
    """Draw accuracies as horizontal bars with their 95% intervals, as SVG. The axis begins at 0 and
    ends at 20, 40, 60, 80 or 100%."""
    height = 54 + 45 * max(1, len(bars))
    if not bars:
        return nothing_logged(WIDE, height)
    longest = max(max(bar.value, bar.high or 0.0) for bar in bars)
    end = min(max(1, math.ceil(5 * longest - 1e-9)), 5) / 5
    ticks = np.linspace(0, end, 4 if end == 0.6 else 5).tolist()
    x = Axis(0, end, ticks, [number_text(tick, True) for tick in ticks])
    names = _rows([_wrapped(bar.name, 20) for bar in bars])
    plot = Plot(WIDE, height, x, names, grid="x", side_label="100.0%")
    for row, bar in enumerate(bars):
        colour, opacity = (ACCENT, 0.9) if bar.highlight else (MUTED, 0.55)
        plot.rectangle((0, bar.value), (row - 0.28, row + 0.28), colour, opacity)
        edge = bar.value
        if bar.low is not None and bar.high is not None:
            plot.line((bar.low, bar.high), (row, row), Stroke(INK, 1.4))
            for side in (bar.low, bar.high):
                plot.line((side, side), (row - 0.1, row + 0.1), Stroke(INK, 1.4))
            edge = max(edge, bar.high)
        at, shown = plot.across(edge) + 6, f"{100 * bar.value:.1f}%"
        plot.text(at, plot.down(row), shown, ACCENT if bar.highlight else INK, bold=True)
    return plot.svg()


def scatter(points: Sequence[tuple[float, float]]) -> bytes:
    """Draw predicted over true scores, with the line where they are equal, as SVG.

    Args:
        points: (true, predicted) of each example, finite.
    """
    if not points:
        return nothing_logged(WIDE, WIDE)
    ends = limits(value for point in points for value in point)
    x, y = number_axis(*ends, label="actual"), number_axis(*ends, label="predicted")
    plot = Plot(WIDE, None, x, y, grid="both")
    plot.line(ends, ends, REFERENCE)
    faint = 0.75 if len(points) <= 100 else 0.4
    plot.dots([(true, given, 2.2) for true, given in points], Stroke(ACCENT, 0, opacity=faint))
    return plot.svg()


def reliability(
    bins: Sequence[tuple[float, float, int]],
    *,
    of: str = "answer",
    right: str = "answers that are right",
) -> bytes:
    """Draw the share of right answers over their probability, and the line where both are equal, as
    SVG. The size of a point shows its number of answers.

    Args:
        bins: the mean probability, the share of right answers, and the number of answers of each.
        of: the name of what has the probability, in the singular.
        right: the name of the right ones.
    """
    if not bins:
        return nothing_logged(WIDE, WIDE)
    chances, shares, counts = zip(*bins, strict=True)
    low = max(0.0, min(0.95, *chances, *shares) - 0.06)
    x = number_axis(low, 1.02, percent=True, label=f"probability of the {of}")
    y = number_axis(low, 1.02, percent=True, label=right)
    plot = Plot(WIDE, None, x, y, grid="both")
    plot.line((low, 1), (low, 1), REFERENCE)
    plot.line(chances, shares, Stroke(ACCENT, 1.2, opacity=0.5))
    most = max(counts)
    radii = [math.sqrt((18 + 160 * count / most) / math.pi) for count in counts]
    plot.dots(zip(chances, shares, radii, strict=True), Stroke(ACCENT, 0, opacity=0.8))
    return plot.svg()


def coverage(
    points: Sequence[tuple[float, float, float]],
    *,
    kept: str = "texts that are answered",
    right: str = "answers that are right",
) -> bytes:
    """Draw the share of right answers over the share of answered texts, the most certain ones
    first, as SVG.

    Args:
        points: the answered share, the share of right ones among these, and the lowest probability.
        kept: the name of the answered ones.
        right: the name of the right ones.
    """
    if not points:
        return nothing_logged(WIDE, WIDE)
    answered, shares, _ = zip(*points, strict=True)
    room = 0.1 * (max(shares) - min(shares)) or 0.02
    x = number_axis(0, 1.02, percent=True, label=kept)
    low, high = min(shares) - room, min(1.0, max(shares)) + room
    plot = Plot(WIDE, None, x, number_axis(low, high, percent=True, label=right), grid="both")
    plot.line(answered, shares, Stroke(ACCENT, dot=1.8))
    return plot.svg()


def spread(names: Sequence[str], scores: Sequence[Sequence[float]]) -> bytes:
    """Draw the scores of each setting of a search as points in a row, with their mean as a line
    across, as SVG. The first setting is emphasized.

    Args:
        names: the names of the settings.
        scores: the scores of the runs of each setting, as fractions of 1.
    """
    height = 50 + 22 * max(1, len(names))
    if not any(scores):
        return nothing_logged(WIDE, height)
    ends = limits(100 * share for shares in scores for share in shares)
    plot = Plot(WIDE, height, number_axis(*ends), _rows(names), grid="x")
    for row, shares in enumerate(scores):
        colour = MUTED if row else ACCENT
        values = [100 * share for share in shares]
        plot.line(values, [row] * len(values), Stroke(colour, 0, dot=2.5, opacity=0.6))
        if values:
            mean = sum(values) / len(values)
            plot.line((mean, mean), (row - 0.32, row + 0.32), Stroke(colour, 2))
    return plot.svg()


def _rows(names: Sequence[str]) -> Axis:
    """Return an axis of named rows, the first above."""
    return Axis(len(names) - 0.5, -0.5, range(len(names)), names)


def curves(
    names: Sequence[str],
    lines: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    label: str = "step",
) -> bytes:
    """Draw a quantity of several runs over their steps, smoothed where there are many points, as
    SVG. The first run is emphasized; the others differ by colour and line style.

    Args:
        names: the names of the runs.
        lines: the steps, ascending, and the values of each run.
        label: the label of the steps.
    """
    height = 216 + 14 * len(names)
    drawn = [(name, line) for name, line in zip(names, lines, strict=True) if line[1]]
    if not drawn:
        return nothing_logged(WIDE, height)
    dashes = ["", "9 4", "2 3", "11 4 2 4", "5 2 2 2 2 2"]
    colours = [ACCENT, INK, SECOND, MUTED]
    legend, shown = [], []
    for number, (name, (steps, values)) in enumerate(drawn):
        smooth = _running_mean(values).tolist() if len(values) >= _SMOOTH_FROM else values
        stroke = Stroke(
            colours[number % len(colours)],
            dot=1.8 if len(values) < _SMOOTH_FROM else 0,
            dash=dashes[number // len(colours) % len(dashes)],
        )
        legend.append((name, stroke))
        shown.append(_thinned(steps, smooth))
    x = limits(step for steps, _ in shown for step in steps)
    y = limits(value for _, values in shown for value in values)
    plot = Plot(
        WIDE, height, number_axis(*x, whole=True, label=label), number_axis(*y), legend=legend
    )
    for (steps, values), (_, stroke) in zip(shown, legend, strict=True):
        plot.line(steps, values, stroke)
    return plot.svg()


def _running_mean(values: Sequence[float]) -> np.ndarray:
    """Compute the mean over a window centred on each point, narrower at the ends, so that it has no
    lag."""
    array = np.asarray(values, dtype=np.float64)
    half = max(1, len(array) // 25)
    sums = np.concatenate(([0.0], np.cumsum(array)))
    index = np.arange(len(array))
    reach = np.minimum(half, np.minimum(index, len(array) - 1 - index) + half // 2)
    start = np.maximum(index - reach, 0)
    stop = np.minimum(index + reach + 1, len(array))
    return np.asarray((sums[stop] - sums[start]) / (stop - start))


def _thinned(
    steps: Sequence[float], values: Sequence[float]
) -> tuple[Sequence[float], Sequence[float]]:
    """Keep at most about `_MOST_POINTS` of the points: the lowest and the highest of each stretch,
    so that no peak is lost, and the first and the last."""
    if len(values) <= _MOST_POINTS:
        return steps, values
    array = np.asarray(values)
    kept = {0, len(array) - 1}
    for stretch in np.array_split(np.arange(len(array)), _MOST_POINTS // 2):
        kept |= {int(stretch[array[stretch].argmin()]), int(stretch[array[stretch].argmax()])}
    order = sorted(kept)
    return [steps[i] for i in order], [values[i] for i in order]


def _wrapped(label: str, width: int) -> str:
    """Break a label into at most two lines of about `width` characters; a longer one ends with an
    ellipsis."""
    label = printable(label)
    if len(label) <= width:
        return label
    cut = label.rfind(" ", 0, width + 1)
    first, rest = (label[:width], label[width:]) if cut < 1 else (label[:cut], label[cut + 1 :])
    return f"{first}\n{rest if len(rest) <= width else rest[: width - 1] + '…'}"


# Learning curves: scores, and seconds, over the number of labels, as SVG.

_COLOURS = (MUTED, INK, ACCENT, SECOND)
_HEIGHT = 245


@dataclass(frozen=True)
class Line:
    """A curve of scores over the number of labels.

    Attributes:
        name: for the legend.
        points: the number of labels, the score, and the ends of its interval, as shares of 1.
    """

    name: str
    points: Sequence[tuple[int, float, float, float]]


def learning_plot(lines: Sequence[Line]) -> bytes:
    """Draw scores over the number of labels with their intervals."""
    if not any(line.points for line in lines):
        return nothing_logged(WIDE, _HEIGHT)
    y = number_axis(*limits(v for line in lines for p in line.points for v in p[1:]), percent=True)
    legend = _legend([line.name for line in lines])
    counts = [point[0] for line in lines for point in line.points]
    plot = Plot(WIDE, _HEIGHT, _counts_axis(counts), y, legend=legend)
    for number, line in enumerate(lines):
        stroke = legend[number][1]
        # Intervals next to each other, not over each other.
        apart = 1 + 0.02 * (number - len(lines) / 2)
        plot.line([p[0] * apart for p in line.points], [p[1] for p in line.points], stroke)
        for count, _, low, high in line.points:
            plot.line([count * apart] * 2, (low, high), Stroke(stroke.colour, 1.2, opacity=0.7))
    return plot.svg()


def seconds_plot(lines: Sequence[tuple[str, Sequence[tuple[int, float]]]]) -> bytes:
    """Draw seconds of training over the number of labels, both with a logarithmic axis.

    Args:
        lines: the name and the points of each curve.
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
    """Assign each curve a colour of its own, as far as there are enough."""
    return [
        (name, Stroke(_COLOURS[number % len(_COLOURS)], dot=2)) for number, name in enumerate(names)
    ]


def _counts_axis(counts: Sequence[int]) -> Axis:
    """Return the axis of the numbers of labels, labelled with the numbers that occur."""
    shown = sorted(set(counts))
    shown = shown[:: -(-len(shown) // 7)]
    low, high = limits(counts, log=True)
    return Axis(low, high, shown, [f"{count:,}" for count in shown], "labels", log=True)


# Tokens: boxes for the embeddings that are added, and what is compared with what.

#: Height of a box, and of the sign above it; width of a picture of boxes, and of a cell.
_BOX, _SIGN, _BOXES, _CELL = 22.0, 16.0, 640.0, 15.0
#: Most characters of a piece in a box or beside a cell.
_PIECE = 24


def sum_of_embeddings(rows: Mapping[str, Sequence[str]], originals: Sequence[str]) -> bytes:
    """Draw the embeddings of each token in boxes below each other, and their sum, as SVG (Devlin et
    al. 2018, figure 2). Long texts are continued below.

    Args:
        rows: the names of what is added, with a text for each token: its piece, segment, position.
        originals: for each token the piece that is to be predicted there; "" where none is.
    """
    names = [*rows, "sum"] if len(rows) > 1 else [*rows]
    shown = [[cut(text, _PIECE) for text in texts] for texts in (*rows.values(), originals)]
    side = max(map(width_of, names)) + 20
    sizes = [max(map(width_of, column)) + 10 for column in zip(*shown, strict=True)]
    lines: list[list[tuple[int, float]]] = []
    x = _BOXES
    for place, size in enumerate(sizes):
        if x + size > _BOXES:
            lines.append([])
            x = side
        lines[-1].append((place, x))
        x += size + 5
    step = 26 + len(names) * (_BOX + _SIGN)
    plot = canvas(_BOXES + 8, step * len(lines))
    for number, line in enumerate(lines):
        for row, name in enumerate(names):
            y = step * number + 22 + row * (_BOX + _SIGN)
            plot.text(side - 10, y + _BOX / 2, name, MUTED, anchor="end")
            for place, x in line:
                ends, middle = (x, x + sizes[place]), x + sizes[place] / 2
                sign = ("=" if name == "sum" else "+") if row else shown[-1][place]
                plot.text(middle, y - 8, sign, MUTED if row else SECOND, anchor="middle")
                parts = range(len(rows)) if name == "sum" else [row]
                for n, part in enumerate(parts):
                    height = (y + n * _BOX / len(parts), y + (n + 1) * _BOX / len(parts))
                    look = _box(part, shown[part][place], originals[place])
                    plot.rectangle(ends, height, *look)
                if name != "sum":
                    plot.text(middle, y + _BOX / 2, shown[row][place], INK, anchor="middle")
    return plot.svg()


def _box(row: int, text: str, original: str) -> tuple[str, float]:
    """Return colour and opacity of a token's box: of its piece, its segment or its position."""
    if row == 0:
        return (SECOND, 0.4) if original else (ACCENT, 0.25)
    return (GOOD, 0.4 if text == "B" else 0.18) if text.isalpha() else (GRID, 0.8)


def heat_map(
    names: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], peak: float
) -> bytes:
    """Draw values in cells, the stronger the higher, as SVG.

    Args:
        names: of the R rows.
        columns: the names of the C columns.
        values: [R][C].
        peak: the value of the strongest cells, and of those above it.
    """
    rows = [cut(name, 2 * _PIECE) for name in names]
    above = [cut(name, _PIECE) for name in columns]
    left, top = max(map(width_of, rows)) + 14, max(map(width_of, above)) + 14
    width = max(NARROW, left + _CELL * len(above) + 10)
    plot = canvas(width, top + _CELL * len(rows) + 20)
    for number, name in enumerate(above):
        plot.text(left + _CELL * (number + 0.5), top - 4, name, MUTED, turned=True)
    for row, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = top + _CELL * row
        plot.text(left - 6, y + _CELL / 2, name, INK, anchor="end")
        for number, value in enumerate(line):
            x = left + _CELL * number
            share = min(1.0, max(0.0, value / peak))
            plot.rectangle((x, x + _CELL - 1), (y, y + _CELL - 1), GRID, 0.25)
            if share >= 0.01:
                plot.rectangle((x, x + _CELL - 1), (y, y + _CELL - 1), ACCENT, round(share, 2))
    return plot.svg()
