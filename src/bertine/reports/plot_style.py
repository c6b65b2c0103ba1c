"""Give plots their look: colours, letters, and the SVG they end as.

Colours are written as CSS variables with a fallback (``var(--ink, #22262e)``), so a page that
defines ``--ink``, ``--muted``, ``--grid``, ``--accent`` and ``--second`` themes the plots, and a
plot opened on its own still looks right. Text stays text (searchable, in the page's font).
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

# Stand-ins that matplotlib draws with; `to_svg` puts the CSS variables in their place.
INK, MUTED, GRID, ACCENT, SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
#: Widths of a plot, in inches of 72 units: of a curve, and of one with names beside it.
NARROW, WIDE = 4.3, 4.9
#: How a line that is there to compare with is drawn.
DASHED: Any = {"color": SECOND, "linestyle": (0, (5, 3))}
_CSS = {
    INK: "var(--ink, #22262e)",
    MUTED: "var(--muted, #667085)",
    GRID: "var(--grid, #d9dde4)",
    ACCENT: "var(--accent, #2b62c4)",
    SECOND: "var(--second, #c2571a)",
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a label is a dollar sign
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "figure.constrained_layout.use": True,
}


@contextmanager
def canvas(
    width: float, height: float, grid: Literal["x", "y", "both"] = "y"
) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure of inches of 72 units and its axes, styled for the time of the block, with
    the lines of `grid`."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.grid(axis=grid)
        yield figure, axes


def nothing_logged(figure: Figure, axes: Any) -> bytes:
    """Return `figure` as SVG that says that there is nothing to show yet."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing logged yet", ha="center", va="center", color=MUTED)
    return to_svg(figure, salt="nothing")


def number_text(value: float, percent: bool, more: int = 0) -> str:
    """Write a number as the label of an axis, a share in percent if `percent`, with `more`
    decimals than usual."""
    if percent:
        share = 100 * value
        if not more:
            return f"{share:.0f}%" if abs(share - round(share)) < 0.05 else f"{share:.1f}%"
        return f"{share:.{1 + more}f}%"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.01:
        return re.sub(r"\.?0*e-0?", "e-", f"{value:.{1 + more}e}")
    if size >= 10_000:
        return f"{value / 1000:.{more}f}k"
    if more:
        return f"{value:,.{more if size >= 100 else 2 + more}f}"
    return f"{value:,.0f}" if size >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def label_ticks(
    axis: Any, percent: bool = False, between: tuple[float, float] | None = None
) -> int:
    """Label the ticks of `axis` with numbers that differ: three ticks that all say 0.7 say nothing.

    Args:
        percent: whether they are shares, to be labelled in percent.
        between: the ends of what is shown of the axis; None: all its ticks are.

    Returns:
        How many decimals more than usual :func:`number_text` needs for that.
    """
    low, high = between or (-math.inf, math.inf)
    ticks = [tick for tick in axis.get_ticklocs() if low <= tick <= high]
    apart = len(set(ticks))
    texts = ({number_text(tick, percent, more) for tick in ticks} for more in range(4))
    more = next((more for more, shown in enumerate(texts) if len(shown) == apart), 4)
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value, percent, more)))
    return more


def legend_above(axes: Any, columns: int) -> None:
    """Put the legend above the plot, where neither a curve nor the label of a line is under it."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        borderpad=0,
        handlelength=1.6,
    )


def to_svg(figure: Figure, salt: str) -> bytes:
    """Return the figure as SVG without prolog; the same figure gives the same bytes.

    `salt` goes into the ids, so that several plots on one page do not share them.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        # The letters are the page's business: only their width is guessed with this font.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = buffer.getvalue().decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    for stand_in, variable in _CSS.items():
        text = text.replace(stand_in, variable)
    # Ids that matplotlib counts up in every figure ("axes_1") would repeat on the page.
    text = re.sub(r' id="(?:figure|axes|patch|line2d|matplotlib|text|xtick|ytick)[\w.]*"', "", text)
    return text.strip().encode("utf-8")
