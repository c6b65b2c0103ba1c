"""The plot and the page of a range test."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from bertine.training.lr_find import Landmarks, LrFindReport, RateCurve, rate_plot, write_files
from reports.test_html import Page

RATES = np.geomspace(1e-7, 1e-2, 100).tolist()
CURVE = RateCurve(
    rates=RATES,
    losses=[1.0 + 0.01 * (number % 3) for number in range(90)] + [50.0] * 10,
    at=RATES,
    smoothed=[1.0] * 90 + [20.0] * 10,
)
LANDMARKS = Landmarks(steepest=1e-5, lowest=5e-4, rises=1e-3)


def falling() -> RateCurve:
    """A curve that falls to its end."""
    curve = RateCurve()
    for step in range(60):
        assert curve.add(1e-7 * 1.3**step, 2.0 - 0.02 * step)
    return curve


def test_it_is_svg_that_names_what_it_shows_and_takes_the_pages_colours() -> None:
    plot = rate_plot(CURVE, LANDMARKS, 2e-4).decode()
    ElementTree.fromstring(plot)
    for name in ("to train with", "smoothed", "lowest", "learning rate", "1e-5"):
        assert name in plot
    for variable in ("var(--accent", "var(--second", "var(--muted"):
        assert variable in plot
    assert rate_plot(CURVE, LANDMARKS, 2e-4) == rate_plot(CURVE, LANDMARKS, 2e-4)


def test_the_flight_at_the_end_does_not_press_the_rest_flat() -> None:
    """The axis is lettered near 1, where the curve is read, not up to 50."""
    plot = rate_plot(CURVE, LANDMARKS, 2e-4).decode()
    assert ">1.0" in plot or ">1<" in plot
    assert ">20<" not in plot
    assert ">50<" not in plot


def test_a_curve_that_does_not_fall_has_no_lowest_point() -> None:
    plot = rate_plot(CURVE, None, 2e-4).decode()
    assert "lowest" not in plot


def test_the_page_has_the_command_to_copy_and_settings_for_people(tmp_path: Path) -> None:
    command = "bertine finetune text --data a.csv --learning-rate 2e-5 --out a-model"
    report = LrFindReport(
        falling(), {"learning_rate": 2e-5}, "it is the usual rate", command, tmp_path, 100, 0.5, 1.0
    )
    settings: dict[str, Any] = {
        "text_columns": ["text", "title"],
        "max_rate": 0.01,
        "glue_task": None,
    }
    write_files(report, {"task": "text", **settings})
    html = (tmp_path / "lr-find.html").read_text(encoding="utf-8")
    page = Page(html)
    page.check_scripts()
    assert html.count('class="copy"') == 1
    assert command in " ".join(page.words.split())
    assert "text columns text, title" in page.words
    assert "max rate 0.01" in page.words
    assert "The loss did not rise up to the highest rate" in page.words
    assert "Train with the learning rate 2e-5: it is the usual rate." in page.words
    assert not any(name in page.words for name in ("None", "['text'", "glue"))
