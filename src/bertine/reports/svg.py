"""Draw plots as SVG: axes with round numbers, lines, dots, bars, and a legend above.

Lengths are in units of the picture, of which a letter is 10.5 high; positions of what is drawn are
in those of the data. Colours are CSS variables with a fallback (``var(--ink, #22262e)``), so a page
that defines ``--ink``, ``--muted``, ``--grid``, ``--accent``, ``--second`` and ``--good`` themes
the plots, and a plot opened on its own still looks right. Text stays text (searchable, in the
page's font).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

INK = "var(--ink, #22262e)"
MUTED = "var(--muted, #667085)"
GRID = "var(--grid, #d9dde4)"
ACCENT = "var(--accent, #2b62c4)"
SECOND = "var(--second, #c2571a)"
GOOD = "var(--good, #1c7a48)"
#: Widths of a plot: of a curve, and of one with names next to it.
NARROW, WIDE = 310, 353
_LETTER = 10.5
#: The distance between two lines of text; the length of a line in the legend.
_LINE, _KEY = 14.0, 16.0
#: The assumed width of a character, in letter heights: a safe value, as every reader has another
#: font.
_NARROW_LETTER, _WIDE_LETTER = 0.57, 1.05


@dataclass(frozen=True)
class Stroke:
    """The look of a line and of the dots at its points.

    Attributes:
        colour: one of the colours of this file.
        width: the width of the line; 0: dots alone.
        dot: the radius of the dots; 0: none.
        opacity: the opacity, up to 1.
        dash: lengths of dashes and gaps; "" for a whole line.
    """

    colour: str
    width: float = 1.8
    dot: float = 0.0
    opacity: float = 1.0
    dash: str = ""


#: A reference line.
REFERENCE = Stroke(SECOND, 1.5, dash="7 4")


@dataclass(frozen=True)
class Axis:
    """The visible range of a quantity, from `low` (left, below) to `high`.

    Attributes:
        ticks: the places of the labels `texts`.
        label: the name of the quantity; "" where the title has it.
        log: whether the scale is logarithmic.
    """

    low: float
    high: float
    ticks: Sequence[float]
    texts: Sequence[str]
    label: str = ""
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of `value` on the axis: 0 at its beginning, 1 at its end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def limits(values: Iterable[float], *, log: bool = False) -> tuple[float, float]:
    """Return the ends of an axis that shows `values` (above zero if `log`) with a little room."""
    given = [*values]
    low, high = min(given), max(given)
    if log:
        room = (high / low) ** 0.05 if high > low else 1.5
        return low / room, high * room
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return low - room, high + room


def number_axis(
    low: float,
    high: float,
    *,
    percent: bool = False,
    log: bool = False,
    whole: bool = False,
    label: str = "",
) -> Axis:
    """Make an axis with at most six round numbers, or seven if `log`, that differ as text. `whole`
    numbers are written in full (steps), shares in percent if `percent`."""
    ticks = log_ticks(low, high) if log else _ticks(low, high, whole)
    if whole:
        texts = [f"{tick:,.0f}" for tick in ticks]
    else:
        more = decimals(ticks, percent)
        texts = [number_text(tick, percent, more) for tick in ticks]
    return Axis(low, high, ticks, texts, label, log)


def decimals(ticks: Sequence[float], percent: bool) -> int:
    """Return how many decimals more than usual :func:`number_text` needs for ticks to differ: three
    labels of 0.7 would say nothing."""
    apart = len(set(ticks))
    texts = ({number_text(tick, percent, more) for tick in ticks} for more in range(4))
    return next((more for more, shown in enumerate(texts) if len(shown) == apart), 4)


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


def _ticks(low: float, high: float, whole: bool) -> list[float]:
    """Return three to six round numbers from `low` to `high`; for whole numbers there may be
    fewer."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 5))
    if whole:
        unit = max(1.0, unit)
    for step in (unit, 2 * unit, 2.5 * unit, 5 * unit, 10 * unit):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first <= 5 and not (whole and step % 1):
            break
    return [number * step for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return up to seven of 1, 2, 5, 10, …, or of the powers of ten; evenly spaced numbers where
    there are not two of them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [
        tick for power in powers for tick in (m * 10.0**power for m in (1, 2, 5))
        if low <= tick <= high
    ]  # fmt: skip
    if len(every) < 2:
        return _ticks(low, high, whole=False)
    if len(every) <= 7:
        return every
    tens = [10.0**power for power in powers if low <= 10.0**power <= high]
    return tens[:: -(-len(tens) // 7)]


class Plot:
    """A plot that is being drawn; its frame exists from the beginning.

    Attributes:
        left: the left side of the box of the data; `right`, `top` and `bottom` likewise.
    """

    def __init__(
        self,
        width: float,
        height: float | None,
        x: Axis,
        y: Axis,
        *,
        grid: Literal["x", "y", "both"] | None = "y",
        legend: Sequence[tuple[str, Stroke]] = (),
        side_label: str = "",
    ) -> None:
        """Draw the axes.

        Args:
            width: the width of the picture.
            height: the height of the picture; None: so that the box is a square.
            x: the horizontal axis.
            y: the vertical axis.
            grid: the grid lines. With those of `x` alone, `y` has names of rows, and no line. None:
                no axes are drawn.
            legend: the names of the curves to be drawn.
            side_label: the widest text to be placed at the right of the box.
        """
        self.width, self.x, self.y = width, x, y
        self._parts: list[str] = []
        names = [line for text in y.texts for line in text.split("\n")]
        self.left = 8 + max(map(width_of, names), default=0.0) + (_LINE if y.label else 0)
        last = width_of(x.texts[-1]) / 2 if x.texts else 0.0
        self.right = width - max(8.0, last, 7 + width_of(side_label) * 1.1 if side_label else 0.0)
        self.top = self._draw_legend(legend)
        below = 20 + (_LINE if x.label else 0)
        self.height = self.top + self.right - self.left + below if height is None else height
        self.bottom = self.height - below
        if grid is not None:
            self._draw_axes(grid)

    def across(self, value: float) -> float:
        """Return the horizontal position of `value` in the picture, from its left."""
        return self.left + (self.right - self.left) * self.x.share(value)

    def down(self, value: float) -> float:
        """Return the vertical position of `value` in the picture, from its top."""
        return self.bottom - (self.bottom - self.top) * self.y.share(value)

    def line(self, xs: Sequence[float], ys: Sequence[float], stroke: Stroke) -> None:
        """Draw a line through points, clipped above and below the box."""
        points = [(self.across(x), self.down(y)) for x, y in zip(xs, ys, strict=True)]
        if stroke.width:
            clip = ""
            if any(not self.top - 1 <= y <= self.bottom + 1 for _, y in points):
                clip = self._clip()
            shown = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
            self._parts.append(
                f'<polyline points="{shown}" fill="none" {_look(stroke)} '
                f'stroke-linejoin="round"{clip}/>'
            )
        if stroke.dot:
            self._dots(points, [stroke.dot] * len(points), stroke)

    def dots(self, points: Iterable[tuple[float, float, float]], stroke: Stroke) -> None:
        """Draw dots of several sizes, given as (x, y, radius)."""
        given = [*points]
        places = [(self.across(x), self.down(y)) for x, y, _ in given]
        self._dots(places, [radius for *_, radius in given], stroke)

    def rectangle(
        self, xs: tuple[float, float], ys: tuple[float, float], colour: str, opacity: float
    ) -> None:
        """Fill the area between two values of each axis."""
        left, right = map(self.across, xs)
        top, bottom = sorted(map(self.down, ys))
        self._parts.append(
            f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" '
            f'height="{_n(bottom - top)}" fill="{colour}" fill-opacity="{opacity:g}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: str,
        *,
        anchor: Literal["start", "middle", "end"] = "start",
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        """Write `text` with the middle of its letters at the height `y`, in units of the picture;
        `turned`: from bottom to top. Line breaks are kept."""
        weight = ' font-weight="bold"' if bold else ""
        turn = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if turned else ""
        lines = printable(text).split("\n")
        y -= _LINE * (len(lines) - 1) / 2
        for number, line in enumerate(lines):
            self._parts.append(
                f'<text x="{_n(x)}" y="{_n(y + 0.35 * _LETTER + _LINE * number)}" fill="{colour}" '
                f'text-anchor="{anchor}"{weight}{turn}>{escape(line, quote=False)}</text>'
            )

    def svg(self) -> bytes:
        """Return the drawing as SVG without prolog; the same plot gives the same bytes."""
        width, height = _n(self.width), _n(self.height)
        parts = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}pt" height="{height}pt" '
            f'font-family="system-ui, DejaVu Sans, sans-serif" font-size="{_LETTER}">\n'
            f"{parts}\n</svg>"
        ).encode()

    def _draw_legend(self, legend: Sequence[tuple[str, Stroke]]) -> float:
        """Draw the legend above the box, where no curve is under it, in as many rows as it needs;
        return the top of the box."""
        x, y = self.left, 8.0
        for name, stroke in legend:
            if x > self.left and x + _KEY + 5 + width_of(name) > self.width:
                x, y = self.left, y + _LINE
            if stroke.width:
                self._parts.append(
                    f'<path d="M{_n(x)},{_n(y)}h{_KEY:g}" fill="none" {_look(stroke)}/>'
                )
            if stroke.dot:
                self._dots([(x + _KEY / 2, y)], [stroke.dot], stroke)
            self.text(x + _KEY + 5, y, name, INK)
            x += _KEY + 5 + width_of(name) + 14
        return y + _LINE if legend else 8.0

    def _draw_axes(self, grid: str) -> None:
        rows = grid == "x"
        lines = []
        for tick, text in zip(self.x.ticks, self.x.texts, strict=True):
            at = self.across(tick)
            self.text(at, self.bottom + 11, text, MUTED, anchor="middle")
            reach = self.top if grid != "y" else self.bottom + 3
            lines.append(f"M{_n(at)},{_n(self.bottom)}V{_n(reach)}")
        for tick, text in zip(self.y.ticks, self.y.texts, strict=True):
            at = self.down(tick)
            self.text(self.left - 6, at, text, INK if rows else MUTED, anchor="end")
            if not rows:
                lines.append(f"M{_n(self.left - 3)},{_n(at)}H{_n(self.right)}")
        frame = f"M{_n(self.left)},{_n(self.bottom)}H{_n(self.right)}"
        if not rows:
            frame += f"M{_n(self.left)},{_n(self.bottom)}V{_n(self.top)}"
        self._parts.append(
            f'<path d="{"".join(lines)}{frame}" fill="none" stroke="{GRID}" stroke-width="0.8"/>'
        )
        if self.x.label:
            middle = (self.left + self.right) / 2
            self.text(middle, self.bottom + 11 + _LINE, self.x.label, MUTED, anchor="middle")
        if self.y.label:
            middle = (self.top + self.bottom) / 2
            # Turned about its own place, so that its letters' middle is at the left edge.
            self.text(7, middle, self.y.label, MUTED, anchor="middle", turned=True)

    def _dots(
        self, points: Sequence[tuple[float, float]], radii: Sequence[float], stroke: Stroke
    ) -> None:
        circles = "".join(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"/>'
            for (x, y), radius in zip(points, radii, strict=True)
        )
        self._parts.append(
            f'<g fill="{stroke.colour}" fill-opacity="{stroke.opacity:g}">{circles}</g>'
        )

    def _clip(self) -> str:
        """Return the attribute that clips to the box. Plots of a page may share the id, which fully
        determines the box."""
        box = [_n(self.left), _n(self.top), _n(self.right), _n(self.bottom)]
        name = "box-" + "-".join(box)
        self._parts.append(
            f'<clipPath id="{name}"><path d="M{box[0]},{box[1]}H{box[2]}V{box[3]}H{box[0]}Z"/>'
            "</clipPath>"
        )
        return f' clip-path="url(#{name})"'


def canvas(width: float, height: float) -> Plot:
    """Return a plot without axes, in which the positions of data are those in the picture, from its
    top left."""
    x, y = Axis(8, width - 8, (), ()), Axis(height - 20, 8, (), ())
    return Plot(width, height, x, y, grid=None)


def nothing_logged(width: float, height: float) -> bytes:
    """Return a picture with the text that there is nothing to show yet."""
    bare = Axis(0, 1, (), ())
    plot = Plot(width, height, bare, bare, grid=None)
    plot.text(width / 2, height / 2, "nothing logged yet", MUTED, anchor="middle")
    return plot.svg()


def printable(text: str) -> str:
    """Replace the characters that XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)


def _look(stroke: Stroke) -> str:
    """Return the attributes of a line."""
    look = f'stroke="{stroke.colour}" stroke-width="{stroke.width:g}"'
    if stroke.opacity < 1:
        look += f' stroke-opacity="{stroke.opacity:g}"'
    return look + (f' stroke-dasharray="{stroke.dash}"' if stroke.dash else "")


def width_of(text: str) -> float:
    """Estimate the width of a line of text, in units of the picture."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" or letter in "%MWm" for letter in text)
    return _LETTER * (_WIDE_LETTER * wide + _NARROW_LETTER * (len(text) - wide))


def _n(value: float) -> str:
    """Write a position in the picture, to a tenth of a unit."""
    return f"{round(value, 1) + 0.0:g}"
