"""The chain over tags, against all sequences written out one by one."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from bertine.contrib.feature_based.bilstm import LinearChainCrf
from bertine.data.entities import may_follow

LABELS = ("O", "B-a", "I-a", "B-b", "I-b")
LENGTHS = (4, 1, 3)


def is_valid(tags: tuple[int, ...]) -> bool:
    """Whether an inside tag stands only behind a tag of its own entity."""
    names = ["O", *(LABELS[tag] for tag in tags)]
    pairs = pairwise(names)
    return all(after[0] != "I" or before[1:] == after[1:] for before, after in pairs)


@pytest.fixture
def crf() -> LinearChainCrf:
    torch.manual_seed(0)
    allowed = torch.tensor([[may_follow(a, b) for b in LABELS] for a in LABELS])
    chain = LinearChainCrf(allowed, torch.tensor([may_follow(None, b) for b in LABELS]))
    for parameter in chain.parameters():
        torch.nn.init.normal_(parameter)
    return chain


@pytest.fixture
def scores() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(len(LENGTHS), max(LENGTHS), len(LABELS)).mul_(2)


def written_out(crf: LinearChainCrf, scores: Tensor, tags: tuple[int, ...]) -> Tensor:
    """The score of one sequence, [W, K] being those of its words."""
    total = crf.begins[tags[0]] + crf.ends[tags[-1]]
    for place, tag in enumerate(tags):
        total = total + scores[place, tag]
    for before, after in pairwise(tags):
        total = total + crf.transitions[before, after]
    return total


def all_sequences(length: int) -> list[tuple[int, ...]]:
    return list(product(range(len(LABELS)), repeat=length))


def test_the_partition_is_the_sum_over_all_sequences(crf: LinearChainCrf, scores: Tensor) -> None:
    got = crf.log_partition(scores, torch.tensor(LENGTHS))
    for row, length in enumerate(LENGTHS):
        each = [written_out(crf, scores[row], tags) for tags in all_sequences(length)]
        torch.testing.assert_close(got[row], torch.logsumexp(torch.stack(each), 0))


def test_the_loss_is_that_of_the_sequence_and_so_are_its_gradients(
    crf: LinearChainCrf, scores: Tensor
) -> None:
    tags = torch.tensor([[0, 1, 2, 0], [3, 4, 4, 4], [2, 2, 0, 1]])  # beyond the lengths anything
    scores.requires_grad_()
    losses = crf.losses(scores, tags, torch.tensor(LENGTHS))
    wanted = []
    for row, length in enumerate(LENGTHS):
        each = [written_out(crf, scores[row], known) for known in all_sequences(length)]
        own = written_out(crf, scores[row], tuple(tags[row, :length].tolist()))
        wanted.append(torch.logsumexp(torch.stack(each), 0) - own)
    torch.testing.assert_close(losses, torch.stack(wanted))
    inputs = [scores, *crf.parameters()]
    ours = torch.autograd.grad(losses.sum(), inputs)
    theirs = torch.autograd.grad(torch.stack(wanted).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_answer_is_the_best_valid_sequence(crf: LinearChainCrf, scores: Tensor) -> None:
    crf.requires_grad_(False)
    best = crf.best(scores, torch.tensor(LENGTHS))
    bound = 0
    for row, length in enumerate(LENGTHS):
        order = sorted(
            all_sequences(length),
            key=lambda tags: -float(written_out(crf, scores[row], tags)),
        )
        bound += not is_valid(order[0])
        assert tuple(best[row]) == next(tags for tags in order if is_valid(tags))
    assert bound  # somewhere the rules say otherwise than the scores


def test_which_tag_may_follow_which() -> None:
    assert may_follow(None, "B-a")
    assert may_follow(None, "O")
    assert not may_follow(None, "I-a")
    assert may_follow("B-a", "I-a")
    assert may_follow("I-a", "I-a")
    assert not may_follow("O", "I-a")
    assert not may_follow("B-b", "I-a")
    assert may_follow("I-a", "B-a")
    assert may_follow("B", "I")
    # Plain tags have no rules, also where their names begin with the same letter.
    assert may_follow("NOUN", "IN")
    assert may_follow(None, "INTJ")
