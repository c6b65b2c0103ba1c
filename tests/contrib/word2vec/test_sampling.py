"""What is drawn has the frequencies that the paper and the program say."""

from __future__ import annotations

import numpy as np
import pytest

from bertine.contrib.word2vec.train import (
    BREAK,
    Sampler,
    keep_probabilities,
    negative_probabilities,
)

COUNTS = np.array([50_000, 9_000, 900, 90, 10])


def sampler(seed: int = 0, window: int = 5) -> Sampler:
    keep = keep_probabilities(COUNTS, 1e-3)
    return Sampler(keep, negative_probabilities(COUNTS, 0.75), window, 32, 64, seed)


def text(length: int = 200_000) -> np.ndarray:
    share = COUNTS / COUNTS.sum()
    ids = np.random.default_rng(1).choice(len(COUNTS), length, p=share).astype(np.int32)
    ids[::1000] = BREAK
    return ids


def test_negatives_come_by_their_counts_to_the_three_quarters() -> None:
    drawn = sampler().draw(text(), 0, 0).negatives
    expected = [count**0.75 for count in COUNTS.tolist()]
    expected = [each / sum(expected) for each in expected]
    seen = np.bincount(drawn.ravel(), minlength=len(COUNTS)) / drawn.size
    errors = np.sqrt(np.array(expected) / drawn.size)
    assert drawn.size > 10_000
    assert (np.abs(seen - expected) < 4 * errors).all()


def test_frequent_words_are_left_out_by_the_programs_formula() -> None:
    ids = text()
    kept = np.bincount(sampler().draw(ids, 0, 0).words + 1, minlength=6)
    before = np.bincount(ids + 1, minlength=6)
    assert kept[0] == before[0]  # the ends of documents stay
    for word, count in enumerate(COUNTS.tolist()):
        share = count / COUNTS.sum()
        expected = min(1.0, ((share / 1e-3) ** 0.5 + 1) * 1e-3 / share)
        error = (expected * (1 - expected) / before[word + 1]) ** 0.5
        assert abs(kept[word + 1] / before[word + 1] - expected) <= 4 * error
    assert keep_probabilities(COUNTS, 0).tolist() == [1] * 5


def test_every_window_is_as_likely() -> None:
    windows = sampler(window=4).draw(text(), 0, 0).windows
    assert len(windows) > 5_000
    seen = np.bincount(windows) / len(windows)
    assert seen[0] == 0
    assert seen[1:] == pytest.approx([0.25] * 4, abs=0.025)


def test_draws_depend_on_where_alone() -> None:
    first, again = sampler().draw(text(), 1, 2), sampler().draw(text(), 1, 2)
    assert np.array_equal(first.words, again.words)
    assert np.array_equal(first.negatives, again.negatives)
    for other in (sampler(1).draw(text(), 1, 2), sampler().draw(text(), 0, 2)):
        assert not np.array_equal(first.windows[:1000], other.windows[:1000])
