"""Hold what ``export`` returns, for people to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bertine.terminal.shown import Shown

if TYPE_CHECKING:  # with PyTorch, which is loaded when the arguments are seen to be right
    from bertine.inference.export_scores import GraphScores
    from bertine.interop.export_check import Difference


@dataclass(repr=False)
class ExportReport(Shown):
    """The result of an export.

    Attributes:
        output: the folder.
        what: what the graph gives, in words.
        differences: against PyTorch in fp32, by file.
        sizes: bytes, by file.
        vectors: whether it gives vectors, not logits.
        scores: of model and graphs, where labelled examples were given, by set of them.
        notes: what else a person should know.
    """

    output: Path
    what: str
    differences: dict[str, Difference] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    vectors: bool = False
    scores: list[GraphScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """List what the command prints."""
        lines = [f"exported to {self.output}: {self.what}"]
        for name, difference in self.differences.items():
            size = self.sizes[name] / 1e6
            lines.append(f"{name}: {size:.1f} MB; {difference.text(self.vectors)}")
        for scores in self.scores:
            lines += scores.lines()
        return lines + self.notes
