from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from bertine.data.masking import check_masking, mask_tokens
from bertine.errors import BertineError

MASK, FIRST, VOCAB = 4, 5, 1000
RANDOM_IDS = np.arange(FIRST, VOCAB)


def batch(lengths: list[int], seed: int = 0):
    """Rows of ordinary ids with the first, the last and the padding not choosable."""
    sizes = np.array(lengths)
    rng = np.random.default_rng(seed)
    shape = (len(sizes), int(sizes.max()))
    column = np.arange(shape[1])
    choosable = (column > 0) & (column < sizes[:, None] - 1)
    ids = np.where(choosable, rng.integers(FIRST, VOCAB, size=shape), 0)
    return ids, sizes, choosable


def run(lengths: list[int], seed: int = 0, **options):
    ids, sizes, choosable = batch(lengths, seed)
    masked = mask_tokens(
        ids,
        sizes,
        choosable,
        np.random.default_rng(seed),
        mask_token_id=MASK,
        random_ids=RANDOM_IDS,
        **options,
    )
    return ids, choosable, masked


def test_as_many_are_chosen_as_in_the_published_code():
    lengths = [3, 4, 7, 10, 20, 50, 128, 127, 130, 200]
    _, _, masked = run(lengths)
    chosen = np.bincount(masked.positions // 200, minlength=len(lengths))
    assert chosen.tolist() == [
        min(20, max(1, round(length * 0.15)), length - 2) for length in lengths
    ]
    _, _, masked = run(lengths, max_predictions_per_seq=None)
    chosen = np.bincount(masked.positions // 200, minlength=len(lengths))
    assert chosen.tolist() == [max(1, round(length * 0.15)) for length in lengths]


def test_only_what_may_be_chosen_is_chosen_or_changed():
    for seed in range(20):
        ids, choosable, masked = run([3, 12, 40, 64], seed, masked_lm_prob=0.9)
        assert choosable.reshape(-1)[masked.positions].all()
        changed = np.flatnonzero(masked.input_ids != ids)
        assert np.isin(changed, masked.positions).all()
        assert np.array_equal(masked.labels, ids.reshape(-1)[masked.positions])
        assert (np.diff(masked.positions) > 0).all()


def test_a_sequence_with_nothing_to_choose_has_no_prediction():
    ids, _, masked = run([2, 2])
    assert masked.positions.size == masked.labels.size == 0
    assert np.array_equal(masked.input_ids, ids)


def test_the_input_is_left_as_it_was():
    ids, sizes, choosable = batch([64] * 4)
    before = ids.copy(), choosable.copy()
    mask_tokens(
        ids, sizes, choosable, np.random.default_rng(0), mask_token_id=4, random_ids=RANDOM_IDS
    )
    assert np.array_equal(ids, before[0])
    assert np.array_equal(choosable, before[1])


@pytest.mark.parametrize("split", [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5)])
def test_the_chosen_are_masked_swapped_and_kept_at_their_rates(split):
    _, _, masked = run([128] * 2000, mask_split=split)
    now = masked.input_ids.reshape(-1)[masked.positions]
    n = len(now)
    assert n == 2000 * 19
    hidden = (now == MASK).mean()
    kept = (now == masked.labels).mean()
    # A random id is the right one in 1 case of 995.
    expected = (split[0], 1 - sum(split[::2]), split[2])
    for found, rate in zip((hidden, 1 - hidden - kept, kept), expected, strict=True):
        assert abs(found - rate) <= 4.5 * (rate * (1 - rate) / n) ** 0.5 + 1.5e-3 * split[1]


def test_random_ids_are_uniform_over_those_allowed():
    _, _, masked = run([128] * 3000, mask_split=(0.0, 1.0, 0.0))
    now = masked.input_ids.reshape(-1)[masked.positions]
    assert now.min() == FIRST
    assert now.max() == VOCAB - 1
    assert chisquare(np.bincount(now - FIRST, minlength=VOCAB - FIRST)).pvalue > 1e-4


def test_every_place_is_chosen_equally_often():
    _, _, masked = run([66] * 5000)
    places = np.bincount(masked.positions % 66, minlength=66)
    assert places[0] == places[65] == 0
    # Without replacement the counts vary less than independent draws: a test from above.
    assert chisquare(places[1:65]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 20, (0.8, 0.1, 0.1)), "masked_lm_prob"),
        ((1.0, 20, (0.8, 0.1, 0.1)), "masked_lm_prob"),
        ((0.15, 0, (0.8, 0.1, 0.1)), "max_predictions_per_seq"),
        ((0.15, 20, (0.8, 0.1, 0.2)), "mask_split"),
        ((0.15, 20, (1.2, -0.1, -0.1)), "mask_split"),
        ((0.15, 20, (0.9, 0.1)), "mask_split"),
    ],
)
def test_rates_that_mean_nothing_are_refused(arguments, message: str):
    with pytest.raises(BertineError, match=message):
        check_masking(*arguments)
