"""Tokens are drawn from the softmax, by the numbers that are given and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertine.core.rng import generator
from bertine.families import electra
from bertine.families.electra import sample

#: A chi-square of n degrees of freedom is n with a standard deviation of sqrt(2 n); beyond five of
#: these one run in a million would be.
DEVIATIONS = 5.0


def uniform(count: int, *where: int) -> torch.Tensor:
    return torch.from_numpy(generator(0, "test draws", *where).random(count))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    """A chi-square over 200,000 draws; more words than a group has, and not a multiple of one."""
    words, count = 300, 200_000
    logits = 1.5 * torch.from_numpy(generator(1, "test logits").standard_normal(words)).float()
    drawn = sample(logits.expand(count, -1), uniform(count), temperature)
    expected = count * torch.softmax(logits.double() / temperature, -1).numpy()
    seen = np.bincount(drawn.numpy(), minlength=words)
    chi_square = float((np.square(seen - expected) / expected).sum())
    free = words - 1
    assert abs(chi_square - free) < DEVIATIONS * (2 * free) ** 0.5


def test_draws_follow_the_softmax_of_each_row() -> None:
    """Rows of different distributions, each drawn from once: the probability of what was drawn, as
    a running sum, is uniform."""
    count, words = 20_000, 130
    draw = generator(2, "test rows")
    logits = torch.from_numpy(draw.standard_normal((count, words)) * 3).float()
    drawn = sample(logits, uniform(count))
    sums = torch.softmax(logits.double(), -1).cumsum(-1)
    upper = sums.gather(1, drawn[:, None])[:, 0]
    lower = upper - torch.softmax(logits.double(), -1).gather(1, drawn[:, None])[:, 0]
    numbers = uniform(count)
    # The number that was given lies in the part of the drawn token.
    assert bool(((numbers > lower - 1e-6) & (numbers < upper + 1e-6)).all())


def test_a_draw_is_a_function_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    draws = uniform(64)
    whole = sample(logits, draws)
    monkeypatch.setattr(electra, "_BLOCK", 7000)
    assert torch.equal(sample(logits, draws), whole)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(sample(logits[order], draws[order]), whole[order])


def test_the_ends_are_drawn_and_nothing_beyond_them() -> None:
    """Words without probability are never drawn, nor rows of padding; at the ends of [0, 1) stand
    the first and the last word that has any."""
    logits = torch.full((4, 200), -torch.inf)
    logits[:, [3, 130, 197]] = 0.0
    drawn = sample(logits, torch.tensor([0.0, 0.34, 1 - 2.0**-53, 1.0], dtype=torch.float64))
    assert drawn.tolist() == [3, 130, 197, 197]
    assert sample(torch.empty(0, 5), torch.empty(0, dtype=torch.float64)).tolist() == []


def test_logits_stay_and_get_no_gradient() -> None:
    logits = torch.randn(8, 50, requires_grad=True)
    before = logits.detach().clone()
    assert not sample(logits, uniform(8)).requires_grad
    assert torch.equal(logits, before)
    half = sample(logits.detach().bfloat16(), uniform(8))
    assert half.dtype == torch.int64
