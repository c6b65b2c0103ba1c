"""Rarer words are masked more: the draw, against the probabilities that it is to have."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from bertine.corpora.collators import InstanceDraws, mask_tokens, rarer_first

COUNTS = np.array([0, 1, 4, 30, 400], dtype=np.int64)


def test_odds_are_those_of_the_published_code() -> None:
    """transformers, research_projects/distillation/train.py: ``np.maximum(counts, 1) ** -0.7``."""
    np.testing.assert_allclose(rarer_first(COUNTS, 0.7), np.maximum(COUNTS, 1.0) ** -0.7)
    np.testing.assert_array_equal(rarer_first(COUNTS, 0.0), np.ones(5))


def chosen(rng: np.random.Generator | InstanceDraws, rows: int, share: float) -> np.ndarray:
    """Which of five tokens are chosen, bool [rows, 5]; the last place may not be."""
    ids = np.tile(np.array([0, 1, 2, 3, 4, 4]), (rows, 1))
    choosable = np.ones(ids.shape, bool)
    choosable[:, 5] = False
    masked = mask_tokens(
        ids,
        np.full(rows, 6),
        choosable,
        rng,
        mask_token_id=9,
        random_ids=np.arange(5),
        odds=rarer_first(COUNTS, 0.7)[ids],
        masked_lm_prob=share,
    )
    hidden = np.zeros(ids.size, bool)
    hidden[masked.positions] = True
    return hidden.reshape(ids.shape)


@pytest.mark.parametrize("static", [False, True])
def test_tokens_are_drawn_one_after_the_other_by_their_odds(static: bool) -> None:
    """As ``torch.multinomial`` without replacement draws them: the share of each is the sum over
    the orders in which two are drawn."""
    rows = 60_000
    rng: np.random.Generator | InstanceDraws = np.random.default_rng(0)
    if static:
        words = np.random.default_rng(1).integers(1 << 64, size=(rows, 12), dtype=np.uint64)
        rng = InstanceDraws(words)
    odds = rarer_first(COUNTS, 0.7)
    expected = np.zeros(6)
    for a, b in permutations(range(5), 2):
        share = odds[a] / odds.sum() * odds[b] / (odds.sum() - odds[a])
        expected[[a, b]] += share
    hidden = chosen(rng, rows, 2 / 6)
    assert (hidden.sum(1) == 2).all()
    np.testing.assert_allclose(hidden.mean(0), expected, atol=4 * 0.5 / rows**0.5)
