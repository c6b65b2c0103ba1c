"""What word2vec draws: the words that stay, the windows around them, the negatives.

Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality",
sections 2.2 and 2.3; where the published program (word2vec.c) differs, it is followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bertine.rng import generator

#: Stands between documents, in place of a word.
BREAK = -1
#: Words that are drawn for at once; windows do not go beyond.
BLOCK = 1 << 18


def keep_probabilities(counts: np.ndarray, threshold: float) -> np.ndarray:
    """Compute the probability fp64 [V] that an occurrence of each word stays: with f its share of
    all words and t the threshold, ``(sqrt(f / t) + 1) * t / f``, at most 1 (word2vec.c; the paper
    has ``sqrt(t / f)``). A threshold of 0 keeps all."""
    if not threshold:
        return np.ones(len(counts))
    share = counts / counts.sum()
    return np.minimum(1.0, (np.sqrt(share / threshold) + 1) * threshold / share)


def negative_probabilities(counts: np.ndarray, exponent: float) -> np.ndarray:
    """Compute the distribution fp64 [V] of negatives: counts to the power `exponent`, 0.75 in the
    paper."""
    weights = counts.astype(np.float64) ** exponent
    return weights / weights.sum()


@dataclass(frozen=True)
class BlockDraws:
    """What was drawn for a block of text.

    Attributes:
        words: int64 [n], those that stay, and `BREAK` between documents.
        windows: int64 [n], words to each side, evenly from 1 to the largest.
        negatives: int64 [chunks, N], by their distribution.
    """

    words: np.ndarray
    windows: np.ndarray
    negatives: np.ndarray


@dataclass(frozen=True)
class Sampler:
    """The source of all that is drawn, by seed, epoch and block.

    Attributes:
        keep: fp64 [V], see :func:`keep_probabilities`.
        negatives: fp64 [V], see :func:`negative_probabilities`.
        window: words to each side, at most.
        chunk: words that share their negatives.
        shared: N, negatives of a chunk.
        seed: of the run.
    """

    keep: np.ndarray
    negatives: np.ndarray
    window: int
    chunk: int
    shared: int
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_upto", np.cumsum(self.negatives))
        object.__setattr__(self, "_kept", np.append(self.keep, 1.0))  # BREAK, the last, stays

    def draw(self, ids: np.ndarray, epoch: int, block: int) -> BlockDraws:
        """Draw for the block number `block` of an epoch, whose words are `ids` int32 [n]."""
        draws = generator(self.seed, "word2vec", epoch, block)
        words = ids[draws.random(len(ids)) < self._kept[ids]].astype(np.int64)  # type: ignore[attr-defined]
        windows = draws.integers(1, self.window + 1, len(words))
        chunks = -(-len(words) // self.chunk)
        places = draws.random((chunks, self.shared))
        upto = self._upto  # type: ignore[attr-defined]
        negatives = np.searchsorted(upto, places * upto[-1], side="right")
        return BlockDraws(words, windows, np.minimum(negatives, len(upto) - 1))


def blocks(ids: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the parts of a text's `ids` that are drawn for at once, by number."""
    for number, start in enumerate(range(0, len(ids), BLOCK)):
        yield number, np.asarray(ids[start : start + BLOCK])
