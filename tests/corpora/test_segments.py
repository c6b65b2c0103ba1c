from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from bertine.core.errors import BertineError
from bertine.corpora.sequences import NspSegments, kept_lengths
from bertine.corpora.store import TokenStore

from .conftest import FIRST_ID, MakeStore
from .segment_pairs import (
    any_documents,
    assert_share,
    bounds,
    mixed_documents,
    share_of_shorter,
    spans,
    spans_inside,
)


@pytest.mark.slow
@any_documents
def test_every_pair_is_what_its_label_says(
    make_store: MakeStore, documents, max_tokens, short, seed
):
    store, _ = make_store(documents, record_batch_tokens=300)
    segments = NspSegments(store, max_tokens=max_tokens, short_seq_prob=short, seed=seed)
    starts = bounds(store)
    for pair in segments.instances(0, 60):
        _, a_end, b, _ = spans_inside(pair, starts, max_tokens)
        if pair.label:
            assert pair.documents[0] != pair.documents[1]
        else:
            assert pair.documents[0] == pair.documents[1]
            # B follows A; what may be missing between them was cut off to fit.
            assert 0 <= b - a_end <= pair.num_truncated
        if len(documents[pair.documents[0]]) == 1:
            assert pair.label


def test_uncut_segments_are_whole_sentences_and_true_b_follows_at_once(make_store: MakeStore):
    store, _ = make_store([[7, 3, 5, 9, 2, 8] * 20] * 6)
    sentence_starts = set(np.cumsum([0, *[7, 3, 5, 9, 2, 8] * 120]).tolist())
    uncut = [
        pair
        for pair in NspSegments(store, max_tokens=61).instances(0, 2000)
        if not pair.num_truncated
    ]
    assert len(uncut) > 100
    for pair in uncut:
        a, a_end, b, b_end = spans(pair)
        assert {a, a_end, b, b_end} <= sentence_starts
        if not pair.label:
            assert a_end == b


def test_half_of_the_pairs_are_random(make_store: MakeStore):
    store, _ = make_store(mixed_documents())
    pairs = NspSegments(store, max_tokens=61).instances(0, 20_000)
    assert_share([pair.label for pair in pairs], 0.5)


def test_random_segments_come_from_all_other_documents_alike(make_store: MakeStore):
    store, _ = make_store([[5] * 400, *([[5] * 10] * 9)])
    segments = NspSegments(store, max_tokens=30, short_seq_prob=0.0)
    pairs = segments.instances(0, 20_000)
    assert not any(p.num_truncated for p in pairs)  # sentences of 5 fill the 30 tokens exactly
    seen = [p.documents[1] for p in pairs if p.label and p.documents[0] == 0]
    counts = np.bincount(seen, minlength=10)
    assert counts[0] == 0
    assert chisquare(counts[1:]).pvalue > 1e-4
    # And from any sentence of them.
    sentences = [
        (int(p.segments[1][0]) - FIRST_ID) % 50 // 5
        for p in pairs
        if p.label and p.documents[1] > 0
    ]
    assert chisquare(np.bincount(sentences, minlength=10)).pvalue > 1e-4


@pytest.mark.slow
def test_a_tenth_of_the_pairs_is_shorter_by_a_uniform_target(make_store: MakeStore):
    # With sentences of one token, a true pair has exactly its target length.
    store, _ = make_store([[1] * 20_000] * 4)
    window = 125
    pairs = NspSegments(store, max_tokens=window).instances(0, 30_000)
    sizes = np.array([len(p.segments[0]) + len(p.segments[1]) for p in pairs if not p.label])
    short = sizes[sizes < window]
    assert_share(sizes < window, share_of_shorter(window))
    assert (short.min(), short.max()) == (2, window - 1)
    assert chisquare(np.bincount(short, minlength=window)[2:]).pvalue > 1e-4


@pytest.mark.slow
def test_a_ends_after_a_random_sentence(make_store: MakeStore):
    store, _ = make_store([[1] * 20_000] * 4)
    segments = NspSegments(store, max_tokens=50, short_seq_prob=0.0)
    sizes = [len(p.segments[0]) for p in segments.instances(0, 20_000)]
    assert (min(sizes), max(sizes)) == (1, 49)
    assert chisquare(np.bincount(sizes)[1:]).pvalue > 1e-4


@given(a=st.integers(1, 80), b=st.integers(1, 80), limit=st.integers(2, 100))
def test_tokens_are_taken_from_the_longer_one_by_one(a: int, b: int, limit: int):
    expected_a, expected_b = a, b
    while expected_a + expected_b > limit:
        if expected_a > expected_b:
            expected_a -= 1
        else:
            expected_b -= 1
    assert kept_lengths(a, b, limit) == (expected_a, expected_b)


