"""The plot and the page of a learning-rate range test, from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from bertine.reports import html
from bertine.reports.plot_style import (
    ACCENT,
    GRID,
    INK,
    SECOND,
    STYLE,
    blank_axes,
    decimals,
    number_text,
    to_svg,
)
from bertine.reports.run_sections import sentence, setting_facts


@dataclass(frozen=True)
class RateTest:
    """What is shown of a test.

    Attributes:
        rates: of each step, ascending.
        losses: of each step, before its update.
        smoothed_at: the rates of the smoothed losses, ascending.
        smoothed: the smoothed losses.
        bracket: the suggested rates, lowest and highest; None: there is none.
        lowest: the rate up to which the smoothed loss stays at its lowest; None where there is no
            bracket.
        grid: of the paper's rates each with the smoothed loss there (None: not reached) and what
            the curve says of it.
    """

    rates: Sequence[float]
    losses: Sequence[float]
    smoothed_at: Sequence[float]
    smoothed: Sequence[float]
    bracket: tuple[float, float] | None
    lowest: float | None
    grid: Sequence[tuple[float, float | None, str]]


def rate_plot(test: RateTest) -> bytes:
    """The loss over the rate as SVG: each step faint, the smoothed curve, the bracket shaded, the
    paper's rates as dashed lines."""
    with matplotlib.rc_context(STYLE):
        figure, axes = blank_axes(7.2, 3.7)
        axes.set_xscale("log")
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        if test.bracket is not None:
            # A bracket of one rate is still to be seen.
            low, high = test.bracket[0] / 1.03, test.bracket[1] * 1.03
            axes.axvspan(low, high, color=ACCENT, alpha=0.14, linewidth=0, label="bracket")
        for number, (rate, _, _) in enumerate(test.grid):
            name = None if number else "the paper's rates"
            line = {"color": SECOND, "linewidth": 1.1, "linestyle": (0, (5, 3))}
            axes.axvline(rate, **line, label=name)
        axes.plot(test.rates, test.losses, color=ACCENT, linewidth=0.9, alpha=0.35, label="loss")
        axes.plot(test.smoothed_at, test.smoothed, color=ACCENT, linewidth=2.2, label="smoothed")
        if test.lowest is not None:
            there = float(np.interp(test.lowest, test.smoothed_at, test.smoothed))
            axes.plot([test.lowest], [there], "o", color=INK, markersize=5, label="lowest")
        if test.rates:
            axes.set_xlim(test.rates[0], max(test.rates[-1], test.rates[0] * 1.01))
            axes.set_ylim(*_limits(test))
        above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 5}
        axes.legend(**above, frameon=False, labelcolor=INK, borderpad=0, handlelength=1.6)
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss")
        axes.xaxis.set_major_locator(LogLocator(10, numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: rate_text(value)))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        more = decimals(axes.get_yticks(), False)
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: number_text(value, False, more))
        )
        return to_svg(figure, salt=repr(test))


def _limits(test: RateTest) -> tuple[float, float]:
    """Of the losses shown: those of the first two thirds and the smoothed curve's lowest, with
    room for a rise; not the flight at the end, which would press the rest flat."""
    early = test.losses[: max(1, 2 * len(test.losses) // 3)]
    low = min(min(test.smoothed), float(np.quantile(early, 0.02)))
    high = max(test.smoothed[0], float(np.quantile(early, 0.98)))
    room = max(high - low, 1e-6)
    return low - 0.08 * room, high + 0.25 * room


def write_rate_page(
    path: Path,
    test: RateTest,
    plot: bytes,
    *,
    title: str,
    lead: str,
    facts: Sequence[tuple[str, str, str]],
    notes: Sequence[str],
    how: Sequence[str],
    command: str,
    settings: Mapping[str, Any],
    footer: str,
) -> None:
    """Write the page, one file that needs no other.

    Args:
        path: of the page.
        test: what was found.
        plot: :func:`rate_plot`.
        title: its heading.
        lead: the result in words.
        facts: the few numbers that matter most: name, value, a few words.
        notes: what stands out.
        how: how the numbers are found, a line each.
        command: to be run next.
        settings: what was asked for.
        footer: how it was made.

    Raises:
        BertineError: it cannot be written.
    """
    rows = [
        (rate_text(rate), "" if loss is None else f"{loss:.4f}", said)
        for rate, loss, said in test.grid
    ]
    blocks: list[html.Block] = [html.Note(sentence(note), "warning") for note in notes]
    blocks.append(
        html.Figures(
            [
                html.Figure(
                    "Loss over the learning rate",
                    plot,
                    lead,
                    "Faint: the loss of each step's batch. Shaded: the bracket. Dashed: the rates "
                    "that the paper tries.",
                )
            ],
            columns=1,
            wide=True,
        )
    )
    page = html.Report(
        title=title,
        lead=lead,
        headline=[html.Fact(*fact) for fact in facts],
        sections=[
            html.Section("The curve", blocks),
            html.Section(
                "Next",
                [html.Commands([("", command)])],
                lead="Train with this rate, for this long:",
            ),
            html.Section(
                "The paper's grid",
                [html.Table(("rate", "smoothed loss", "the curve says"), rows, numeric=(0, 1))],
                lead="Devlin et al. 2018, section A.3, tries these rates for every task and takes "
                "the best on the dev set.",
            ),
            html.Section("How to read the curve", [html.Note(line) for line in how], folded=True),
            html.Section("Settings", [setting_facts(settings)], folded=True),
        ],
        footer=footer,
    )
    html.render_report(path, page)


def rate_text(rate: float) -> str:
    """``"3e-5"``, ``"2.4e-5"``: at most two significant digits
    (:func:`bertine.reports.scores.exact_rate` has all)."""
    mantissa, exponent = f"{rate:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
