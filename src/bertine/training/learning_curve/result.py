"""Hold the result of a learning curve: its cells, its table, and its conclusions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import stats

from bertine.core.console import Report, aligned, human_time
from bertine.core.scores import score_name, share_interval
from bertine.core.strict_json import Jsonable, Readable
from bertine.reports import html
from bertine.reports.html import Fact, Figure, Figures, Note, PageTable, Section
from bertine.reports.plots import Line, learning_plot, seconds_plot
from bertine.reports.run_sections import sentence

# Extrapolation: the gain by twice as many labels, from a power law fitted to the end of the curve.
#
# Errors usually fall as a power of the number of labels (Hestness et al. 2017, arXiv 1712.00409),
# so their logarithm is a line over the logarithm of that number. The line is fitted to the last few
# numbers of labels only, because the law need not hold from the first label on. If the interval of
# its slope is so wide that twice as many labels might double the errors, there is no result.

#: The number of points that the line is fitted to.
_LAST = 4
#: The lower bound of errors.
_LEAST_ERROR = 1e-3
#: The lower bound of the residual sum of squares; a smaller one is rounding.
_LEAST_REST = 1e-12
#: If the slope may be this steep, the line is not used: errors would double with twice as many
#: labels.
_STEEPEST = 1.0


@dataclass(frozen=True)
class Extrapolation(Jsonable):
    """The gain of the score by twice as many labels.

    Attributes:
        gain: as a share of 1.
        low, high: its 95% interval, under the assumption that errors follow the line.
        count: the current number of labels.
    """

    gain: float
    low: float
    high: float
    count: int

    json_keys = ("gain_by_doubling=gain", "interval", "num_labels_now=count")

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% interval."""
        return self.low, self.high


def extrapolate(points: Sequence[Sequence[tuple[int, float]]]) -> Extrapolation | None:
    """Fit the line.

    Args:
        points: for one way, the draws of each number of labels: the number of examples, and the
            score as a share of 1.

    Returns:
        The gain of doubling the largest number; None if there are fewer than two numbers, no more
        draws than the line has parameters, draws that differ too much for a line, or draws that are
        so equal (as with all answers right) that they do not show the uncertainty.
    """
    means = {round(statistics.fmean(count for count, _ in draws)): draws for draws in points}
    sizes = sorted(means)[-_LAST:]
    used = [(size, score) for size in sizes for _, score in means[size]]
    if len(sizes) < 2 or len(used) < 3:
        return None
    x = np.log([count for count, _ in used])
    y = np.log([max(_LEAST_ERROR, 1.0 - score) for _, score in used])
    centre = x - x.mean()
    spread = float(centre @ centre)
    slope = float(centre @ y) / spread
    rest = y - y.mean() - slope * centre
    freedom = len(used) - 2
    if float(rest @ rest) < _LEAST_REST:
        return None
    error = math.sqrt(float(rest @ rest) / freedom / spread)
    half = float(stats.t.ppf(0.975, freedom)) * error
    if not slope + half < _STEEPEST:
        return None
    now = min(1.0, math.exp(float(y.mean() + slope * (math.log(sizes[-1]) - x.mean()))))

    def gain(of_slope: float) -> float:
        # The error rate cannot exceed 1.
        return max(now - 1.0, now * (1.0 - 2.0**of_slope))

    return Extrapolation(gain(slope), gain(slope + half), gain(slope - half), sizes[-1])


#: The files in the folder of a curve.
CURVE, PAGE = "learning-curve.json", "learning-curve.html"


@dataclass(frozen=True)
class Cell(Readable):
    """One way, trained on one draw.

    Attributes:
        way: the training method.
        size: labels of each class; None: all examples.
        draw: its number.
        num_labels: the number of training examples.
        score: the score by which the task is judged, as a share of 1.
        metrics: all scores.
        train_seconds: of training, without the loading of the model.
        answer_seconds: of answering the test examples.
    """

    way: str
    size: int | None
    draw: int
    num_labels: int
    score: float
    metrics: Mapping[str, float]
    train_seconds: float
    answer_seconds: float


@dataclass(frozen=True)
class Point:
    """One way with one number of labels.

    Attributes:
        way: the training method.
        num_labels: the mean over the draws.
        score: the mean over the draws, as a share of 1.
        low, high: the 95% interval of the score on new texts: from the spread of the draws, and
            that of the test examples as if the score were a share of them (Wilson 1927), so that it
            is not of width 0 if all answers are right.
        train_seconds: the mean over the draws.
        answers_per_second: texts.
        draws: how many.
    """

    way: str
    num_labels: int
    score: float
    low: float
    high: float
    train_seconds: float
    answers_per_second: float
    draws: int


