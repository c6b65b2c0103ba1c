"""A labelled example that is near to a text, as people and programs read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bertine.terminal.console import visible


@dataclass(frozen=True, slots=True)
class NearExample:
    """A labelled example that is near to a text.

    Attributes:
        label: its label as people read it.
        similarity: the cosine of its vector and that of the text, at most 1.
        texts: of the example, each at most 200 characters.
        file: that holds it; "" where it was not read from one.
        line: of the file, from 1 on; 0 where it is not known.
    """

    label: str
    similarity: float
    texts: tuple[str, ...]
    file: str
    line: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "label": self.label,
            "similarity": round(self.similarity, 6),
            "texts": list(self.texts),
            "file": self.file,
            "line": self.line,
        }

    def cells(self) -> tuple[str, str, str]:
        """Return similarity, label and texts for a terminal."""
        text = visible(" / ".join(self.texts))
        return f"{self.similarity:.2f}", visible(self.label), text
