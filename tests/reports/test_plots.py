"""Plots: SVG that is valid, themed, the same every time, and the interval beside an accuracy."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from bertine.core.scores import wilson_interval
from bertine.reports import plots
from bertine.reports.curves import term_curves
from bertine.reports.plots import Line, learning_plot, seconds_plot
from bertine.reports.svg import Plot, Stroke, limits, number_axis


def text_of(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_labels_are_text_and_hostile_ones_are_escaped() -> None:
    names = ["<b>&\"'", "$\\frac{", "a\x00b\x1b", "日本"]
    shown = " ".join(text_of(plots.comparison([plots.Bar(name, 0.5) for name in names])))
    for expected in ("<b>&\"'", "$\\frac{", "a�b�", "日本"):
        assert expected in shown


@pytest.mark.parametrize(
    ("longest", "last"),
    [(0.0, "20%"), (0.2, "20%"), (0.47, "60%"), (0.6, "60%"), (0.601, "80%"), (1.0, "100%")],
)
def test_the_axis_of_a_comparison_ends_a_little_above_its_bars(longest: float, last: str) -> None:
    ticks = [
        part for part in text_of(plots.comparison([plots.Bar("a", longest)])) if "." not in part
    ]
    assert last in ticks
    assert ("100%" in ticks) == (last == "100%")
    assert "0%" in ticks


def test_a_long_label_is_wrapped_and_cut_visibly() -> None:
    svg = plots.comparison([plots.Bar("without any pre-training on any text whatsoever", 0.5)])
    shown = " ".join(text_of(svg))
    assert "without any" in shown
    assert "…" in shown
    # One that just fits has one line.
    whole = plots.comparison([plots.Bar("x" * 20, 0.5)])
    assert "" not in text_of(whole)


def test_colours_are_left_to_the_page() -> None:
    svg = plots.curve(range(40), range(40), reference=3, reference_label="r").decode()
    assert "var(--accent, " in svg
    assert "var(--second, " in svg
    assert not re.sub(r"var\(--\w+, #\w{6}\)", "", svg).count("#")


@pytest.mark.parametrize(
    ("values", "percent"),
    [
        ([0.6912, 0.7023, 0.6951], False),
        ([10_120.0, 10_480.0, 10_300.0], False),
        ([0.5012, 0.5031, 0.5021], True),
        ([0.00012, 0.0001203, 0.0001201], False),
    ],
)
def test_the_numbers_beside_an_axis_differ(values: list[float], percent: bool) -> None:
    shown = text_of(plots.curve([1, 2, 3], values, percent=percent))
    beside = [text for text in shown if text not in {"1", "2", "3", "step"}]
    assert len(set(beside[:-1])) == len(beside[:-1]) >= 3  # the last one stands at the curve's end


def test_held_out_scores_of_a_run_with_one_line_of_log_are_in_the_picture() -> None:
    svg = plots.curve([100], [3.0], overlay=([25, 50, 75, 100], [6.0, 5.0, 4.0, 3.2]))
    assert text_of(svg)[0] == "training"
    assert "40" in text_of(svg)


@pytest.mark.parametrize(
    ("value", "percent", "expected"),
    [
        (0.5, True, "50%"),
        (0.4567, True, "45.7%"),
        (0.00025, False, "2.5e-4"),
        (21_499.0, False, "21.5k"),
    ],
)
def test_the_last_value_is_lettered(value: float, percent: bool, expected: str) -> None:
    assert expected in text_of(plots.curve([1, 2], [value, value], percent=percent))


def test_values_that_are_not_numbers_leave_a_gap_not_an_error() -> None:
    log = [{"step": 1, "mlm_loss": float("nan")}, {"step": 2, "mlm_loss": 3.5}, {"step": 3}]
    figures = term_curves(log, "mlm", 6.0)
    assert [figure.title for figure in figures] == ["MLM loss"]
    assert "3.5" in text_of(figures[0].picture)


def test_a_plot_of_nothing_says_so() -> None:
    for svg in (plots.curve([], []), plots.comparison([]), plots.scatter([]), plots.spread([], [])):
        assert text_of(svg) == ["nothing logged yet"]


def test_wilson_interval() -> None:
    # Published example: 10 of 20 is 0.299 to 0.701; with 0 of 20 the upper end is z²/(n + z²).
    assert wilson_interval(10, 20) == pytest.approx((0.2993, 0.7007), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson_interval(20, 20) == pytest.approx((0.8389, 1.0), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="is not a share"):
        wilson_interval(3, 2)


def test_wilson_interval_covers_the_truth_in_95_of_100_cases() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for correct in generator.binomial(200, 0.7, size=4000):
        low, high = wilson_interval(int(correct), 200)
        covered += low <= 0.7 <= high
    assert 0.935 < covered / 4000 < 0.965


def test_several_curves_have_a_legend_and_lines_of_their_own() -> None:
    steps = list(range(50))
    noisy = [5.0 - step / 25 + step % 2 for step in steps]
    few = ([10, 20], [3.0, 2.5])
    svg = plots.curves(["hidden <words>", "left to right", "none"], [(steps, noisy), few, ([], [])])
    shown = text_of(svg)
    assert "hidden <words>" in shown
    assert "left to right" in shown
    assert "none" not in shown  # has no points
    assert "step" in shown
    assert "% of the steps" in text_of(plots.curves(["a"], [few], label="% of the steps"))
    assert svg == plots.curves(
        ["hidden <words>", "left to right", "none"], [(steps, noisy), few, ([], [])]
    )
    assert "nothing logged yet" in text_of(plots.curves(["a"], [([], [])]))


def places(svg: bytes) -> list[tuple[float, float]]:
    """The points of the first line."""
    root = ElementTree.fromstring(svg)
    line = next(root.iter("{http://www.w3.org/2000/svg}polyline"))
    pairs = (point.split(",") for point in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_a_line_goes_up_and_right_as_its_numbers_do() -> None:
    """To scale: half of the steps is half of the way, and equal rises are equally high."""
    (x0, y0), (x1, y1), (x2, y2) = places(plots.curve([0, 50, 100], [1.0, 2.0, 4.0]))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 - y2 == pytest.approx(2 * (y0 - y1), abs=0.3)
    assert y2 < y1 < y0
    (_, y0), (_, y1), (_, y2) = places(plots.curve([0, 1, 2], [0.1, 1.0, 10.0], log_scale=True))
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 1.0), (-0.05, 1.05), (0.6912, 0.7023), (1e-7, 3e-7), (-4.0, 93_000.0), (5.1, 5.10001)],
)
@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_few_and_inside_and_their_texts_differ(
    low: float, high: float, log: bool
) -> None:
    if log and low <= 0:
        low = high / 1000
    axis = number_axis(low, high, log=log)
    assert (2 if log else 3) <= len(axis.ticks) <= 7
    assert all(low <= tick + 1e-9 * high and tick <= high * (1 + 1e-9) for tick in axis.ticks)
    assert len(set(axis.texts)) == len(axis.ticks)


def test_what_lies_outside_the_box_is_cut_off() -> None:
    plot = Plot(300, 200, number_axis(0, 2), number_axis(0, 1))
    plot.line([0, 1, 2], [0.5, 40.0, 0.5], Stroke("red"))
    svg = plot.svg().decode()
    (name,) = re.findall(r"url\(#([^)]*)\)", svg)
    assert f'<clipPath id="{name}">' in svg
    inside = Plot(300, 200, number_axis(0, 2), number_axis(0, 1))
    inside.line([0, 1, 2], [0.5, 1.0, 0.5], Stroke("red"))
    assert b"clip" not in inside.svg()


def test_all_of_a_plot_lies_inside_the_picture() -> None:
    """Long labels make room for themselves: nothing is at a negative place."""
    bars = [plots.Bar("a rather long name of a model", 0.999, 0.99, 1.0), plots.Bar("b", 0.1)]
    lines = [Line("a", [(10, 0.5, 0.4, 0.6), (1000, 0.7, 0.6, 0.8)]), Line("b", [])]
    for svg in (
        plots.comparison(bars),
        plots.spread(["learning rate 5e-5, batch size 32"], [[0.5, 0.6]]),
        plots.curve([1, 2], [123_456.0, 234_567.0], percent=True),
        plots.reliability([(0.5, 0.5, 1), (0.9, 0.8, 100)]),
        plots.coverage([(0.5, 1.0, 0.9), (1.0, 0.9, 0.5)]),
        plots.scatter([(1.0, 2.0), (3.0, 2.5)]),
        learning_plot(lines),
        seconds_plot([("a", [(10, 0.0), (1000, 12.0)]), ("b", [])]),
    ):
        root = ElementTree.fromstring(svg)
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for node in root.iter():
            for x, y in (("x", "y"), ("cx", "cy")):
                if x in node.attrib:
                    assert 0 <= float(node.attrib[x]) <= width, node.attrib
                    assert 0 <= float(node.attrib[y]) <= height, node.attrib


def test_equal_numbers_have_an_axis() -> None:
    for value in (0.0, 3.0, -2.0):
        low, high = limits([value, value])
        assert low < value < high
    low, high = limits([3.0], log=True)
    assert 0 < low < 3.0 < high
    assert math.isfinite(high)
