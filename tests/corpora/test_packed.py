from __future__ import annotations

import pickle
from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from bertine.corpora.formats import DocSentences, FullSentences
from bertine.corpora.sequences import Instance
from bertine.corpora.store import TokenStore

from .conftest import FIRST_ID, MakeStore

KINDS = (FullSentences, DocSentences)


def spans(instance: Instance) -> list[tuple[int, int]]:
    """Where the segments stand in the store, having checked that each is in one piece."""
    found = []
    for segment in instance.segments:
        ids = segment.astype(int) - FIRST_ID
        assert len(ids)
        assert (np.diff(ids) == 1).all()
        found.append((int(ids[0]), int(ids[-1]) + 1))
    return found


def ends_of(documents: list[list[int]]) -> tuple[set[int], list[int]]:
    """The sentence ends of a store, its start among them, and the document ends, likewise."""
    flat = [length for document in documents for length in document]
    return set(np.cumsum([0, *flat]).tolist()), np.cumsum([0, *map(sum, documents)]).tolist()


def coverage(store: TokenStore, instances: list[Instance]) -> np.ndarray:
    """How often each token of the store is in `instances`."""
    change = np.zeros(store.num_tokens + 1, int)
    for instance in instances:
        for start, end in spans(instance):
            change[start] += 1
            change[end] -= 1
    return np.cumsum(change)[:-1]


def natural(documents: int = 60, seed: int = 0) -> list[list[int]]:
    """Sentences and documents about as long, and as unlike, as those of books and articles."""
    rng = np.random.default_rng(seed)
    return [
        np.clip(rng.lognormal(3.1, 0.6, size=rng.integers(1, 120)), 2, 120).astype(int).tolist()
        for _ in range(documents)
    ]


@pytest.mark.slow
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    documents=st.lists(
        st.lists(st.integers(1, 90), min_size=1, max_size=40), min_size=1, max_size=12
    ),
    max_tokens=st.integers(6, 148),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(KINDS),
)
def test_sequences_are_whole_sentences_of_consecutive_documents(
    make_store: MakeStore, documents, max_tokens, seed, kind
):
    store, _ = make_store(documents, record_batch_tokens=300)
    sentence_ends, document_ends = ends_of(documents)
    limit = max_tokens
    # Only a sentence longer than a sequence may be cut.
    may_be_cut = {
        position
        for start, end in zip(sorted(sentence_ends), sorted(sentence_ends)[1:], strict=False)
        if end - start > limit
        for position in range(start, end)
    }
    packed = kind(store, max_tokens=max_tokens, seed=seed)
    for instance in packed.instances(0, 40):
        found = spans(instance)
        # A separator between two documents takes the place of a token.
        assert 1 <= sum(end - start for start, end in found) + len(found) - 1 <= limit
        for (start, end), document in zip(found, instance.documents, strict=True):
            assert start in sentence_ends | may_be_cut
            assert end in sentence_ends | may_be_cut
            assert document_ends[document] <= start < end <= document_ends[document + 1]
        for number in range(1, len(found)):
            before, now = instance.documents[number - 1 : number + 1]
            assert now == (before + 1) % len(documents)
            assert found[number - 1][1] == document_ends[before + 1]
            assert found[number][0] == document_ends[now]
        if kind is DocSentences:
            assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("length", "seen"), [(128, 0.96), (512, 0.98)])
def test_in_an_epoch_nearly_every_token_is_seen_once(
    make_store: MakeStore, kind, length: int, seen: float
):
    store, _ = make_store(natural(), record_batch_tokens=5000)
    packed = kind(store, max_tokens=length - 2, seed=2)
    n = packed.instances_per_epoch
    total = np.zeros(store.num_tokens, int)
    epochs = 12
    for epoch in range(epochs):
        counts = coverage(store, packed.instances(epoch * n, n))
        assert (counts == 1).mean() > seen
        assert (counts > 1).mean() < 0.01
        total += counts
    # What one epoch leaves out is in the others: no place of the corpus is forgotten.
    assert total.min() >= epochs // 4
    assert total.max() <= epochs + epochs // 3


