"""Pairs whose order is asked for, against the paper's and the published code's words."""

from __future__ import annotations

import numpy as np
import pytest

from bertine.core.errors import BertineError
from bertine.corpora.sequences import OrderedSegments

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
    segments = OrderedSegments(store, max_tokens=max_tokens, short_seq_prob=short, seed=seed)
    starts = bounds(store)
    for pair in segments.instances(0, 60):
        a, a_end, b, b_end = spans_inside(pair, starts, max_tokens)
        if len(documents[pair.documents[0]]) == 1:
            # A single sentence: B is of another document, and the label is that of swapped ones.
            assert pair.label == 1
            assert pair.documents[0] != pair.documents[1]
        else:
            # Two neighbouring runs; what may be missing between them was cut off to fit.
            assert pair.documents[0] == pair.documents[1]
            gap = a - b_end if pair.label else b - a_end
            assert 0 <= gap <= pair.num_truncated


@pytest.mark.slow
def test_half_of_the_pairs_are_swapped_at_whole_sentences(make_store: MakeStore):
    documents = mixed_documents()
    store, _ = make_store(documents)
    sentences = set(np.cumsum([0, *(n for lengths in documents for n in lengths)]).tolist())
    pairs = OrderedSegments(store, max_tokens=61).instances(0, 20_000)
    assert_share([pair.label for pair in pairs], 0.5)
    for pair in pairs:
        a, a_end, b, b_end = spans(pair)
        if not pair.num_truncated:
            assert {a, a_end, b, b_end} <= sentences
            assert (a_end == b) if pair.label == 0 else (b_end == a)


def test_lengths_and_places_say_nothing_of_the_order(make_store: MakeStore):
    """Segments of both labels are as long, and as far from the beginning of their documents."""
    store, _ = make_store([[4] * 3000] * 3)
    pairs = OrderedSegments(store, max_tokens=61).instances(0, 20_000)
    for measure in (
        lambda pair: len(pair.segments[0]),
        lambda pair: len(pair.segments[0]) + len(pair.segments[1]),
        lambda pair: min(int(ids[0]) - FIRST_ID for ids in pair.segments) % 12_000,
    ):
        one, other = (np.array([measure(p) for p in pairs if p.label == n]) for n in (0, 1))
        error = (one.var() / len(one) + other.var() / len(other)) ** 0.5
        assert abs(one.mean() - other.mean()) < 4 * error


@pytest.mark.slow
def test_a_tenth_is_shorter_whatever_the_label(make_store: MakeStore):
    store, _ = make_store([[1] * 20_000] * 2)
    window = 125
    pairs = OrderedSegments(store, max_tokens=window).instances(0, 30_000)
    for label in (0, 1):
        sizes = np.array([sum(map(len, p.segments)) for p in pairs if p.label == label])
        assert_share(sizes < window, share_of_shorter(window))


def test_one_document_is_enough_and_one_sentence_is_not(make_store: MakeStore):
    store, _ = make_store([[5] * 10])
    assert {pair.label for pair in OrderedSegments(store, max_tokens=30).instances(0, 50)} == {0, 1}
    alone, _ = make_store([[5]])
    with pytest.raises(BertineError, match="at least two sentences, but there is 1"):
        OrderedSegments(alone, max_tokens=30)
