"""Compare what a document shows with what a program prints.

A line ``…`` in the document stands for any number of lines, ``…`` in a line for any text. Spaces
count as one. Durations and rates are ignored. Whole numbers must be equal; numbers with a decimal
point or a percent sign may be off by a share that the document names (``within=20%``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_UNIT = r"(?:ms|s|seconds?|min|minutes?|h|hours?)\b"
_DURATION = re.compile(rf"(?<![\w.])(?:\d+(?::\d\d)+|{_NUMBER} ?{_UNIT}(?: {_NUMBER} ?{_UNIT})*)")
_RATE = re.compile(
    rf"{_NUMBER}k? (?:[\w-]+ )?(?:\w+/s\b|(?:per|a) second\b)|{_NUMBER}k?/s\b|\w+/s {_NUMBER}k?"
)
_INEXACT = re.compile(r"-?\d[\d,]*(?:\.\d+(?:e[-+]?\d+)?%?|%)")


@dataclass(frozen=True)
class _Line:
    """A line's text, with a mark in the place of each inexact number, and these numbers."""

    text: str
    numbers: tuple[float, ...]

    @classmethod
    def read(cls, line: str) -> _Line:
        line = " ".join(line.split())
        line = _DURATION.sub("<time>", _RATE.sub("<rate>", line))
        numbers = [match.strip("%").replace(",", "") for match in _INEXACT.findall(line)]
        return cls(_INEXACT.sub("<number>", line), tuple(map(float, numbers)))

    def shows(self, printed: _Line, within: float) -> bool:
        """Whether this line of a document shows a line that was printed."""
        pattern = ".*".join(map(re.escape, self.text.split("…")))
        if not re.fullmatch(pattern, printed.text):
            return False
        if "…" in self.text:  # which number belongs to which is not known: each must occur
            return all(any(_near(a, b, within) for b in printed.numbers) for a in self.numbers)
        return all(map(lambda a, b: _near(a, b, within), self.numbers, printed.numbers))


def _near(a: float, b: float, within: float) -> bool:
    return abs(a - b) <= within * max(abs(a), abs(b)) + 1e-9


def difference(shown: str, printed: str, within: float) -> str | None:
    """The first line of the document that was not printed in its place; None: there is none."""
    lines = [_Line.read(line) for line in printed.splitlines() if line.strip()]
    reached = {0}  # how many printed lines may be used up
    for line in filter(str.strip, shown.splitlines()):
        if line.strip() == "…":
            reached = set(range(min(reached), len(lines) + 1))
            continue
        wanted = _Line.read(line)
        after = {n + 1 for n in reached if n < len(lines) and wanted.shows(lines[n], within)}
        if not after:
            return line
        reached = after
    return None if len(lines) in reached else "the end: more was printed than is shown"
