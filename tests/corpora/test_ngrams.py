"""Runs of tokens that are chosen together, against the paper's formula and the published code's
steps."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

import toys
from bertine.corpora.collators import choose_runs, mask_tokens

from .conftest import MakeStore
from .test_masking import FIRST, MASK, RANDOM_IDS, batch, run, words


def chosen_of(
    choosable: np.ndarray, wanted: list[int], ngrams: int, seed: int = 0, continues=None
) -> np.ndarray:
    """Return the chosen places of a batch as bool [B, T]."""
    order = np.random.default_rng(seed).integers(1 << 63, size=choosable.shape, dtype=np.uint64)
    places = choose_runs(order, choosable, continues, np.array(wanted), ngrams)
    chosen = np.zeros(choosable.size, np.bool_)
    chosen[places] = True
    assert chosen.sum() == len(places)
    return chosen.reshape(choosable.shape)


def runs(chosen: np.ndarray) -> list[int]:
    """Return the lengths of the stretches of neighbours that were chosen."""
    edges = np.diff(np.pad(chosen.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    starts, ends = (np.argwhere(edges == sign) for sign in (1, -1))
    return (ends - starts)[:, 1].tolist()


@pytest.mark.parametrize("ngrams", [2, 3, 5])
def test_a_run_of_n_comes_with_a_probability_proportional_to_one_over_n(ngrams: int):
    # Of so long a text that runs hardly ever touch, or have to be shorter at the end.
    choosable = np.ones((100, 20_000), np.bool_)
    lengths = np.bincount(runs(chosen_of(choosable, [200] * 100, ngrams)), minlength=ngrams + 1)
    shares = 1 / np.arange(1, ngrams + 1)
    shares /= shares.sum()
    measured = lengths[1 : ngrams + 1] / lengths.sum()
    assert np.abs(measured - shares).max() < 0.02


def published(length: int, wanted: int, ngrams: int, rng: np.random.Generator) -> np.ndarray:
    """Choose as the published code does, token by token, in one sequence."""
    places = list(range(length))
    rng.shuffle(places)
    chosen = np.zeros(length, np.bool_)
    for place in places:
        most = min(ngrams, length - place)
        shares = 1 / np.arange(1, most + 1)
        size = int(rng.choice(np.arange(1, most + 1), p=shares / shares.sum()))
        size = min(size, wanted - int(chosen.sum()))
        if size and not chosen[place : place + size].any():
            chosen[place : place + size] = True
    return chosen


@pytest.mark.slow
def test_lengths_are_those_of_the_published_code():
    rng = np.random.default_rng(0)
    theirs = np.array([published(64, 10, 3, rng) for _ in range(3000)])
    ours = chosen_of(np.ones((3000, 64), np.bool_), [10] * 3000, 3)
    counts = [np.bincount(np.minimum(runs(each), 6), minlength=7)[1:] for each in (theirs, ours)]
    assert chi2_contingency(np.array(counts)).pvalue > 1e-4
    assert chisquare(ours.sum(0), theirs.sum(0) * ours.sum() / theirs.sum()).pvalue > 1e-4


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 90), min_size=1, max_size=8),
    share=st.floats(0.05, 0.95),
    ngrams=st.integers(2, 10),
    seed=st.integers(0, 1000),
)
def test_as_many_tokens_are_chosen_as_one_by_one(lengths, share, ngrams, seed):
    counts = []
    for most in (1, ngrams):
        _, choosable, masked = run(lengths, seed, masked_lm_prob=share, ngrams=most)
        assert choosable.reshape(-1)[masked.positions].all()
        assert (np.diff(masked.positions) > 0).all()
        counts.append(np.bincount(masked.positions // max(lengths), minlength=len(lengths)))
    assert np.array_equal(*counts)


def test_runs_do_not_go_over_special_tokens():
    # Segments of one token between special ones: no run is longer.
    choosable = np.tile([False, True], (50, 40))
    assert set(runs(chosen_of(choosable, [10] * 50, 3))) == {1}


def test_runs_are_of_whole_words_and_never_more_than_asked_for():
    continues = words(40, 100)
    choosable = np.ones((40, 100), np.bool_)
    choosable[:, [0, 50, 99]] = False
    chosen = chosen_of(choosable, [15] * 40, 3, continues=continues)
    assert (chosen.sum(1) <= 15).all()
    assert chosen.sum() > 0.95 * 15 * 40
    inside = continues[:, 1:] & choosable[:, 1:] & choosable[:, :-1]
    assert (chosen[:, 1:] == chosen[:, :-1])[inside].all()
    assert (
        Counter(runs(chosen)).total()
        < Counter(runs(chosen_of(choosable, [15] * 40, 1, continues=continues))).total()
    )


def test_one_is_what_there_was_before():
    ids, sizes, choosable = batch([64] * 8)
    arguments = {"mask_token_id": MASK, "random_ids": RANDOM_IDS}
    one, other = (
        mask_tokens(ids, sizes, choosable, np.random.default_rng(3), **arguments, **more)
        for more in ({}, {"ngrams": 1})
    )
    assert np.array_equal(one.input_ids, other.input_ids)
    assert one.labels.min() >= FIRST


@pytest.mark.parametrize("input_format", ["full-sentences", "segment-pair", "sentence-order"])
def test_batches_have_runs_and_static_ones_come_again(make_store: MakeStore, input_format: str):
    store, tokenizer = make_store([[9, 8, 7] * 40] * 6)
    options = {"input_format": input_format, "max_seq_length": 64, "batch_size": 16, "ngrams": 3}
    dynamic = toys.instances_of(store, tokenizer, **options)
    one, again, other = dynamic.batch(0), dynamic.batch(0), dynamic.batch(1)
    assert one.targets["mlm_positions"].tolist() == again.targets["mlm_positions"].tolist()
    assert one.targets["mlm_positions"].tolist() != other.targets["mlm_positions"].tolist()
    single = toys.instances_of(store, tokenizer, **{**options, "ngrams": 1}).batch(0)
    neighbours = [int((made.targets["mlm_positions"].diff() == 1).sum()) for made in (single, one)]
    assert neighbours[1] > 1.5 * neighbours[0]

    static = toys.instances_of(store, tokenizer, masking="static", dupe_factor=2, **options)
    period = 2 * static.instances_per_epoch
    begin = next(step for step in range(1, 999) if step * 16 % period == 0)
    for name, values in static.batch(0).targets.items():
        assert values.tolist() == static.batch(begin).targets[name].tolist()
