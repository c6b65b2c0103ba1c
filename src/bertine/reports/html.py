"""The HTML report: plain data in, one self-contained file out.

A :class:`Report` is a list of :class:`Section`, a section a list of blocks. Everything that is
text is escaped; the only markup let through is the SVG of :mod:`bertine.reports.plots`. The page
loads nothing: no fonts, no scripts, no pictures from elsewhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bertine.files import atomic_file
from bertine.reports.plots import Curve

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Fact:
    """A name and its value, and a few words more if needed."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """A list of facts, one a row."""

    rows: Sequence[Fact]
    kind: Literal["facts"] = field(default="facts", init=False)


@dataclass(frozen=True)
class Note:
    """A remark that stands out: what a result means, or a warning; with the command to run next,
    if there is one."""

    text: str
    mood: Literal["plain", "good", "warning", "fault"] = "plain"
    command: str = ""
    kind: Literal["note"] = field(default="note", init=False)


@dataclass(frozen=True)
class Figure:
    """A picture with title and caption. `alt` says in words what it shows, numbers included.

    `picture` is SVG (from :mod:`bertine.reports.plots`, set into the page as it is: never from
    outside) or PNG.
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
        return Markup(opening + label + rest)  # the SVG is ours, its labels are escaped


@dataclass(frozen=True)
class Figures:
    """Pictures side by side where there is room. `columns`: at most so many."""

    figures: Sequence[Figure]
    columns: Literal[1, 2, 3] = 3
    kind: Literal["figures"] = field(default="figures", init=False)

    @classmethod
    def of_curves(cls, curves: Sequence[Curve]) -> Figures:
        """The curves of a run (:mod:`bertine.reports.run_curves`)."""
        return cls([Figure(c.title, c.svg, f"{c.title} by step", c.caption) for c in curves])


@dataclass(frozen=True)
class Table:
    """A table. The columns whose numbers are in `numeric` are set right-aligned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int] = ()
    caption: str = ""
    kind: Literal["table"] = field(default="table", init=False)

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} has {len(row)} of {len(self.columns)} columns")


@dataclass(frozen=True)
class Heat:
    """A confusion matrix as a table: a row for each true label, a column for each predicted one,
    counts in the cells, and each cell as strong as its share of its row.

    `counts` is ``counts[true][predicted]``, [K][K] for K `labels`.
    """

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]
    caption: str = ""
    kind: Literal["heat"] = field(default="heat", init=False)

    def __post_init__(self) -> None:
        if any(len(part) != len(self.labels) for part in (self.counts, *self.counts)):
            raise ValueError(f"{len(self.labels)} labels, but another number of rows or columns")

    @property
    def shares(self) -> list[list[float]]:
        """Of each row, 0 to 1."""
        return [[count / max(1, sum(row)) for count in row] for row in self.counts]


@dataclass(frozen=True)
class Candidate:
    """A token for a mask and its probability (0 to 1)."""

    token: str
    probability: float


@dataclass(frozen=True)
class FilledMask:
    """A sentence with one mask between `before` and `after`, and what the model would put there.

    `truth` is what stood there, None when the sentence was made up.
    """

    before: str
    after: str
    candidates: Sequence[Candidate]
    truth: str | None = None


@dataclass(frozen=True)
class FilledMasks:
    examples: Sequence[FilledMask]
    kind: Literal["masks"] = field(default="masks", init=False)


@dataclass(frozen=True)
class Guesses:
    """What was put for a mask at one time of training.

    Attributes:
        when: e.g. "step 1,000".
        candidates: the best, best first.
        truth_probability: what was given to the token that stood there, 0 to 1.
    """

    when: str
    candidates: Sequence[Candidate]
    truth_probability: float


@dataclass(frozen=True)
class MaskHistory:
    """A sentence with one mask between `before` and `after`, and how the guesses changed."""

    before: str
    after: str
    truth: str
    rows: Sequence[Guesses]


@dataclass(frozen=True)
class MaskHistories:
    examples: Sequence[MaskHistory]
    kind: Literal["histories"] = field(default="histories", init=False)


@dataclass(frozen=True)
class Classified:
    """A text with its true label, the predicted one and the probability given to that (0 to 1).

    `source` says where the text is from, e.g. the book; `label` None when the truth is unknown.
    """

    text: str
    predicted: str
    probability: float
    label: str | None = None
    source: str = ""


@dataclass(frozen=True)
class ClassifiedTexts:
    examples: Sequence[Classified]
    kind: Literal["classified"] = field(default="classified", init=False)


@dataclass(frozen=True)
class Segment:
    """A part of a text: plain, or marked by the true label or by the prediction."""

    text: str
    side: Literal["", "true", "predicted"] = ""
    label: str = ""


@dataclass(frozen=True)
class Judged:
    """An example with its true label and what was predicted.

    Attributes:
        lines: its texts, each with a word before it ("" for none) and in segments.
        label, answer: true and predicted.
        loss: as text.
        place: where it is: file and line.
        label_probability: what the model gives the true label, 0 to 1; None where not known.
        marked: whether the texts have marks that show label and answer.
    """

    lines: Sequence[tuple[str, Sequence[Segment]]]
    label: str
    answer: str
    loss: str
    place: str = ""
    label_probability: float | None = None
    marked: bool = False


@dataclass(frozen=True)
class JudgedExamples:
    examples: Sequence[Judged]
    kind: Literal["judged"] = field(default="judged", init=False)


Block = (
    Facts
    | Note
    | Figures
    | Table
    | Heat
    | FilledMasks
    | MaskHistories
    | ClassifiedTexts
    | JudgedExamples
)


@dataclass(frozen=True)
class Section:
    """A part of the report. `lead` is one paragraph that says what is seen here."""

    title: str
    blocks: Sequence[Block] = ()
    lead: str = ""


@dataclass(frozen=True)
class Report:
    """A whole report.

    Attributes:
        title: one line.
        lead: a paragraph: the result in words.
        headline: the few numbers that matter most, set large.
        sections: in their order.
        footer: how it was made: version, seed, command.
    """

    title: str
    lead: str = ""
    headline: Sequence[Fact] = ()
    sections: Sequence[Section] = ()
    footer: str = ""


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%"


def _width(share: float) -> str:
    """A share as a CSS length."""
    return f"{100 * min(1.0, max(0.0, share)):.1f}%"


def _anchor(index: int) -> str:
    return f"section-{index}"


def report_html(report: Report) -> str:
    """The report as an HTML page."""
    environment = Environment(
        loader=PackageLoader("bertine.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "width": _width, "anchor": _anchor}
    return environment.get_template("report.html.j2").render(report=report)


def render_report(out: Path, report: Report) -> None:
    """Write the report to `out`, atomically, as one file that needs no other.

    Raises:
        BertineError: `out` cannot be written.
    """
    # A lone surrogate (half of a broken character) has no UTF-8 form and becomes "?".
    page = report_html(report).encode("utf-8", errors="replace")
    with atomic_file(out) as temporary:
        temporary.write_bytes(page)