@pytest.mark.slow
@pytest.mark.parametrize("sentence", [70, 400])
def test_tokens_are_cut_from_both_ends_with_a_coin(make_store: MakeStore, sentence: int):
    store, _ = make_store([[sentence] * 40] * 4)
    segments = NspSegments(store, max_tokens=20, short_seq_prob=0.0)
    for which in ("a", "b"):
        fronts = []
        for pair in segments.instances(0, 3000):
            a, _, b, _ = spans(pair)
            assert len(pair.segments[0]) == len(pair.segments[1]) == 10
            fronts.append((a if which == "a" else b) % sentence)
        cut = sentence - 10
        deviation = (cut / 4) ** 0.5
        assert abs(np.mean(fronts) - cut / 2) < 4.5 * deviation / len(fronts) ** 0.5
        assert 0.9 < np.std(fronts) / deviation < 1.1


@pytest.mark.slow
def test_in_an_epoch_every_document_has_its_share(make_store: MakeStore):
    rng = np.random.default_rng(1)
    documents = [[5] * int(n) for n in rng.integers(1, 300, size=200)]
    store, _ = make_store(documents, record_batch_tokens=5000)
    segments = NspSegments(store, max_tokens=64, seed=3)  # a window of 64
    for epoch in range(3):
        n = segments.instances_per_epoch
        counts = np.bincount([p.documents[0] for p in segments.instances(epoch * n, n)])
        share = np.array([(sum(d) + 32) / 64 for d in documents])
        # Windows lie side by side: a document has its share rounded up or down, no chance in it
        # (but for the window that closes the epoch).
        assert (np.abs(counts - share) > 1).sum() <= 1
        assert np.abs(counts - share).max() <= 2


def test_every_part_of_a_document_is_covered_about_once_an_epoch(make_store: MakeStore):
    store, _ = make_store([[8] * 400] * 5)
    segments = NspSegments(store, max_tokens=128, short_seq_prob=0.0, seed=5)
    epochs = 20
    covered = np.zeros(store.num_tokens)
    for pair in segments.instances(0, epochs * segments.instances_per_epoch):
        a, a_end, b, b_end = spans(pair)
        if pair.label:  # what A's document would have gone on with
            b, b_end = a_end, min(a_end + 128 - (a_end - a), (pair.documents[0] + 1) * 3200)
        covered[a:a_end] += 1
        covered[b:b_end] += 1
    tenths = covered.reshape(5, 10, 320).mean(axis=(0, 2)) / epochs
    # Both ends are covered by a quarter of a window more, and cutting loses a little.
    assert (tenths > 0.85).all()
    assert (tenths < 1.25).all()
    assert covered.min() > 0


def test_a_short_document_is_taken_whole(make_store: MakeStore):
    store, _ = make_store([[6] * 10] * 50)
    segments = NspSegments(store, max_tokens=125, short_seq_prob=0.0)
    for pair in segments.instances(0, 300):
        a, _, _, b_end = spans(pair)
        assert a == pair.documents[0] * 60
        if not pair.label:
            assert b_end == (pair.documents[0] + 1) * 60


def test_starts_are_not_the_same_in_the_next_epoch(make_store: MakeStore):
    store, _ = make_store([[1] * 5000] * 4)
    segments = NspSegments(store, max_tokens=64, seed=0)
    n = segments.instances_per_epoch
    first, second = ([spans(p)[0] for p in segments.instances(epoch * n, n)] for epoch in range(2))
    assert first != sorted(first)
    assert len(set(first) & set(second)) < 0.2 * n
    assert kstest(first, "uniform", args=(0, store.num_tokens)).pvalue > 1e-4


def test_a_pair_depends_on_its_index_only(make_store: MakeStore):
    store, _ = make_store([[4, 9, 30] * 30] * 5, record_batch_tokens=500)
    segments = NspSegments(store, max_tokens=45, seed=11)
    far = 5 * segments.instances_per_epoch + 3
    together = segments.instances(far, 50)
    np.random.seed(1)
    other = NspSegments(TokenStore.open(store.path), max_tokens=45, seed=11)
    other.instances(0, 7)
    for i in reversed(range(50)):
        alone = other.instance(far + i)
        assert spans(alone) == spans(together[i])
        assert alone.label == together[i].label
    changed = NspSegments(store, max_tokens=45, seed=12).instances(far, 50)
    assert [spans(p) for p in changed] != [spans(p) for p in together]


def test_impossible_arguments_are_refused(make_store: MakeStore):
    store, _ = make_store([[5], [5]])
    with pytest.raises(BertineError, match="short_seq_prob"):
        NspSegments(store, max_tokens=125, short_seq_prob=1.1)
