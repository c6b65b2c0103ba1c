"""The result of a learning curve: its cells, its table, and what they say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scipy import stats

from bertine.intervals import share_interval
from bertine.scores import score_name
from bertine.terminal.console import aligned, human_time
from bertine.terminal.shown import Shown
from bertine.training.learning_curve.outlook import Outlook, outlook

#: In the folder of a curve.
CURVE, PAGE = "learning-curve.json", "learning-curve.html"


@dataclass(frozen=True)
class Cell:
    """One way, trained on one draw.

    Attributes:
        way: how it learned.
        size: labels of each class; None: all examples.
        draw: its number.
        num_labels: examples that it learned from.
        score: by which the task is judged, as a share of 1.
        metrics: all scores.
        train_seconds: of training, the loading of the model not counted.
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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "metrics": dict(self.metrics)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """Take back what :meth:`to_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: the values are no cell.
        """
        size = values["size"]
        return cls(
            str(values["way"]),
            None if size is None else int(size),
            int(values["draw"]),
            int(values["num_labels"]),
            float(values["score"]),
            {str(name): float(value) for name, value in dict(values["metrics"]).items()},
            float(values["train_seconds"]),
            float(values["answer_seconds"]),
        )


@dataclass(frozen=True)
class Point:
    """One way with one number of labels.

    Attributes:
        way: how it learned.
        num_labels: the mean over the draws.
        score: their mean, as a share of 1.
        low, high: the 95% interval of the score on new texts: the spread of the draws, and that of
            the test examples as if the score were a share of them (Wilson 1927), so that it is not
            of width 0 where all are right.
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
    """Sum up the draws of one way and one number of labels.

    Args:
        cells: of the draws.
        num_tested: test examples.
        spread: the variance of draws of so many labels, and its degrees of freedom; 0 of these
            where there is one draw.
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
class LearningCurve(Shown):
    """A learning curve.

    Attributes:
        cells: what was trained and judged.
        metric_names: that the score is the mean of.
        num_tested: test examples.
        source: of the examples.
        out: the folder.
        notes: what else to know.
    """

    cells: list[Cell]
    metric_names: tuple[str, ...]
    num_tested: int
    source: str
    out: Path
    notes: list[str] = field(default_factory=list)

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

    def _spread(self, size: int | None) -> tuple[float, int]:
        """Return the variance of the draws of so many labels, and its degrees of freedom: of all
        ways together, as two or three draws of one say little of it."""
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

    def outlook(self) -> Outlook | None:
        """Return what twice as many labels would bring to the way that is best now."""
        if not self.last:
            return None
        way = self.last[0].way
        draws: dict[int | None, list[tuple[int, float]]] = {}
        for cell in self.cells:
            if cell.way == way:
                draws.setdefault(cell.size, []).append((cell.num_labels, cell.score))
        return outlook(list(draws.values()))

    def sentences(self) -> list[str]:
        """Say what to use now, and what twice as many labels would bring."""
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
            round(100 * each, 1) + 0.0 for each in (ahead.low, ahead.gain, ahead.high)
        )
        line = (
            f"Twice as many labels would bring about {gain:+.1f} points ({low:+.1f} to {high:+.1f})"
        )
        if low <= 0 <= high:
            line += ", which may be nothing"
        said.append(f"{line}, if its errors go on as they did.")
        return said

    def rows(self) -> list[list[str]]:
        """Return the table of the terminal and the page, with its head."""
        head = ["labels", "way", self.score_title, "95% interval", "training", "texts a second"]
        points = [point for way in self.ways for point in self.curve(way)]
        order = {way: at for at, way in enumerate(self.ways)}
        points.sort(key=lambda point: (point.num_labels, order[point.way]))
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
        """The name of the score, for people."""
        return " and ".join(score_name(name) for name in self.metric_names)

    def lines(self) -> list[str]:
        """Return what the command prints."""
        table = aligned(self.rows(), left=(1,))
        return [*table, *self.sentences(), *self.notes, f"page: {self.out / PAGE}"]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        ahead = self.outlook()
        return {
            "source": self.source,
            "metric_names": list(self.metric_names),
            "num_tested": self.num_tested,
            "points": [asdict(point) for way in self.ways for point in self.curve(way)],
            "outlook": None if ahead is None else ahead.to_dict(),
            "sentences": self.sentences(),
            "notes": self.notes,
            "cells": [cell.to_dict() for cell in self.cells],
        }
