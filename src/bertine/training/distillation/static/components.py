"""Principal components of vectors, and what of them each keeps.

Shape legend: N vectors, H numbers of each, D components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Vectors that are taken into 64 bits at once.
_ROWS = 1 << 14


@dataclass(frozen=True)
class Components:
    """Directions in which vectors differ most, best first.

    Attributes:
        mean: fp32 [H], of the vectors.
        directions: fp32 [H, D], at right angles, each of length 1.
        explained: the share of the vectors' variance that they keep, 0 to 1.
    """

    mean: np.ndarray
    directions: np.ndarray
    explained: float

    @classmethod
    def of(cls, vectors: np.ndarray, dimensions: int) -> Components:
        """Find the `dimensions` first components of `vectors` fp32 [N, H]; at most H."""
        mean = vectors.mean(0, dtype=np.float64)
        width = vectors.shape[1]
        covariance = np.zeros((width, width))
        for start in range(0, len(vectors), _ROWS):
            part = vectors[start : start + _ROWS].astype(np.float64) - mean
            covariance += part.T @ part
        values, directions = np.linalg.eigh(covariance)
        values, directions = np.clip(values[::-1], 0, None), directions[:, ::-1]
        kept = directions[:, : min(dimensions, width)]
        # Signs mean nothing; these make them the same on each machine.
        largest = kept[np.abs(kept).argmax(0), np.arange(kept.shape[1])]
        kept = kept * np.where(largest < 0, -1.0, 1.0)
        total = float(values.sum())
        explained = float(values[: kept.shape[1]].sum()) / total if total else 1.0
        return cls(mean.astype(np.float32), kept.astype(np.float32), explained)

    def __call__(self, vectors: np.ndarray, mean: np.ndarray | None = None) -> np.ndarray:
        """Return the components fp32 [N, D] of `vectors` fp32 [N, H], less their own `mean` where
        one is given."""
        shift = self.mean if mean is None else mean
        result: np.ndarray = (vectors - shift) @ self.directions
        return result