@pytest.mark.parametrize(("length", "share"), [(128, 0.94), (512, 0.94)])
def test_sequences_are_nearly_as_long_as_when_packed_from_the_front(
    make_store: MakeStore, length: int, share: float
):
    documents = natural(seed=4)
    store, _ = make_store(documents)
    packed = FullSentences(store, max_tokens=length - 2)
    sizes = [
        sum(map(len, instance.segments))
        for instance in packed.instances(0, packed.instances_per_epoch)
    ]
    # Walking through the corpus, as the published code does.
    filled, room = [0], length - 2
    for document in documents:
        for sentence in document:
            if sentence > room:
                filled.append(0)
                room = length - 2
            filled[-1] += sentence
            room -= sentence
        room -= 1
    assert np.mean(sizes) > share * np.mean(filled)
    assert max(sizes) <= length - 2


def test_a_longer_document_has_full_sequences_between_two_shorter_ones(make_store: MakeStore):
    store, _ = make_store([[1] * 1000, [1] * 40])
    packed = DocSentences(store, max_tokens=126)
    firsts = set()
    for epoch in range(30):
        n = packed.instances_per_epoch
        found = sorted(
            spans(instance)[0]
            for instance in packed.instances(epoch * n, n)
            if instance.documents == (0,)
        )
        assert [end for _, end in found[:-1]] == [start for start, _ in found[1:]]
        assert (found[0][0], found[-1][1]) == (0, 1000)
        sizes = [end - start for start, end in found]
        assert set(sizes[1:-1]) <= set(range(120, 127))
        firsts.add(sizes[0])
    assert len(firsts) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_of_an_endless_sentence_nothing_is_lost(make_store: MakeStore, kind):
    store, _ = make_store([[5000], [3, 700, 4], [20]])
    packed = kind(store, max_tokens=62, seed=1)
    n = packed.instances_per_epoch
    counts = sum(coverage(store, packed.instances(epoch * n, n)) for epoch in range(10))
    assert counts.min() >= 5
    assert abs(counts.mean() - 10) < 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_store_is_a_sequence(make_store: MakeStore, kind):
    store, _ = make_store([[1]])
    packed = kind(store, max_tokens=6)
    assert packed.instances_per_epoch == 1
    assert [spans(instance) for instance in packed.instances(0, 3)] == [[(0, 1)]] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_has_another_order_and_other_cuts(make_store: MakeStore, kind):
    store, _ = make_store([[1] * 4000] * 5)
    packed = kind(store, max_tokens=62)
    n = packed.instances_per_epoch
    one, two = (
        [spans(instance)[0][0] for instance in packed.instances(epoch * n, n)] for epoch in (0, 1)
    )
    assert kstest(one, "uniform", args=(0, store.num_tokens)).pvalue > 1e-4
    assert one != sorted(one)
    assert len(set(one) & set(two)) < 0.3 * n
    # In no order that follows from the other epoch's.
    ranks = [bisect_right(sorted(two), start) for start in one]
    moved = [abs(a - b) for a, b in zip(ranks, np.argsort(np.argsort(two)), strict=True)]
    assert np.mean(moved) > 0.2 * n


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_depends_on_its_index_only(make_store: MakeStore, kind):
    store, _ = make_store(natural(20), record_batch_tokens=700)
    packed = kind(store, max_tokens=98, seed=11)
    first = 3 * packed.instances_per_epoch - 20
    wanted = [spans(instance) for instance in packed.instances(first, 50)]
    other = kind(TokenStore.open(store.path), max_tokens=98, seed=11)
    other.instances(0, 7)
    for number in reversed(range(50)):
        assert spans(other.instance(first + number)) == wanted[number]
    sent = pickle.loads(pickle.dumps(packed))
    assert [spans(instance) for instance in sent.instances(first, 50)] == wanted
    changed = kind(store, max_tokens=98, seed=12).instances(first, 50)
    assert [spans(instance) for instance in changed] != wanted
