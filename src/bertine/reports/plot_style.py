"""How plots look: colours, letters, and the SVG they end as.

Colours are written as CSS variables with a fallback (``var(--ink, #22262e)``), so a page that
defines ``--ink``, ``--muted``, ``--grid``, ``--accent`` and ``--second`` themes the plots, and a
plot opened on its own still looks right. Text stays text (searchable, in the page's font).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Stand-ins that matplotlib draws with; `to_svg` puts the CSS variables in their place.
INK, MUTED, GRID, ACCENT, SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
#: Widths of a plot, in inches of 72 units: of a curve, and of one with names beside it.
NARROW, WIDE = 4.3, 4.9
_CSS = {
    INK: "var(--ink, #22262e)",
    MUTED: "var(--muted, #667085)",
    GRID: "var(--grid, #d9dde4)",
    ACCENT: "var(--accent, #2b62c4)",
    SECOND: "var(--second, #c2571a)",
}
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a label is a dollar sign
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "figure.constrained_layout.use": True,
}


def blank_axes(width: float, height: float) -> tuple[Figure, Any]:
    """A figure of inches of 72 units, and its axes."""
    figure = Figure(figsize=(width, height))
    FigureCanvasSVG(figure)
    return figure, figure.subplots()


def nothing_logged(figure: Figure, axes: Any) -> bytes:
    """`figure` as SVG, with nothing but the words that there is nothing to show yet."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing logged yet", ha="center", va="center", color=MUTED)
    return to_svg(figure, salt="nothing")


def number_text(value: float, percent: bool, more: int = 0) -> str:
    """A number as an axis is lettered with it; a share in percent if `percent`; with so many
    `more` decimals than are usual."""
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


def decimals(ticks: Sequence[float], percent: bool) -> int:
    """With how many more decimals than usual :func:`number_text` tells these numbers apart: an
    axis on which three ticks say 0.7 says nothing."""
    apart = len(set(ticks))
    return next(
        (more for more in range(4) if len({number_text(v, percent, more) for v in ticks}) == apart),
        4,
    )


def to_svg(figure: Figure, salt: str) -> bytes:
    """The figure as SVG without prolog; the same figure gives the same bytes.

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
