"""A vector for each piece of a vocabulary, and the means of a text's pieces.

Shape legend: V pieces of the vocabulary, R rows of the table, D numbers of a vector, N texts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from bertine.errors import BertineError
from bertine.names import StaticPrecision

#: The numbers of a table in a file, by name.
DTYPES: dict[StaticPrecision, type[np.number]] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "int8": np.int8,
}


@dataclass(frozen=True)
class StaticTable:
    """A vector for each piece.

    Attributes:
        vectors: fp32 [R, D].
        mapping: int64 [V], the row of each piece; None: each has its own, and R is V.
        weights: fp32 [V], what the vector of each piece is multiplied by; None: nothing.
        unk_token_id: of the piece that counts for nothing; None: there is none.
    """

    vectors: np.ndarray
    mapping: np.ndarray | None = None
    weights: np.ndarray | None = None
    unk_token_id: int | None = None

    @property
    def pieces(self) -> int:
        """V, how many pieces have a vector."""
        return len(self.vectors if self.mapping is None else self.mapping)

    @property
    def dimensions(self) -> int:
        """D, the numbers of a vector."""
        return int(self.vectors.shape[1])

    def first(self, dimensions: int) -> StaticTable:
        """Return the table of so many of each vector's first numbers, which for vectors in the
        order of their principal components are those that vary most.

        Raises:
            BertineError: there are not so many.
        """
        if not 1 <= dimensions <= self.dimensions:
            raise BertineError(
                f"{dimensions} dimensions are asked for, but vectors have {self.dimensions}"
            )
        return replace(self, vectors=np.ascontiguousarray(self.vectors[:, :dimensions]))

    def means(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Compute the mean of the vectors of each text's pieces; pieces without one are left out.

        Args:
            ids: int [pieces], of one text after the other.
            lengths: int [N], how many pieces each text has.

        Returns:
            fp32 [N, D]; zeros for a text in which no piece has a vector.
        """
        known = ids < self.pieces
        if self.unk_token_id is not None:
            known &= ids != self.unk_token_id
        if not known.all():
            texts = np.repeat(np.arange(len(lengths)), lengths)
            lengths = np.bincount(texts[known], minlength=len(lengths))
            ids = ids[known]
        offsets = np.zeros(len(lengths), np.int64)
        np.cumsum(lengths[:-1], out=offsets[1:])
        pieces = torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64))
        rows = pieces if self.mapping is None else torch.from_numpy(self.mapping)[pieces]
        with torch.inference_mode():
            if self.weights is None:
                means = F.embedding_bag(
                    rows, torch.from_numpy(self.vectors), torch.from_numpy(offsets), mode="mean"
                )
                return np.asarray(means.numpy())
            sums = F.embedding_bag(
                rows,
                torch.from_numpy(self.vectors),
                torch.from_numpy(offsets),
                mode="sum",
                per_sample_weights=torch.from_numpy(self.weights)[pieces],
            ).numpy()
        return np.asarray(sums / np.maximum(lengths, 1)[:, None].astype(np.float32))

    def fingerprint(self) -> str:
        """Return the SHA-256 of the table, as hex digits."""
        digest = hashlib.sha256(np.ascontiguousarray(self.vectors).data)
        for part in (self.mapping, self.weights):
            digest.update(b"none" if part is None else np.ascontiguousarray(part).data)
        return digest.hexdigest()


def as_stored(vectors: np.ndarray, precision: StaticPrecision) -> np.ndarray:
    """Return vectors fp32 [R, D] in the numbers of a file. In int8 the largest number of the table
    becomes 127; the scale is not kept, as only directions count."""
    if precision == "int8":
        scale = float(np.abs(vectors).max()) / 127 or 1.0
        return np.rint(vectors / scale).astype(np.int8)
    return vectors.astype(DTYPES[precision])