def point_of(cells: Sequence[Cell], num_tested: int, spread: tuple[float, int]) -> Point:
    """Summarize the draws of one way and one number of labels.

    Args:
        cells: of the draws.
        num_tested: test examples.
        spread: the variance of draws with this number of labels, and its degrees of freedom (0 if
            there is one draw).
    """
    scores = [cell.score for cell in cells]
    mean, count = statistics.fmean(scores), len(scores)
    of_tests = share_interval(min(1.0, max(0.0, mean)), num_tested)
    of_draws = 0.0
    if spread[1]:
        of_draws = float(stats.t.ppf(0.975, spread[1])) * math.sqrt(spread[0] / count)
    return Point(
        cells[0].way,
        round(statistics.fmean(cell.num_labels for cell in cells)),
        mean,
        max(0.0, mean - math.hypot(of_draws, mean - of_tests[0])),
        min(1.0, mean + math.hypot(of_draws, of_tests[1] - mean)),
        statistics.fmean(cell.train_seconds for cell in cells),
        num_tested / max(1e-9, statistics.fmean(cell.answer_seconds for cell in cells)),
        count,
    )


@dataclass(repr=False)
class LearningCurve(Report):
    """The result of a learning curve.

    Attributes:
        cells: the trained and evaluated cells.
        metric_names: the metrics whose mean is the score.
        num_tested: the number of test examples.
        source: of the examples.
        out: the folder.
        notes: further notes.
    """

    cells: list[Cell]
    metric_names: tuple[str, ...]
    num_tested: int
    source: str
    out: Path
    notes: list[str] = field(default_factory=list)

    json_keys = (
        *("source", "metric_names", "num_tested", "points", "outlook", "sentences", "notes"),
        "cells",
    )

    @property
    def ways(self) -> list[str]:
        """The ways, in the order in which they were first trained."""
        return list(dict.fromkeys(cell.way for cell in self.cells))

    def curve(self, way: str) -> list[Point]:
        """Return the points of a way, by ascending number of labels."""
        groups: dict[int | None, list[Cell]] = {}
        for cell in self.cells:
            if cell.way == way:
                groups.setdefault(cell.size, []).append(cell)
        points = [
            point_of(group, self.num_tested, self._spread(size)) for size, group in groups.items()
        ]
        return sorted(points, key=lambda point: point.num_labels)

    @property
    def points(self) -> list[Point]:
        """The points of all ways, one way after the other."""
        return [point for way in self.ways for point in self.curve(way)]

    def _spread(self, size: int | None) -> tuple[float, int]:
        """Return the variance of the draws with this number of labels, and its degrees of freedom,
        pooled over all ways, because two or three draws of one way are too few."""
        squares, freedom = 0.0, 0
        for way in self.ways:
            scores = [cell.score for cell in self.cells if (cell.way, cell.size) == (way, size)]
            if len(scores) > 1:
                squares += statistics.variance(scores) * (len(scores) - 1)
                freedom += len(scores) - 1
        return (squares / freedom if freedom else 0.0), freedom

    @property
    def last(self) -> list[Point]:
        """The points with the most labels, the best first."""
        ends = [self.curve(way)[-1] for way in self.ways]
        most = max((point.num_labels for point in ends), default=0)
        return sorted(
            (point for point in ends if point.num_labels == most), key=lambda point: -point.score
        )

    def outlook(self) -> Extrapolation | None:
        """Return the gain of twice as many labels for the way that is best now."""
        if not self.last:
            return None
        way = self.last[0].way
        draws: dict[int | None, list[tuple[int, float]]] = {}
        for cell in self.cells:
            if cell.way == way:
                draws.setdefault(cell.size, []).append((cell.num_labels, cell.score))
        return extrapolate(list(draws.values()))

    def sentences(self) -> list[str]:
        """State the recommended way, and the gain of twice as many labels."""
        if not self.last:
            return []
        best = self.last[0]
        said = [
            f"With {best.num_labels:,} labels {best.way} is best: {best.score:.1%} "
            f"({best.low:.1%} to {best.high:.1%})."
        ]
        close = [point for point in self.last[1:] if point.score >= best.low]
        quick = min(close, key=lambda point: point.train_seconds, default=None)
        if quick is not None and quick.train_seconds < best.train_seconds / 2:
            said.append(
                f"{quick.way} is as good within chance ({quick.score:.1%}), and trains in "
                f"{human_time(quick.train_seconds)} in place of {human_time(best.train_seconds)}."
            )
        ahead = self.outlook()
        if ahead is None:
            said.append(
                "What more labels would bring cannot be said: the points are too few, or they lie "
                "too far apart, or all is right."
            )
            return said
        low, gain, high = (
            round(100 * item, 1) + 0.0 for item in (ahead.low, ahead.gain, ahead.high)
        )
        line = (
            f"Twice as many labels would bring about {gain:+.1f} points ({low:+.1f} to {high:+.1f})"
        )
        if low <= 0 <= high:
            line += ", which may be nothing"
        said.append(f"{line}, if its errors go on as they did.")
        return said

    def rows(self) -> list[list[str]]:
        """Return the table for the terminal and the page, with its header."""
        head = ["labels", "way", self.score_title, "95% interval", "training", "texts a second"]
        points = sorted(self.points, key=lambda point: point.num_labels)
        return [
            head,
            *(
                [
                    f"{point.num_labels:,}",
                    point.way,
                    f"{point.score:.1%}",
                    f"{point.low:.1%} to {point.high:.1%}",
                    human_time(point.train_seconds),
                    f"{point.answers_per_second:,.0f}",
                ]
                for point in points
            ),
        ]

    @property
    def score_title(self) -> str:
        """The name of the score, for display."""
        return " and ".join(score_name(name) for name in self.metric_names)

    def lines(self) -> list[str]:
        """Return what the command prints."""
        table = aligned(self.rows(), left=(1,))
        return [*table, *self.sentences(), *self.notes, f"page: {self.out / PAGE}"]


