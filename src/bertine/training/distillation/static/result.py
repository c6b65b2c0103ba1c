"""The result of making a table of static vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertine.inference.static_vectors.embedder import StaticEmbedder
from bertine.names import StaticPrecision
from bertine.terminal.console import counted, human_bytes, human_time
from bertine.terminal.shown import Shown
from bertine.training.distillation.static.fitting import Fitted


@dataclass(frozen=True, repr=False)
class StaticResult(Shown):
    """A table of static vectors, and what its making came to.

    Attributes:
        out: its folder.
        embedder: the table as it was read again from there.
        explained: the share of the variance that the principal components keep, 0 to 1.
        explained_of: what varied: "pieces" or "texts".
        weights: what the pieces were weighted by, in words.
        texts: of DATA; 0: there are none.
        fitted: what learning from the teacher came to; None: it did not learn.
        words_added: words of DATA with a vector of their own.
        precision: of the numbers in the file.
        times_as_fast: as the teacher, on the same texts in turns; None: there were none.
        seconds: of all.
        notes: what was cut, left out or mended.
    """

    out: Path
    embedder: StaticEmbedder
    explained: float
    explained_of: str
    weights: str
    texts: int
    fitted: Fitted | None
    words_added: int
    precision: StaticPrecision
    times_as_fast: float | None
    seconds: float
    notes: Sequence[str] = field(default_factory=list)

    def embed(self, texts: Sequence[str] | str) -> np.ndarray:
        """Compute the vector of each text, fp32 [N, D]; of one string fp32 [D]."""
        return self.embedder.embed(texts)

    def lines(self) -> list[str]:
        """Return what the command prints at the end."""
        table = self.embedder.table
        size = sum(each.stat().st_size for each in self.out.iterdir() if each.is_file())
        lines = [
            f"{counted(table.pieces, 'piece')}, vectors of {table.dimensions} numbers, which keep "
            f"{self.explained:.1%} of the variance of the teacher's vectors of "
            f"{self.explained_of}; {self.weights}"
        ]
        if self.words_added:
            lines.append(f"{counted(self.words_added, 'word')} with a vector of their own")
        if self.fitted is not None:
            lines.append(
                f"cosine with the teacher's vectors of {counted(self.fitted.held_out, 'text')} "
                f"held out: {self.fitted.before:.3f}, and {self.fitted.after:.3f} after learning "
                f"({counted(self.fitted.epochs, 'epoch')})"
            )
        lines += self.notes
        if self.times_as_fast is not None:
            lines.append(f"{self.times_as_fast:.0f} times as fast as the teacher")
        return [
            *lines,
            f"made in {human_time(self.seconds)}; {human_bytes(size)} in {self.out}",
        ]

    def next_lines(self) -> list[str]:
        """Return what may be run next."""
        return [
            "next:",
            f"  bertine embed {self.out} --input texts.txt --output vectors.npy",
            f"  bertine serve {self.out}",
        ]
