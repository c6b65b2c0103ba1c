"""Counts and warnings of a model's pass over a file of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bertine.tables.lines import first_numbers
from bertine.tasks.features import Features, cut_at
from bertine.tasks.unknown_text import UnknownText
from bertine.terminal.console import human_time
from bertine.terminal.shown import Shown

#: Lines of empty texts that are kept, to be named.
_LINES = 100


@dataclass(repr=False)
class TextReport(Shown):
    """The counts of every verb over a file of texts.

    Attributes:
        rows: of the file that the model has seen.
        cut: rows of which something was longer than the model's maximum length.
        pieces_lost: pieces cut off from them.
        empty: rows without any text.
        half_empty: pairs that lack one of their texts; they were computed all the same.
        abstained: rows whose answer was left open.
        seconds: of wall time.
        max_length: of what is cut, in pieces.
        cut_texts: what is cut: the texts, or of spans the questions.
        unit: what lengths are counted in, "piece" or "word".
        unknown: counts what the vocabulary does not know; None: nothing does.
        notes: what was mended in the input.
        of_empty: what empty texts have, or how they are treated.
    """

    rows: int = 0
    cut: int = 0
    pieces_lost: int = 0
    empty: int = 0
    half_empty: int = 0
    abstained: int = 0
    seconds: float = 0.0
    max_length: int = 0
    cut_texts: str = "texts"
    unit: str = "piece"
    unknown: UnknownText | None = None
    notes: list[str] = field(default_factory=list)
    of_empty: str = "have no answer"
    empty_lines: list[int] = field(default_factory=list)

    def count_empty(self, lines: Iterable[int]) -> None:
        """Count the rows without any text, which stand in these lines."""
        numbers = list(lines)
        self.empty += len(numbers)
        self.empty_lines += numbers[: _LINES - len(self.empty_lines)]

    def count(
        self,
        rows: int,
        features: Sequence[Features],
        texts: Sequence[str | Sequence[str]] = (),
        lines: Iterable[int] | None = None,
    ) -> None:
        """Count so many rows, of which `features` were made, one or more of each, and their
        `texts`, which stand in `lines`."""
        self.rows += rows
        # The choices of one row are features of their own.
        self.cut += len({feature.row for feature in features if feature.num_truncated})
        self.pieces_lost += sum(feature.num_truncated for feature in features)
        if self.unknown is not None:
            self.unknown.count(features, texts, lines)

    def warnings(self) -> list[str]:
        """Return a line each for what is unknown, what was cut and what is empty, then the
        notes."""
        lines = [] if self.unknown is None else self.unknown.lines_for_answers()
        if self.cut:
            lines.append(
                f"{self.cut} of {self.rows} "
                + cut_at(self.max_length, self.pieces_lost, self.cut_texts, self.unit)
            )
        if self.empty:
            what = "line" if self.empty == 1 else "lines"
            where = ""
            if self.empty_lines:
                where = f" ({first_numbers(self.empty_lines, self.empty, what)})"
            lines.append(f"{self.empty} of {self.rows} texts are empty{where} and {self.of_empty}")
        if self.half_empty:
            lines.append(f"{self.half_empty} of {self.rows} pairs lack one of their texts")
        if self.abstained:
            share = self.abstained / max(1, self.rows)
            lines.append(
                f"{self.abstained} of {self.rows} have no answer ({share:.1%}): the probability of "
                "the best one is too low"
            )
        return lines + self.notes


def pace(count: int, seconds: float, unit: str = "") -> str:
    """Return "in 2.0 s (40 a second)", or with a `unit` "(40 words a second)"."""
    rate = count / seconds if seconds else 0.0
    return f"in {human_time(seconds)} ({rate:.0f} {unit + ' ' if unit else ''}a second)"
