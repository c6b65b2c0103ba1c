"""Say how close vectors are to others of the same texts: their cosines, lowest and percentiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cosines:
    """The cosines of pairs of vectors.

    Attributes:
        count: how many pairs were compared.
        lowest: of all cosines.
        percent_1, percent_5: one in a hundred, and one in twenty, is lower.
        median: half of them are lower.
    """

    count: int
    lowest: float
    percent_1: float
    percent_5: float
    median: float

    @classmethod
    def between(cls, ours: np.ndarray, theirs: np.ndarray) -> Cosines:
        """Compute the cosines of the rows of `ours` and `theirs`, [N, D] each, N at least 1."""
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines = (a * b).sum(1) / np.where(norms > 0, norms, 1.0)
        lowest, one, five, half = np.percentile(cosines, [0, 1, 5, 50]).tolist()
        return cls(len(cosines), lowest, one, five, half)

    def text(self) -> str:
        """Say it in words: "lowest 0.987, 1% below 0.990, 5% below 0.991, median 0.995"."""
        return (
            f"lowest {self.lowest:.4f}, 1% below {self.percent_1:.4f}, 5% below "
            f"{self.percent_5:.4f}, median {self.median:.4f}"
        )
