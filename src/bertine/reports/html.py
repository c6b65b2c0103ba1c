"""Build HTML pages: plain data in, one self-contained file out.

A :class:`Page` is a list of :class:`Section`, a section a list of blocks. All text is escaped; the
only markup that is passed through is the SVG of :mod:`bertine.reports.plots`. The page loads
nothing: no fonts, scripts or pictures from elsewhere. Its only script, which copies commands, is
allowed by its hash; without scripts the page is still complete.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bertine.core.files import atomic_file
from bertine.core.names import WORDPIECE_MASK, __version__
from bertine.tokenization.base import bare, goes_on

# Commands and options in a page: lines break before an option, and not within it.

#: The beginning of a line of a command: an option, or the next command.
_BEGINS = re.compile(r"-|&&$|\|+$|;$")
#: An option in a sentence.
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*[a-z0-9])")


def command_markup(command: str) -> Markup:
    """Wrap each word of a command in a ``<span>``, and each option with its values in another.

    The style sheet makes boxes of them, which move to the next line as a whole: a browser would
    break ``--out`` after its hyphens. The text is unchanged, so it can be selected and copied.
    """
    groups: list[list[str]] = [[]]
    for part in re.split(r"(\s+)", command):
        if not part:
            continue
        if groups[-1] and _BEGINS.match(part):
            groups.append([])
        groups[-1].append(part)
    return Markup("").join(_group(parts) for parts in groups)


def _group(parts: list[str]) -> Markup:
    """Wrap an option and its values; the space after them is outside the box."""
    end = parts.pop() if parts and parts[-1].isspace() else ""
    inner = Markup("").join(
        part if part.isspace() else Markup("<span>{}</span>").format(part) for part in parts
    )
    return Markup("<span>{}</span>{}").format(inner, end)


def prose_markup(text: str) -> Markup:
    """Keep each option in a sentence in one piece."""
    parts = _OPTION.split(text)
    return Markup("").join(
        Markup('<span class="option">{}</span>').format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


_PNG = b"\x89PNG\r\n\x1a\n"
#: Cells of this many characters make a row a card on a narrow screen; in the first column more fit,
#: since its height is free.
_LONG_CELL, _LONG_FIRST = 25, 60
#: The number of rows that a longer table shows; the others are folded.
_ROWS, _TOO_MANY_ROWS = 12, 16


@dataclass(frozen=True)
class Fact:
    """A name and its value, with a short remark if needed."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class FactList:
    """Facts as rows."""

    rows: Sequence[Fact]
    kind: Literal["facts"] = field(default="facts", init=False)


@dataclass(frozen=True)
class Note:
    """A remark that stands out: the meaning of a result, or a warning; with the command to run
    next, if there is one."""

    text: str
    mood: Literal["plain", "good", "warning", "fault"] = "plain"
    command: str = ""
    kind: Literal["note"] = field(default="note", init=False)


@dataclass(frozen=True)
class Commands:
    """Commands to run, in monospaced letters and with a button that copies each. The line above a
    command describes it ("" for none)."""

    rows: Sequence[tuple[str, str]]
    kind: Literal["commands"] = field(default="commands", init=False)


@dataclass(frozen=True)
class Figure:
    """A picture with title and caption. `alt` describes in words what it shows, numbers included.

    `picture` is SVG (from :mod:`bertine.reports.plots`, inserted unescaped: never from outside) or
    PNG.
    """

    title: str
    picture: bytes
    alt: str
    caption: str = ""

    @property
    def markup(self) -> Markup:
        """The picture as an HTML element."""
        if self.picture.startswith(_PNG):
            data = base64.b64encode(self.picture).decode("ascii")
            return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, self.alt)
        svg = self.picture.decode("utf-8")
        opening, rest = svg.split(">", 1)
        if not opening.startswith("<svg"):
            raise ValueError(f"figure {self.title!r}: neither SVG nor PNG")
        # Without width and height the page decides; the viewBox keeps the proportions.
        opening = re.sub(r'\s(?:width|height)="[^"]*"', "", opening)
        label = f' role="img" aria-label="{escape(self.alt)}">'
        return Markup(opening + label + rest)  # the SVG is made here, its labels are escaped


@dataclass(frozen=True)
class Figures:
    """Pictures in a row where there is room. `columns`: the maximum number in a row; `wide`: as
    wide as the page, and on a narrow screen wider than it, to be scrolled."""

    figures: Sequence[Figure]
    columns: Literal[1, 2, 3] = 3
    wide: bool = False
    kind: Literal["figures"] = field(default="figures", init=False)


