"""Draw plots as SVG, made to lie inside an HTML page: light or dark, at any width.

Their look is that of :mod:`bertine.reports.plot_style`. Each plot is small, 300 to 350 units wide:
a page sets several side by side, a phone one per row, and in neither is the lettering scaled out
of reading size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from bertine.reports.plot_style import (
    ACCENT,
    DASHED,
    INK,
    MUTED,
    NARROW,
    SECOND,
    WIDE,
    canvas,
    label_ticks,
    legend_above,
    nothing_logged,
    number_text,
    to_svg,
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
        percent: letter the axis in percent.
        reference: a value to compare with, drawn as a dashed line.
        reference_label: what the dashed line is.
        from_zero: start the axis at zero.
        noisy: draw many points faint, with their running mean over them, whose end is the number
            beside the plot; otherwise draw every point and letter the last.
        overlay: steps and values of a second curve, sparse and drawn point by point, e.g. the
            same quantity on held-out text; with it the plot has a legend.
        names: of the curve and the overlay, for the legend.
        log_scale: a logarithmic axis; values that are not above zero are left out.
    """
    with canvas(NARROW, 2.7) as (figure, axes):
        if log_scale:
            points = [(s, v) for s, v in zip(steps, values, strict=True) if v > 0]
            steps, values = [s for s, _ in points], [v for _, v in points]
            axes.set_yscale("log")
        if not values:
            return nothing_logged(figure, axes)
        last = _draw_values(axes, steps, values, noisy, names[0])
        if overlay is not None and overlay[1]:
            style = {"marker": "o", "markersize": 3.5, "linewidth": 1.4}
            axes.plot(*_thinned(*overlay), color=INK, label=names[1], **style)
            legend_above(axes, columns=2)
        drawn = [*steps, *(overlay[0] if overlay else ())]
        if min(drawn) == max(drawn):
            axes.set_xlim(steps[0] - 1, steps[0] + 1)
        else:
            axes.set_xlim(min(drawn), max(drawn))
        if from_zero:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if reference is not None:
            below = float(np.mean(values[len(values) // 2 :])) < reference
            _draw_reference(axes, reference, reference_label, below, log_scale)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if log_scale:
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=6))
            if sum(low <= tick <= high for tick in axes.get_yticks()) < 2:
                axes.yaxis.set_major_locator(MaxNLocator(4))
        more = label_ticks(axes.yaxis, percent, between=(low, high))
        # The last value stands outside the axes, at its height, where no line can cross it.
        axes.annotate(
            number_text(last, percent, more),
            (1, min(max(last, low), high)),
            xycoords=axes.get_yaxis_transform(),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=ACCENT,
            fontweight="bold",
            annotation_clip=False,
        )
        return to_svg(figure, salt=f"{len(values)} points, the last {values[-1]}{overlay or ''}")


def _draw_values(
    axes: Any, steps: Sequence[float], values: Sequence[float], noisy: bool, name: str
) -> float:
    """Draw a curve; return the number that stands beside it."""
    if len(values) == 1:
        axes.plot(steps, values, "o", color=ACCENT, markersize=6)
    elif not noisy or len(values) < _SMOOTH_FROM:
        axes.plot(*_thinned(steps, values), color=ACCENT, linewidth=2, label=name)
    else:
        mean = _running_mean(values).tolist()
        axes.plot(*_thinned(steps, values), color=ACCENT, linewidth=0.9, alpha=0.35)
        axes.plot(*_thinned(steps, mean), color=ACCENT, linewidth=2.2, label=name)
        return float(mean[-1])
    return values[-1]


def _draw_reference(axes: Any, reference: float, label: str, below: bool, log_scale: bool) -> None:
    """Draw a line to compare with, and make room for it; its label stands at its right end, on the
    side where the curve is not: above where the curve is `below`."""
    low, high = axes.get_ylim()
    under, over = (0.08, 0.14) if below else (0.14, 0.08)
    if log_scale:
        axes.set_ylim(min(low, reference / (1 + 4 * under)), max(high, reference * 1.5))
    else:
        span = max(high, reference) - min(low, reference)
        axes.set_ylim(min(low, reference - under * span), max(high, reference + over * span))
    axes.axhline(reference, linewidth=1.5, **DASHED)
    axes.annotate(
        label,
        (1, reference),
        xycoords=axes.get_yaxis_transform(),
        xytext=(-2, 4 if below else -4),
        textcoords="offset points",
        ha="right",
        va="bottom" if below else "top",
        color=SECOND,
    )


def comparison(bars: Sequence[Bar]) -> bytes:
    """Draw accuracies side by side as horizontal bars with their 95% intervals, as SVG. The axis
    begins at 0 and ends at 20, 40, 60, 80 or 100%."""
    with canvas(WIDE, 0.75 + 0.62 * max(1, len(bars)), grid="x") as (figure, axes):
        if not bars:
            return nothing_logged(figure, axes)
        rows = np.arange(len(bars))
        for row, bar in zip(rows, bars, strict=True):
            colour = ACCENT if bar.highlight else MUTED
            axes.barh(
                row, bar.value, height=0.56, color=colour, alpha=0.9 if bar.highlight else 0.55
            )
            edge = bar.value
            if bar.low is not None and bar.high is not None:
                axes.plot([bar.low, bar.high], [row, row], color=INK, linewidth=1.4)
                for end in (bar.low, bar.high):
                    axes.plot([end, end], [row - 0.1, row + 0.1], color=INK, linewidth=1.4)
                edge = max(edge, bar.high)
            axes.annotate(
                f"{100 * bar.value:.1f}%",
                (edge, row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=11,
                fontweight="bold",
                color=ACCENT if bar.highlight else INK,
            )
        axes.set_yticks(rows, [_wrapped(bar.name, 20) for bar in bars])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.invert_yaxis()
        longest = max(max(bar.value, bar.high or 0.0) for bar in bars)
        end = min(max(1, math.ceil(5 * longest - 1e-9)), 5) / 5
        axes.set_xlim(0, 1.12 * end)
        axes.set_xticks(np.linspace(0, end, 4 if end == 0.6 else 5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number_text(v, True)))
        axes.spines["left"].set_visible(False)
        return to_svg(figure, salt=repr(bars))


def scatter(points: Sequence[tuple[float, float]]) -> bytes:
    """Draw true scores to the right, predicted ones upwards, with the line where they are equal,
    as SVG.

    Args:
        points: (true, predicted) of each example, finite.
    """
    with canvas(WIDE, WIDE - 0.4, grid="both") as (figure, axes):
        if not points:
            return nothing_logged(figure, axes)
        table = np.asarray(points, dtype=np.float64)
        low, high = float(table.min()), float(table.max())
        room = 0.04 * (high - low) or 1.0
        ends = (low - room, high + room)
        axes.plot(ends, ends, linewidth=1.5, **DASHED)
        faint = 0.75 if len(points) <= 100 else 0.4
        style = {"marker": "o", "markersize": 4.5, "linestyle": "none", "markeredgewidth": 0}
        axes.plot(table[:, 0], table[:, 1], color=ACCENT, alpha=faint, **style)
        axes.set(xlim=ends, ylim=ends, aspect="equal", xlabel="actual", ylabel="predicted")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
            label_ticks(axis)
        return to_svg(figure, salt=repr(table.tolist()))


def reliability(
    bins: Sequence[tuple[float, float, int]],
    *,
    of: str = "answer",
    right: str = "answers that are right",
) -> bytes:
    """Draw how often answers are right over the probability that they are given with, and the line
    where both are equal, as SVG. The more answers a point stands for, the larger it is.

    Args:
        bins: mean probability, share that is right, number of answers.
        of: what has the probability, one of them.
        right: those that are right.
    """
    with canvas(WIDE, WIDE - 0.4, grid="both") as (figure, axes):
        if not bins:
            return nothing_logged(figure, axes)
        chances, shares, counts = (
            np.asarray(column, dtype=np.float64) for column in zip(*bins, strict=True)
        )
        axes.plot((0, 1), (0, 1), linewidth=1.5, **DASHED)
        axes.plot(chances, shares, color=ACCENT, linewidth=1.2, alpha=0.5)
        sizes = 18 + 160 * counts / counts.max()
        axes.scatter(chances, shares, s=sizes, color=ACCENT, alpha=0.8, linewidths=0)
        low = min(0.95, float(min(chances.min(), shares.min())))
        ends = (max(0.0, low - 0.06), 1.02)
        axes.set(xlim=ends, ylim=ends, aspect="equal")
        axes.set(xlabel=f"probability of the {of}", ylabel=right)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
            label_ticks(axis, True)
        return to_svg(figure, salt=repr(bins))


def coverage(
    points: Sequence[tuple[float, float, float]],
    *,
    kept: str = "texts that are answered",
    right: str = "answers that are right",
) -> bytes:
    """Draw how often answers are right over the share of the texts that are answered, the most
    certain ones first, as SVG.

    Args:
        points: share that is answered, share of these that is right, lowest probability.
        kept: what is answered.
        right: those that are right.
    """
    with canvas(WIDE, WIDE - 0.4, grid="both") as (figure, axes):
        if not points:
            return nothing_logged(figure, axes)
        answered, shares, _ = zip(*points, strict=True)
        axes.plot(answered, shares, color=ACCENT, linewidth=1.8, marker="o", markersize=3.5)
        axes.set(xlim=(0, 1.02), xlabel=kept, ylabel=right)
        room = 0.1 * (max(shares) - min(shares)) or 0.02
        axes.set_ylim(min(shares) - room, min(1.0, max(shares)) + room)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
            label_ticks(axis, True)
        return to_svg(figure, salt=repr(points))


def spread(names: Sequence[str], scores: Sequence[Sequence[float]]) -> bytes:
    """Draw the scores of each setting of a search as points in a row, their mean as a line across,
    as SVG. The first setting stands out.

    Args:
        names: of the settings.
        scores: of the runs of each, as fractions of 1.
    """
    with canvas(WIDE, 0.7 + 0.3 * max(1, len(names)), grid="x") as (figure, axes):
        if not any(scores):
            return nothing_logged(figure, axes)
        for row, shares in enumerate(scores):
            colour = MUTED if row else ACCENT
            values = [100 * share for share in shares]
            axes.plot(values, [row] * len(values), "o", color=colour, markersize=5, alpha=0.6)
            if values:
                mean = sum(values) / len(values)
                axes.plot([mean, mean], [row - 0.32, row + 0.32], color=colour, linewidth=2)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.spines["left"].set_visible(False)
        return to_svg(figure, salt=repr((names, scores)))


def curves(
    names: Sequence[str],
    lines: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    label: str = "step",
) -> bytes:
    """Draw a quantity of several runs over their steps, those with many points smoothed, as SVG.
    The first stands out; the others are told apart by colour and by how their lines are drawn.

    Args:
        names: of the runs.
        lines: steps, ascending, and values of each.
        label: of the steps.
    """
    with canvas(WIDE, 3.0 + 0.2 * len(names)) as (figure, axes):
        drawn = [(name, line) for name, line in zip(names, lines, strict=True) if line[1]]
        if not drawn:
            return nothing_logged(figure, axes)
        styles = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1))]
        colours = [ACCENT, INK, SECOND, MUTED]
        for number, (name, (steps, values)) in enumerate(drawn):
            smooth = _running_mean(values).tolist() if len(values) >= _SMOOTH_FROM else values
            axes.plot(
                *_thinned(steps, smooth),
                color=colours[number % len(colours)],
                linestyle=styles[number // len(colours) % len(styles)],
                linewidth=1.8,
                marker="o" if len(values) < _SMOOTH_FROM else "",
                markersize=3.5,
                label=_printable(name),
            )
        axes.set_xlabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        label_ticks(axes.yaxis, between=axes.get_ylim())
        legend_above(axes, columns=1)
        return to_svg(figure, salt=repr([(name, list(line[1])[-3:]) for name, line in drawn]))


def _running_mean(values: Sequence[float]) -> np.ndarray:
    """Compute the mean over a window centred on each point, narrower at the ends, so that it lags
    nowhere."""
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
    label = _printable(label)
    if len(label) <= width:
        return label
    cut = label.rfind(" ", 0, width + 1)
    first, rest = (label[:width], label[width:]) if cut < 1 else (label[:cut], label[cut + 1 :])
    return f"{first}\n{rest if len(rest) <= width else rest[: width - 1] + '…'}"


def _printable(text: str) -> str:
    """Replace the characters that XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)