# The page of a learning curve: the plot, the table, the recommended way.


def curve_page(result: LearningCurve) -> html.Page:
    """Build the page of a curve."""
    last = result.last
    headline = []
    if last:
        best = last[0]
        headline = [
            Fact("best now", best.way, f"with {best.num_labels:,} labels"),
            Fact(result.score_title, f"{best.score:.1%}", f"{best.low:.1%} to {best.high:.1%}"),
        ]
    ahead = result.outlook()
    if ahead is not None:
        value = f"{100 * ahead.gain:+.1f} points"
        note = f"{100 * ahead.low:+.1f} to {100 * ahead.high:+.1f}"
        headline.append(Fact("twice as many labels", value, note))
    curves = {way: result.curve(way) for way in result.ways}
    scores = [
        Line(way, [(p.num_labels, p.score, p.low, p.high) for p in points])
        for way, points in curves.items()
    ]
    seconds = [
        (way, [(p.num_labels, p.train_seconds) for p in points]) for way, points in curves.items()
    ]
    alt = "; ".join(
        f"{way}: " + ", ".join(f"{p.score:.1%} with {p.num_labels}" for p in points)
        for way, points in curves.items()
    )
    caption = (
        "The mean of the draws with its 95% interval on new texts: the spread of the draws and "
        f"that of the {result.num_tested:,} test examples."
    )
    pictures = [
        Figure(result.score_title, learning_plot(scores), alt, caption),
        Figure(
            "seconds of training",
            seconds_plot(seconds),
            "; ".join(
                f"{way}: " + ", ".join(f"{p.train_seconds:.1f} s" for p in points)
                for way, points in curves.items()
            ),
            "The model is loaded already.",
        ),
    ]
    rows = result.rows()
    return html.Page(
        title="Learning curve",
        lead=" ".join(result.sentences()),
        headline=headline,
        sections=[
            Section(
                "Scores and labels",
                [Figures(pictures, columns=2), PageTable(rows[0], rows[1:], numeric=(0, 2, 4, 5))],
                lead=f"{result.source}; each way learned from the same draws, and answered the "
                "same test examples.",
            ),
            Section(
                "How far to trust it",
                [
                    *(Note(sentence(note), "warning") for note in result.notes),
                    Note(
                        "Draws take the same number of examples of each class, so that the curve "
                        "up to the last point is of more even classes than the file has. What "
                        "twice as many labels would bring is the power law of the last points of "
                        "the curve: a guess with an interval, not a promise."
                    ),
                ],
            ),
        ],
        command="learning-curve",
    )
