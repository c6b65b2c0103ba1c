from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from bertine.corpora.collators import InstanceDraws, mask_tokens
from bertine.options.pretraining import InstanceSettings

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


def settings(share: float, limit: int, split: tuple[float, ...]) -> InstanceSettings:
    return InstanceSettings(masked_lm_prob=share, max_predictions_per_seq=limit, mask_split=split)


# Whole words


def words(rows: int, columns: int, seed: int = 0, share: float = 0.35):
    """Which tokens continue a word; a share of them does."""
    return np.random.default_rng(seed).random((rows, columns)) < share


def whole_words(lengths: list[int], seed: int = 0, share: float = 0.35, **options):
    _, _, choosable = batch(lengths, seed)
    continues = words(*choosable.shape, seed, share)
    ids, _, masked = run(lengths, seed, continues=continues, **options)
    return ids, choosable, continues, masked


def word_starts(choosable: np.ndarray, continues: np.ndarray) -> list[list[list[int]]]:
    """For each row its words, as columns, found one token after the other."""
    found: list[list[list[int]]] = []
    for row in range(len(choosable)):
        found.append([])
        for column in np.flatnonzero(choosable[row]).tolist():
            if continues[row, column] and column and choosable[row, column - 1]:
                found[-1][-1].append(column)
            else:
                found[-1].append([column])
    return found


def test_words_are_taken_in_order_and_passed_over_as_in_the_published_code():
    lengths = [3, 5, 9, 20, 64, 128, 128, 100] * 6
    for seed in range(8):
        for limit in (20, 3, None):
            _, choosable, continues, masked = whole_words(
                lengths, seed, max_predictions_per_seq=limit, share=0.2 + 0.08 * seed
            )
            width = choosable.shape[1]
            # The order is that of the random number of a word's first token.
            order = np.random.default_rng(seed).integers(1 << 63, size=choosable.shape)
            expected = []
            for row, found in enumerate(word_starts(choosable, continues)):
                wanted = max(1, round(lengths[row] * 0.15))
                wanted = wanted if limit is None else min(wanted, limit)
                taken: list[int] = []
                for word in sorted(found, key=lambda word: order[row, word[0]]):
                    if len(taken) + len(word) <= wanted:
                        taken += word
                expected += [row * width + column for column in sorted(taken)]
            assert masked.positions.tolist() == expected


@pytest.mark.slow
def test_fifteen_percent_of_the_tokens_are_chosen_as_whole_words():
    _, choosable, continues, masked = whole_words([128] * 2000)
    chosen = np.zeros(choosable.shape, np.bool_)
    chosen.reshape(-1)[masked.positions] = True
    for row, found in enumerate(word_starts(choosable, continues)):
        for word in found:
            assert len(set(chosen[row, word].tolist())) == 1
    # 19 of each row, and all but never fewer: small words fill the room.
    assert chosen.sum(axis=1).max() == 19
    assert chosen.sum() > 0.999 * 19 * 2000


def test_a_row_of_one_long_word_has_no_prediction():
    ids, sizes, choosable = batch([40, 40])
    continues = np.ones(choosable.shape, np.bool_)
    continues[1] = False
    masked = mask_tokens(
        ids,
        sizes,
        choosable,
        np.random.default_rng(0),
        mask_token_id=MASK,
        random_ids=RANDOM_IDS,
        continues=continues,
    )
    assert (masked.positions // 40).tolist() == [1] * 6
    nothing = mask_tokens(
        ids,
        sizes,
        np.zeros_like(choosable),
        np.random.default_rng(0),
        mask_token_id=MASK,
        random_ids=RANDOM_IDS,
        continues=continues,
    )
    assert nothing.positions.size == 0


# The draws of each instance


def instance_draws(rows: int, columns: int, seed: int = 0) -> InstanceDraws:
    draw = np.random.default_rng(seed)
    return InstanceDraws(draw.integers(1 << 64, size=(rows, 2 * columns), dtype=np.uint64))


def test_static_masks_have_the_same_rates():
    ids, sizes, choosable = batch([128] * 3000)
    masked = mask_tokens(
        ids, sizes, choosable, instance_draws(3000, 128), mask_token_id=MASK, random_ids=RANDOM_IDS
    )
    assert (np.bincount(masked.positions // 128) == 19).all()
    places = np.bincount(masked.positions % 128, minlength=128)
    assert chisquare(places[1:127]).pvalue > 1e-4
    now = masked.input_ids.reshape(-1)[masked.positions]
    n = len(now)
    hidden, kept = now == MASK, now == masked.labels
    swapped = now[~hidden & ~kept]
    for count, rate in ((hidden.sum(), 0.8), (kept.sum(), 0.1), (len(swapped), 0.1)):
        assert abs(count / n - rate) < 4.5 * (rate * (1 - rate) / n) ** 0.5 + 1e-4
    bins = np.histogram(swapped, bins=20, range=(FIRST, VOCAB))[0]
    expected = np.histogram(RANDOM_IDS, bins=20, range=(FIRST, VOCAB))[0]
    assert chisquare(bins, expected * bins.sum() / expected.sum()).pvalue > 1e-4


def test_a_static_mask_does_not_depend_on_the_rest_of_the_batch():
    ids, sizes, choosable = batch([60, 128, 20, 90])
    random = np.random.default_rng(3).integers(1 << 64, size=(4, 256), dtype=np.uint64)
    options = {"mask_token_id": MASK, "random_ids": RANDOM_IDS}
    together = mask_tokens(ids, sizes, choosable, InstanceDraws(random), **options)
    for row, size in enumerate(sizes):
        alone = mask_tokens(
            ids[row : row + 1, :size],
            sizes[row : row + 1],
            choosable[row : row + 1, :size],
            InstanceDraws(random[row : row + 1]),
            **options,
        )
        assert np.array_equal(alone.input_ids[0], together.input_ids[row, :size])
