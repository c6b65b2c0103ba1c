"""Sampled words: how often they come, and the loss that is corrected for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertine.contrib.elmo.model import ElmoConfig, SampledWords, WordSoftmax, sample_words


@pytest.mark.slow
def test_words_come_as_often_as_the_log_uniform_distribution_says() -> None:
    size, count = 60, 8
    drawn = [sample_words(size, count, 7, number) for number in range(4000)]
    ids = np.array([sample.ids.numpy() for sample in drawn])
    assert all(len(set(row.tolist())) == count for row in ids)
    assert ids.min() == 0
    assert ids.max() == size - 1
    seen = np.bincount(ids.ravel(), minlength=size) / len(drawn)
    # The words drawn first are drawn with the distribution's own shares.
    first = np.bincount(ids[:, 0], minlength=size) / len(drawn)
    shares = np.log1p(1 / (np.arange(size) + 1)) / math.log(size + 1)
    assert abs(shares.sum() - 1) < 1e-9
    assert np.abs(first - shares).max() < 4 * math.sqrt(0.25 / len(drawn))
    # What the loss takes off is how often a word is in a sample.
    everyone = torch.arange(size)
    expected = np.mean([sample.log_expected(everyone).exp().numpy() for sample in drawn], axis=0)
    assert np.abs(seen - expected).max() < 0.02


def test_the_same_place_gives_the_same_words() -> None:
    first, again, other = (sample_words(500, 50, 1, step) for step in (3, 3, 4))
    assert torch.equal(first.ids, again.ids)
    assert first.tries == again.tries
    assert not torch.equal(first.ids, other.ids)


def test_the_sampled_loss_is_the_formulas() -> None:
    torch.manual_seed(0)
    softmax = WordSoftmax(ElmoConfig(projection_size=5, vocab_size=30))
    torch.nn.init.normal_(softmax.bias)
    states, targets = torch.randn(6, 5), torch.tensor([0, 29, 3, 3, 12, 7])
    sampled = SampledWords(torch.tensor([3, 0, 8, 21]), 5, 30)
    share = [math.log((r + 2) / (r + 1)) / math.log(31) for r in range(30)]
    expected = 0.0
    for state, target in zip(states, targets.tolist(), strict=True):
        words = [target, *(w for w in sampled.ids.tolist() if w != target)]
        scores = [
            float((state @ softmax.weight[w] + softmax.bias[w]).detach())
            - math.log(1 - (1 - share[w]) ** 5)
            for w in words
        ]
        expected += math.log(sum(math.exp(score - scores[0]) for score in scores))
    found = softmax.sampled_loss(states, targets, sampled)
    assert abs(float(found.detach()) - expected) < 1e-4


def test_sampling_all_words_is_nearly_the_full_softmax() -> None:
    """With all words in the sample every correction is the same, that of having come."""
    torch.manual_seed(1)
    softmax = WordSoftmax(ElmoConfig(projection_size=5, vocab_size=12))
    states, targets = torch.randn(20, 5), torch.randint(0, 12, (20,))
    sampled = SampledWords(torch.arange(12), 10**7, 12)
    full = softmax.full_loss(states, targets)
    torch.testing.assert_close(softmax.sampled_loss(states, targets, sampled), full)
    right = F.cross_entropy(states @ softmax.weight.T + softmax.bias, targets, reduction="sum")
    torch.testing.assert_close(full, right)
