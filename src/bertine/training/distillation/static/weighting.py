"""Weights of pieces: the frequent ones say little of what a text is about.

The smooth inverse frequency of Arora et al. 2017 ("A Simple but Tough-to-Beat Baseline for Sentence
Embeddings", section 3): a / (a + p), p being the probability of the piece. Where frequencies are
not known they are guessed by the rank in the vocabulary (Zipf), as model2vec does: vocabularies
begin with what is frequent.

Shape legend: V pieces of the vocabulary.
"""

from __future__ import annotations

import numpy as np


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
