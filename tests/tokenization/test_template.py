"""Special tokens around texts, as the papers have them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertine.tokenization.base import Frame, Template

#: Of each system: its template, and a text of two pieces and a pair of two and one.
SYSTEMS = {
    "BERT": (
        Template((101, None, 102), (101, None, 102, None, 102), 102),
        ([101, 1, 2, 102], [0, 0, 0, 0]),
        ([101, 1, 2, 102, 3, 102], [0, 0, 0, 0, 1, 1]),
    ),
    "RoBERTa": (
        Template((0, None, 2), (0, None, 2, 2, None, 2), 2),
        ([0, 1, 2, 2], [0, 0, 0, 0]),
        ([0, 1, 2, 2, 2, 3, 2], [0, 0, 0, 0, 0, 1, 1]),
    ),
    "GPT-1": (
        Template((90, None, 92), (90, None, 91, None, 92), 91),
        ([90, 1, 2, 92], [0, 0, 0, 0]),
        ([90, 1, 2, 91, 3, 92], [0, 0, 0, 0, 1, 1]),
    ),
    "XLNet": (
        Template(
            (None, 4, 3),
            (None, 4, None, 4, 3),
            4,
            single_segments=(0, 0, 2),
            pair_segments=(0, 0, 1, 1, 2),
        ),
        ([1, 2, 4, 3], [0, 0, 0, 2]),
        ([1, 2, 4, 3, 4, 3], [0, 0, 0, 1, 1, 2]),
    ),
    "GPT-2": (Template((None,), (None, None)), ([1, 2], [0, 0]), ([1, 2, 3], [0, 0, 1])),
}
A, B = np.array([1, 2], np.int32), np.array([3], np.int32)


@pytest.mark.parametrize("system", SYSTEMS)
def test_texts_and_pairs_are_wrapped_as_the_system_has_it(system: str) -> None:
    template, single, pair = SYSTEMS[system]
    for texts, (ids, segments) in (((A,), single), ((A, B), pair)):
        found = template.wrap(*texts)
        assert found[0].tolist() == ids
        assert found[1].tolist() == segments
        assert found[0].dtype == np.int32
        assert found[1].dtype == np.int8
        assert template.added(len(texts)) == len(ids) - sum(map(len, texts))


entries = st.lists(st.integers(0, 9), max_size=3).map(tuple)
pieces = st.lists(st.integers(10, 99), max_size=6)


@given(entries, entries, entries, st.booleans(), pieces, pieces)
def test_all_ways_to_make_a_sequence_agree(
    before: tuple[int, ...],
    between: tuple[int, ...],
    after: tuple[int, ...],
    named: bool,
    a: list[int],
    b: list[int],
) -> None:
    single = (*before, None, *after)
    pair = (*before, None, *between, None, *after)
    template = Template(
        single,
        pair,
        single_segments=tuple(range(len(single))) if named else None,
        pair_segments=tuple(range(len(pair))) if named else None,
    )
    for texts in ([a], [a, b]):
        ids, segments = template.wrap(*(np.array(text, np.int32) for text in texts))
        frame = template.frame(len(texts))
        lengths = [len(text) for text in texts]
        assert ids.tolist() == frame.join(texts)
        assert segments.tolist() == frame.segments(lengths).tolist()
        assert len(ids) == sum(lengths) + template.added(len(texts))
        for start, text in zip(frame.starts(lengths), texts, strict=True):
            assert ids[start : start + len(text)].tolist() == text
        special = frame.lay([[False] * length for length in lengths], True)
        assert [i for i, added in zip(ids.tolist(), special, strict=True) if not added] == [
            piece for text in texts for piece in text
        ]
        if not named:  # 0 up to the first piece of the second text, 1 from there on
            second = frame.starts(lengths)[1] if len(texts) == 2 else len(ids)
            assert segments.tolist() == [int(place >= second) for place in range(len(ids))]


@given(st.lists(pieces, min_size=1, max_size=4))
def test_running_text_has_a_separator_between_documents(documents: list[list[int]]) -> None:
    frame = SYSTEMS["RoBERTa"][0].running
    ids = frame.join(documents)
    assert len(ids) == sum(map(len, documents)) + frame.added(len(documents))
    assert ids == [0, *(i for text in documents for i in (*text, 2))]
    starts = frame.starts([len(text) for text in documents])
    assert [ids[s : s + len(d)] for s, d in zip(starts, documents, strict=True)] == documents


def test_frames_of_store_types() -> None:
    before, between, after = Frame((1,), (2,), (3,)).arrays(np.uint16)
    assert {before.dtype, between.dtype, after.dtype} == {np.dtype(np.uint16)}
