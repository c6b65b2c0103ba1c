"""Documents that are nearly the same are found, others are not; the first stays."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bertine import prepare
from bertine.core.rng import generator
from bertine.corpora.duplicates import (
    BY_ROW,
    SIGNATURES,
    SignatureFile,
    find_near_duplicates,
    signatures,
)
from bertine.corpora.parts import make_part
from bertine.corpora.store import TokenStore
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

pytest.importorskip("rensa")

VOCABULARY = [*SPECIAL_TOKENS, "the", ".", *(f"w{number}x" for number in range(2000))]


def text(seed: int, words: int = 200, changed: int = 0) -> str:
    """`words` words drawn at random; `changed` of them, evenly spread, replaced by others."""
    drawn = generator(seed, "words").integers(2000, size=words).tolist()
    for number in range(changed):
        drawn[(2 * number + 1) * words // (2 * changed)] = (seed * 7 + number * 13) % 2000
    return " ".join(f"w{number}x" for number in drawn)


def jaccard(one: list[int], other: list[int]) -> float:
    """Of the sets of 5-grams."""
    sets = [{tuple(ids[i : i + 5]) for i in range(len(ids) - 4)} for ids in (one, other)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer").mkdir()
    Tokenizer.from_vocab(VOCABULARY).save(tmp_path / "tokenizer")
    return tmp_path


def store_of(folder: Path, name: str, files: list[list[str]], **options: Any) -> TokenStore:
    texts = folder / f"{name}-texts"
    texts.mkdir()
    for number, documents in enumerate(files):
        (texts / f"{number}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    values = {"near_duplicates": "drop", "processes": 1, "part_bytes": 1, **options}
    prepare(texts, tokenizer=folder / "tokenizer", out=folder / name, **values)
    store = TokenStore.open(folder / name)
    store.verify()
    return store


def ids_of(store: TokenStore) -> list[list[int]]:
    return [store.document(i).input_ids.tolist() for i in range(store.num_documents)]


def test_the_estimate_is_the_jaccard_similarity_of_5_grams() -> None:
    draw = generator(1, "estimate")
    errors = []
    for shared in (0, 40, 100, 160, 190, 200):
        for _ in range(10):
            one = draw.integers(1000, size=200)
            other = np.concatenate([one[:shared], draw.integers(1000, size=200 - shared)])
            made = signatures(np.concatenate([one, other]), np.array([0, 200, 400]))
            estimate = (made[0] == made[1]).mean()
            errors.append(estimate - jaccard(one.tolist(), other.tolist()))
    assert abs(np.mean(errors)) < 0.015
    # sqrt(s (1 - s) / 128) is at most 0.044.
    assert np.std(errors) < 0.045
    assert np.max(np.abs(errors)) < 0.18


def test_signatures_are_those_of_each_document_alone() -> None:
    """Whatever stands beside it: neighbours do not leak into a document."""
    draw = generator(2, "documents")
    lengths = [3, 50, 4, 5, 0, 300, 7]
    ids = draw.integers(30000, size=sum(lengths)).astype(np.uint16)
    offsets = np.cumsum([0, *lengths])
    together = signatures(ids, offsets)
    assert together.shape == (7, 128)
    for number, (begin, end) in enumerate(pairwise(offsets)):
        alone = signatures(ids[begin:end], np.array([0, end - begin]))
        assert (alone[0] == together[number]).all()
        assert (together[number] == 0xFFFFFFFF).all() == (lengths[number] < 5)
    many = np.arange(0, 9000 * 6, 6)
    long = draw.integers(30000, size=9000 * 6)
    assert (signatures(long, many)[5000] == signatures(long, many[5000:5002])[0]).all()


@pytest.mark.slow
def test_near_duplicates_are_left_out_and_others_stay(folder: Path) -> None:
    """Over file borders too, however many processes there are; of like ones the first stays."""
    files = [
        [text(1), text(2), text(3)],
        [text(4), text(1, changed=2), text(5)],  # 0.90 the same
        # 0.15, 0.95, itself and 0.98
        [text(2, changed=30), text(1, changed=1), text(6), text(3) + " w1x w2x"],
    ]
    words = Tokenizer.from_vocab(VOCABULARY)
    expected = words.encode_plain(
        [text(n) for n in (1, 2, 3, 4, 5)] + [text(2, changed=30), text(6)]
    )
    one = store_of(folder, "one", files)
    assert ids_of(one) == expected
    assert one.manifest["near_duplicates"] == {"documents": 3, "similarity": 0.8, "dropped": True}
    two = store_of(folder, "two", files, processes=2)
    for key in ("shards", "unigram_counts_sha256", "near_duplicates", "num_tokens"):
        assert one.manifest[key] == two.manifest[key]
    whole = store_of(folder, "whole", files, part_bytes=1 << 20)
    assert ids_of(whole) == expected
    counted = store_of(folder, "counted", files, near_duplicates="count")
    assert counted.num_documents == 10
    assert counted.manifest["near_duplicates"]["documents"] == 3
    assert [counted.duplicate_share, one.duplicate_share] == [0.3, 0.0]
    strict = store_of(folder, "strict", files, similarity=0.97)
    assert strict.manifest["near_duplicates"]["documents"] == 1
    plain = store_of(folder, "plain", files, near_duplicates="ignore")
    assert "near_duplicates" not in plain.manifest
    assert ids_of(plain) == ids_of(counted)


def test_copies_are_not_counted_twice(folder: Path) -> None:
    files = [[text(1), text(2)], [text(1), text(2, changed=1), text(2, changed=1).upper()]]
    store = store_of(folder, "store", files)
    assert store.manifest["duplicates"]["copies"] == 2
    assert store.manifest["near_duplicates"]["documents"] == 1
    # Copies are left out by their own option alone.
    assert store.num_documents == 4
    both = store_of(folder, "both", files, drop_duplicates=True)
    assert both.num_documents == 2


def test_pairs_are_found_at_the_rate_promised(tmp_path: Path) -> None:
    """300 pairs of similarity 0.85 or so, against all pairs compared one by one."""
    draw = generator(3, "pairs")
    documents = []
    for _ in range(300):
        one = draw.integers(5000, size=300)
        other = one.copy()
        other[draw.integers(300, size=5)] = 1
        documents += [one, other]
    offsets = np.arange(601) * 300
    made = signatures(np.concatenate(documents), offsets)
    file = SignatureFile(tmp_path, (200, 400))
    (tmp_path / SIGNATURES).write_bytes(made.tobytes())
    blocks = [made[:200].T, made[200:].T]
    (tmp_path / BY_ROW).write_bytes(
        b"".join(np.ascontiguousarray(block).tobytes() for block in blocks)
    )
    alive = np.ones(600, bool)
    told: list[tuple[int, int]] = []
    near = find_near_duplicates([file], alive, 0.8, lambda *steps: told.append(steps))
    equal: npt.NDArray[np.float64] = (made[::2] == made[1::2]).mean(axis=1)
    assert not near[::2].any()
    assert (near[1::2] <= (equal >= 0.8)).all()
    assert near.sum() >= 0.98 * (equal >= 0.8).sum() > 200
    assert told[-1] == (21, 21)
    alive[1] = False
    assert not find_near_duplicates([file], alive, 0.8)[1]


def test_signatures_lie_on_disk_and_not_in_memory(folder: Path) -> None:
    """512 bytes for each document that is stored, twice."""
    from bertine.corpora.parts import PartSettings, plan_parts

    (folder / "a.txt").write_text("\n\n".join(text(n) for n in range(30)), encoding="utf-8")
    (part,) = plan_parts(
        [folder / "a.txt"],
        PartSettings(signatures=True),
        tokenizer_fingerprint="x",
        folder=folder,
        part_bytes=1,
    )
    make_part(part, Tokenizer.load(folder / "tokenizer"))
    for name in (SIGNATURES, BY_ROW):
        assert (Path(part.folder) / name).stat().st_size == 30 * 512


def test_short_documents_are_left_alone(folder: Path) -> None:
    store = store_of(folder, "store", [["w1x w2x", "w1x w3x", "w4x w5x w6x w7x", "w4x w5x"]])
    assert store.num_documents == 4
