from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from bertine.corpora.sequences import Instance, SentencePairs
from bertine.corpora.store import TokenStore

from .conftest import FIRST_ID, MakeStore


def spans(pair: Instance) -> tuple[int, int, int, int]:
    """Where A and B stand in the store, having checked that each is in one piece."""
    a, b = pair.segments[0].astype(int) - FIRST_ID, pair.segments[1].astype(int) - FIRST_ID
    assert (np.diff(a) == 1).all()
    assert (np.diff(b) == 1).all()
    return int(a[0]), int(a[-1]) + 1, int(b[0]), int(b[-1]) + 1


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    documents=st.lists(
        st.lists(st.integers(1, 60), min_size=1, max_size=40), min_size=2, max_size=12
    ),
    max_tokens=st.integers(5, 147),
    seed=st.integers(0, 1000),
)
def test_a_pair_is_two_sentences_and_what_its_label_says(
    make_store: MakeStore, documents, max_tokens, seed
):
    store, _ = make_store(documents, record_batch_tokens=300)
    starts = np.cumsum([0, *(length for document in documents for length in document)])
    document_of = np.repeat(np.arange(len(documents)), list(map(len, documents)))
    for pair in SentencePairs(store, max_tokens=max_tokens, seed=seed).instances(0, 60):
        a, a_end, b, b_end = spans(pair)
        sentence_a, sentence_b = (int(np.searchsorted(starts, at, "right")) - 1 for at in (a, b))
        assert a_end <= starts[sentence_a + 1]
        assert b_end <= starts[sentence_b + 1]
        length_a, length_b = (
            int(starts[number + 1] - starts[number]) for number in (sentence_a, sentence_b)
        )
        assert pair.num_truncated == max(0, length_a + length_b - max_tokens)
        assert a_end - a + b_end - b == length_a + length_b - pair.num_truncated
        assert document_of[sentence_a] == pair.documents[0]
        assert document_of[sentence_b] == pair.documents[1]
        assert pair.label == (pair.documents[0] != pair.documents[1])
        if not pair.label:
            assert sentence_b == sentence_a + 1
        if len(documents[pair.documents[0]]) == 1:
            assert pair.label


def test_half_of_the_pairs_are_random_from_all_other_documents_alike(make_store: MakeStore):
    store, _ = make_store([[5] * 400, *([[5] * 10] * 9)])
    pairs = SentencePairs(store, max_tokens=29).instances(0, 20_000)
    n = len(pairs)
    assert abs(np.mean([pair.label for pair in pairs]) - 0.5) < 4 * 0.5 / n**0.5
    random = [pair for pair in pairs if pair.label and pair.documents[0] == 0]
    counts = np.bincount([pair.documents[1] for pair in random], minlength=10)
    assert counts[0] == 0
    assert chisquare(counts[1:]).pvalue > 1e-4
    sentences = [(spans(pair)[2] - 2000) % 50 // 5 for pair in random]
    assert chisquare(np.bincount(sentences, minlength=10)).pvalue > 1e-4


@pytest.mark.slow
def test_in_an_epoch_every_other_sentence_is_an_a(make_store: MakeStore):
    rng = np.random.default_rng(0)
    documents = [[5] * int(n) for n in rng.integers(2, 60, size=100)]
    store, _ = make_store(documents, record_batch_tokens=900)
    pairs = SentencePairs(store, max_tokens=29, seed=1)
    n = pairs.instances_per_epoch
    assert n == -(-store.num_sentences // 2)
    orders = []
    for epoch in range(8):
        made = pairs.instances(epoch * n, n)
        counts = np.bincount([spans(pair)[0] // 5 for pair in made])
        # The last of a document gives its turn to the one before it, which then has two, or one
        # after its neighbour.
        assert counts.max() <= 2
        assert (counts > 1).sum() <= len(documents)
        orders.append([spans(pair)[0] for pair in made])
        tokens = sum(len(pair.segments[0]) + len(pair.segments[1]) for pair in made)
        assert tokens == pytest.approx(store.num_tokens, abs=10)
    assert orders[0] != sorted(orders[0])
    halves = {frozenset(order) for order in orders}
    assert len(halves) == 2
    last = np.cumsum(list(map(len, documents))) - 1
    assert len(frozenset.union(*halves)) == store.num_sentences - len(last)


def test_a_pair_depends_on_its_index_only(make_store: MakeStore):
    store, _ = make_store([[4, 9, 30] * 30] * 5, record_batch_tokens=500)
    pairs = SentencePairs(store, max_tokens=37, seed=11)
    far = 5 * pairs.instances_per_epoch - 3
    wanted = [spans(pair) for pair in pairs.instances(far, 50)]
    other = SentencePairs(TokenStore.open(store.path), max_tokens=37, seed=11)
    for number in reversed(range(50)):
        assert spans(other.instance(far + number)) == wanted[number]
    sent = pickle.loads(pickle.dumps(pairs))
    assert [spans(pair) for pair in sent.instances(far, 50)] == wanted
    changed = SentencePairs(store, max_tokens=37, seed=12).instances(far, 50)
    assert [spans(pair) for pair in changed] != wanted