@dataclass(frozen=True)
class PageTable:
    """A table. The columns whose numbers are in `numeric` are set right-aligned.

    With many rows the first are shown and the rest is folded. On a narrow screen a table with texts
    in it becomes a list: the first cell of a row, and below it the others with their columns'
    names.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int] = ()
    caption: str = ""
    kind: Literal["table"] = field(default="table", init=False)

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} has {len(row)} of {len(self.columns)} columns")

    @property
    def stacked(self) -> bool:
        """Whether a row is displayed as a card on a narrow screen."""
        texts = set(range(len(self.columns))) - set(self.numeric)
        return len(self.columns) > 1 and any(
            len(row[column]) >= (_LONG_CELL if column else _LONG_FIRST)
            for row in self.rows
            for column in texts
        )

    @property
    def parts(self) -> list[Sequence[Sequence[str]]]:
        """The rows that are shown, and the folded ones, if there are any."""
        if len(self.rows) <= _TOO_MANY_ROWS:
            return [self.rows]
        return [self.rows[:_ROWS], self.rows[_ROWS:]]


@dataclass(frozen=True)
class Heat:
    """A confusion matrix as a table: a row for each actual label, a column for each predicted one,
    counts in the cells, and each cell coloured by its share of its row.

    `counts` is ``counts[actual][predicted]``, [K][K] for K `labels`.
    """

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]
    caption: str = ""
    kind: Literal["heat"] = field(default="heat", init=False)

    def __post_init__(self) -> None:
        if any(len(cells) != len(self.labels) for cells in (self.counts, *self.counts)):
            raise ValueError(f"{len(self.labels)} labels, but another number of rows or columns")

    @functools.cached_property
    def shares(self) -> list[list[float]]:
        """The share of each cell in its row, 0 to 1."""
        totals = [max(1, sum(row)) for row in self.counts]
        return [[c / total for c in row] for row, total in zip(self.counts, totals, strict=True)]


@dataclass(frozen=True)
class Guess:
    """A token predicted for a mask, and its probability (0 to 1)."""

    token: str
    probability: float

    @property
    def continues(self) -> bool:
        """Whether it is a piece that continues the word before it, as ``##s``."""
        return goes_on(self.token)

    @property
    def shown(self) -> str:
        """The token as people read it: ``"…s"`` for ``##s``."""
        return "…" + bare(self.token) if self.continues else self.token


@dataclass(frozen=True)
class Guesses:
    """The guesses for a mask at one time of training.

    Attributes:
        when: the time, e.g. "step 1,000".
        guesses: the best guesses, best first.
        truth_probability: the probability of the original word, 0 to 1.
    """

    when: str
    guesses: Sequence[Guess]
    truth_probability: float


@dataclass(frozen=True)
class MaskHistory:
    """A sentence with one mask between `before` and `after`, and the guesses over time."""

    before: str
    after: str
    truth: str
    rows: Sequence[Guesses]
    mask: str = WORDPIECE_MASK


@dataclass(frozen=True)
class MaskHistories:
    """Sentences with the guesses for their masks during training."""

    examples: Sequence[MaskHistory]
    kind: Literal["histories"] = field(default="histories", init=False)

    @property
    def has_pieces(self) -> bool:
        """Whether a guess is a piece of a word."""
        rows = (row for example in self.examples for row in example.rows)
        return any(guess.continues for row in rows for guess in row.guesses)


@dataclass(frozen=True)
class Segment:
    """A part of a text: plain, or marked, with a short remark next to it or above it."""

    text: str
    mark: Literal["", "right", "wrong", "masked", "replaced", "kept", "added"] = ""
    label: str = ""
    above: bool = False


@dataclass(frozen=True)
class TextCard:
    """Texts with remarks about them.

    Attributes:
        lines: the texts in segments, each with a word before it ("" for none).
        remarks: the remarks above them, e.g. ("actual", "cat", "right"): a few words, an emphasized
            value ("" for none), and its mark.
        title: a heading; "" for none.
        place: the origin of the texts: file and line.
    """

    lines: Sequence[tuple[str, Sequence[Segment]]]
    remarks: Sequence[tuple[str, str, Literal["", "right", "wrong"]]] = ()
    title: str = ""
    place: str = ""


@dataclass(frozen=True)
class TextCards:
    """Cards one below the other; with many the first are shown and the rest is folded. `noun`: the
    name of the items, in the plural; `legend`: a line above them that explains their marks."""

    cards: Sequence[TextCard]
    noun: str = "examples"
    legend: Sequence[Segment] = ()
    kind: Literal["texts"] = field(default="texts", init=False)


Block = FactList | Note | Commands | Figures | PageTable | Heat | MaskHistories | TextCards


@dataclass(frozen=True)
class Section:
    """A part of a page. `lead` is one paragraph that introduces it; a `folded` section shows only
    its title until it is opened."""

    title: str
    blocks: Sequence[Block] = ()
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: one line.
        lead: a paragraph: the result in words.
        headline: the few numbers that matter most, in large letters.
        sections: the sections, in their order.
        command: the command that made it, which the last line names with the version.
        footer: the end of that line.
    """

    title: str
    lead: str = ""
    headline: Sequence[Fact] = ()
    sections: Sequence[Section] = ()
    command: str = ""
    footer: str = "."

    @property
    def origin(self) -> str:
        """The last line."""
        return f"Made by bertine {__version__} with 'bertine {self.command}'{self.footer}"

    def html(self) -> str:
        """Return the page as text."""
        environment = _templates()
        script = environment.get_template("page.js.j2").render()
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        return environment.get_template("page.html.j2").render(
            page=self, script=Markup(script), script_hash=digest
        )

    def write(self, path: Path | str) -> None:
        """Write the page, atomically, as one file that needs no other.

        Raises:
            BertineError: `path` cannot be written.
        """
        # A lone surrogate (half of a broken character) has no UTF-8 form and becomes "?".
        with atomic_file(Path(path)) as temporary:
            temporary.write_bytes(self.html().encode("utf-8", errors="replace"))


@functools.cache
def _templates() -> Environment:
    """Read the templates; compiling them takes longer than filling them in."""
    environment = Environment(
        loader=PackageLoader("bertine.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent_text, "width": _width}
    environment.filters |= {"command": command_markup, "prose": prose_markup}
    return environment


def percent_text(share: float) -> str:
    """Write a share of 1 in percent, with a decimal if it is small."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%"


def _width(share: float) -> str:
    """Write a share as a CSS length."""
    return f"{100 * min(1.0, max(0.0, share)):.1f}%"
