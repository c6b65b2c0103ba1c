from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from bertine.core.rng import Permutation, generator, key


def test_a_generator_depends_on_seed_and_place_only():
    first = generator(7, "masking", 3).random(4)
    np.random.seed(0)
    generator(7, "masking", 2).random(100)
    assert np.array_equal(generator(7, "masking", 3).random(4), first)
    for other in (generator(8, "masking", 3), generator(7, "pairs", 3), generator(7, "masking", 4)):
        assert not np.array_equal(other.random(4), first)


def test_keys_tell_apart_what_reads_alike():
    places = [(1, 2, 3), (12, 3), (1, 23), (1, "2", 3), (1, "2,3"), (1, "23"), (1, "a", "b")]
    assert len({key(*place) for place in places}) == len(places)


def test_keys_are_the_same_on_every_machine():
    # A changed key changes every batch of every run: it must never happen unnoticed.
    assert key(0, "segments") == 135860200508226254787860668800872224564
    assert generator(0, "masking", 1).integers(1000, size=4).tolist() == [714, 422, 104, 559]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(size=st.integers(1, 3000), seed=st.integers(0, 2**63), epoch=st.integers(0, 1000))
@example(size=Permutation.TABLE + 1, seed=0, epoch=0)
@example(size=4 * Permutation.TABLE, seed=0, epoch=0)
def test_a_permutation_has_every_index_once(size: int, seed: int, epoch: int):
    permutation = Permutation(size, seed, epoch)
    assert sorted(permutation[i] for i in range(size)) == list(range(size))


@given(size=st.integers(1, 2**60), data=st.data())
def test_a_permutation_of_any_size_stays_in_range_and_apart(size: int, data: st.DataObject):
    permutation = Permutation(size, 1)
    i = data.draw(st.integers(0, size - 1))
    j = data.draw(st.integers(0, size - 1))
    assert 0 <= permutation[i] < size
    assert (permutation[i] == permutation[j]) == (i == j)


def test_permutations_differ_between_seeds_and_epochs():
    orders = {
        tuple(Permutation(50, seed, epoch)[i] for i in range(50))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


@pytest.mark.slow
@pytest.mark.fast_cases(size=(5,))
@pytest.mark.parametrize("size", [2, 5, 16, 100])
def test_every_index_goes_anywhere_equally_often(size: int):
    places = [[Permutation(size, seed, "p")[i] for seed in range(4000)] for i in (0, size - 1)]
    for seen in places:
        assert chisquare(np.bincount(seen, minlength=size)).pvalue > 1e-4


@pytest.mark.slow
def test_every_part_of_a_large_range_goes_anywhere_equally_often():
    size = 1_000_003
    for index in (0, 1, size // 2, size - 1):
        seen = np.array([Permutation(size, seed, "p")[index] for seed in range(4000)])
        assert chisquare(np.bincount(seen * 20 // size, minlength=20)).pvalue > 1e-4


@pytest.mark.parametrize("size", [10_000, 40_000])
def test_neighbours_do_not_stay_together(size: int):
    permutation = Permutation(size, 0)
    order = np.array([permutation[i] for i in range(size)])
    for other in (order[1:], order[2:], np.arange(size)):
        assert abs(np.corrcoef(order[: len(other)], other)[0, 1]) < 4 / size**0.5


@pytest.mark.parametrize("index", [-1, 10])
def test_an_index_outside_is_an_error(index: int):
    with pytest.raises(IndexError):
        Permutation(10, 0)[index]


def test_nothing_cannot_be_permuted():
    with pytest.raises(ValueError, match="at least one"):
        Permutation(0, 0)
