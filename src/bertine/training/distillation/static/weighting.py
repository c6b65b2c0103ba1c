"""Weights of pieces: the frequent ones say little of what a text is about.

The smooth inverse frequency of Arora et al. 2017 ("A Simple but Tough-to-Beat Baseline for Sentence
Embeddings", section 3): a / (a + p), p being the probability of the piece. Where frequencies are
not known they are guessed by the rank in the vocabulary (Zipf), as model2vec does: vocabularies
begin with what is frequent.

Shape legend: V pieces of the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from bertine.text.pieces import bare

_UNUSED = re.compile(r"\[unused\d+\]")


def ranked_pieces(tokens: Sequence[str], special_ids: Collection[int]) -> np.ndarray:
    """Return the ids int64 [n] of pieces from the most frequent on, as their places let one guess.

    Special tokens and BERT's ``[unused7]`` are left out: no text has them. Single characters that
    are not ASCII come last: vocabularies hold them all at the beginning, however rare they are.
    """
    own = [
        row
        for row, token in enumerate(tokens)
        if row not in special_ids and not _UNUSED.fullmatch(token)
    ]
    rare = [len(bare(tokens[row])) == 1 and not tokens[row].isascii() for row in own]
    order = np.array(own, np.int64)
    last = np.array(rare, bool)
    return np.concatenate([order[~last], order[last]])


def rank_probabilities(count: int) -> np.ndarray:
    """Return fp64 [V]: in proportion to 1 / rank, from rank 2 on, of `count` pieces."""
    shares = 1.0 / np.arange(2, count + 2)
    guessed: np.ndarray = shares / shares.sum()
    return guessed


def counted_probabilities(counts: np.ndarray) -> np.ndarray:
    """Return fp64 [V]: the share of each piece among all that were counted (int64 [V])."""
    shares: np.ndarray = counts / max(1, int(counts.sum()))
    return shares


def smooth_inverse(probabilities: np.ndarray, coefficient: float) -> np.ndarray:
    """Return fp32 [V]: coefficient / (coefficient + probability)."""
    weights = coefficient / (coefficient + probabilities)
    return np.asarray(weights, dtype=np.float32)
