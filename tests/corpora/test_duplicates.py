"""Documents that come twice are counted, and left out where that is asked for."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
from bertine import prepare
from bertine.corpora import duplicates
from bertine.corpora.duplicates import SeenFingerprints, fingerprint
from bertine.corpora.store import TokenStore
from bertine.tokenization.sentences import iter_sentences


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=200))
def test_seen_is_a_set(numbers: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_RECENT", 4)
        seen, expected = SeenFingerprints(), set()
        for number in numbers:
            assert seen.add(number) == (number not in expected)
            expected.add(number)
        assert len(seen) == len(expected)


@pytest.mark.slow
def test_a_million_numbers_are_in_few_parts() -> None:
    seen = SeenFingerprints()
    numbers = np.random.default_rng(0).integers(1 << 63, size=300_000)
    assert all(seen.add(int(number)) for number in numbers)
    assert not any(seen.add(int(number)) for number in numbers[::997])
    assert len(seen._sorted) <= 4


def test_white_space_and_case_do_not_count_but_words_and_order_do() -> None:
    assert fingerprint("The  cat\nsat. ") == fingerprint("the cat sat.")
    for other in ("the cat sat", "cat the sat.", "thecat sat.", "the cat sat. sat."):
        assert fingerprint(other) != fingerprint("the cat sat.")


@given(st.text(st.sampled_from("aAbß \n\t\x1c\x85\u2003é"), max_size=60), st.integers(1, 12))
def test_a_long_document_is_taken_in_pieces(text: str, at_a_time: int) -> None:
    """Its fingerprint is that of the whole, wherever the pieces end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_CHARACTERS_AT_A_TIME", at_a_time)
        assert fingerprint(text) == fingerprint(" ".join(text.casefold().split()))
        other = fingerprint(text + " b")
    assert other == fingerprint(" ".join(text.casefold().split()) + " b")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_document() -> None:
    text = "some words\n" * 200_000
    tracemalloc.start()
    try:
        fingerprint(text)
        assert sum(1 for _ in iter_sentences(text)) == 200_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Its words all at once would take 24 MB, its sentences 12.
    assert peak < 3e6


def corpus(folder: Path, copies: int) -> Path:
    """Ten documents, and the first of them `copies` times more, in capitals."""
    documents = toys.corpus_text(10).split("\n\n")
    path = folder / "corpus.txt"
    path.write_text("\n\n".join([*documents, *[documents[0].upper()] * copies]) + "\n")
    return path


def test_copies_are_counted_and_dropped(tmp_path: Path) -> None:
    texts = corpus(tmp_path, 5)
    tokenizer = toys.tokenizer_folder(tmp_path / "tokenizer")
    kept = prepare(texts, tokenizer=tokenizer, out=tmp_path / "kept")
    assert kept.manifest["num_documents"] == 15
    assert kept.manifest["duplicates"] == {"documents": 15, "copies": 5, "dropped": False}
    assert "same words as an earlier one: 5 (33.3%)" in "\n".join(kept.lines())
    assert any("are copies of another" in warning for warning in kept.warnings)
    dropped = prepare(texts, tokenizer=tokenizer, out=tmp_path / "dropped", drop_duplicates=True)
    assert dropped.manifest["num_documents"] == 10
    assert not dropped.warnings
    shares = [TokenStore.open(tmp_path / name).duplicate_share for name in ("kept", "dropped")]
    assert shares == [pytest.approx(1 / 3), None]
    alone = prepare(corpus(tmp_path, 0), tokenizer=tokenizer, out=tmp_path / "alone")
    assert not any("earlier one" in line for line in alone.lines())
    shards = [
        (tmp_path / name / "tokens-00000.arrow").read_bytes() for name in ("dropped", "alone")
    ]
    assert shards[0] == shards[1]
