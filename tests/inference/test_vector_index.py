"""An index finds most of the nearest rows, with exact scores, and only of its own vectors."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertine
import bertine.inference.embedding.index as vector_index_module
from bertine.core.errors import BertineError
from bertine.core.scores import ROUNDING
from bertine.inference.embedding.index import NearestRows, VectorIndex, index_vectors, search_all

ROWS, DIMENSIONS = 12_000, 24

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors in clusters, as those of texts are; of any length."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(150, DIMENSIONS))
    points = centres[rng.integers(0, 150, ROWS)] + 0.5 * rng.normal(size=(ROWS, DIMENSIONS))
    points *= rng.uniform(0.1, 10, size=(ROWS, 1))
    points[77] = 0
    path = tmp_path_factory.mktemp("vectors") / "v.npy"
    np.save(path, points.astype(np.float32))
    return path


@pytest.fixture(scope="module")
def folder(vectors: Path) -> Path:
    folder = vectors.parent / "index"
    report = index_vectors(vectors, out=folder, recall=0.9, show_progress=False)
    assert report.description.recall >= 0.9
    assert report.lines()[0].startswith("indexed 12,000 vectors of 24 numbers in ")
    assert "of the ten nearest rows" in report.lines()[1]
    return folder


def exact(vectors: np.ndarray, asked: np.ndarray, top: int) -> NearestRows:
    nearest = NearestRows(len(asked), top)
    search_all(nearest, asked, vectors)
    return nearest


def queries(table: np.ndarray, count: int) -> np.ndarray:
    """Make vectors that are like rows of the table, but none of them."""
    rng = np.random.default_rng(8)
    rows = table[rng.choice(np.arange(100, len(table)), count)]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    asked = rows + 0.05 * rng.normal(size=rows.shape)
    return np.asarray(asked / np.linalg.norm(asked, axis=1, keepdims=True), dtype=np.float32)


def test_its_scores_are_exact_and_its_recall_is_as_measured(vectors: Path, folder: Path) -> None:
    table = np.load(vectors)
    index = VectorIndex.read(folder, table, vectors)
    own = np.arange(100, 400)
    asked = table[own] / np.linalg.norm(table[own], axis=1, keepdims=True)
    near, truth = index.search(asked, 10), exact(table, asked, 10)
    hits = 0
    for query in range(len(asked)):
        best = dict(zip(truth.rows[query].tolist(), truth.scores[query].tolist(), strict=True))
        for row, score in zip(near.rows[query].tolist(), near.scores[query].tolist(), strict=True):
            cosine = table[row] @ asked[query] / np.linalg.norm(table[row])
            assert score == pytest.approx(cosine, abs=1e-5)
            hits += row in best
        assert np.diff(near.scores[query]).max() <= 8 * ROUNDING
        assert near.rows[query][0] == own[query]
    assert hits / truth_size(truth) > index.description.recall - 0.05


def truth_size(nearest: NearestRows) -> int:
    return sum(map(len, nearest.rows))


def test_reading_all_lists_misses_next_to_nothing(vectors: Path, tmp_path: Path) -> None:
    table = np.load(vectors)
    index = VectorIndex.build(table, recall=1.0)
    asked = queries(table, 50)
    near, truth = index.search(asked, 5), exact(table, asked, 5)
    assert index.description.recall > 0.99
    same = [len(np.intersect1d(a, b)) for a, b in zip(near.rows, truth.rows, strict=True)]
    assert sum(same) >= 0.95 * 250


def test_rows_that_are_left_out_are_not_found(vectors: Path, folder: Path) -> None:
    table = np.load(vectors)
    index = VectorIndex.read(folder, table, vectors)
    asked = queries(table, 3)
    kept = np.array([5, 8, 13])
    left_out = np.setdiff1d(np.arange(len(table)), kept)
    for rows in index.search(asked, 10, left_out=left_out).rows:
        assert {*rows.tolist()} == {*kept.tolist()}
    none = index.search(asked, 10, left_out=np.arange(len(table)))
    assert (none.seen, truth_size(none)) == (len(table), 0)


def test_the_same_vectors_make_the_same_index(vectors: Path, folder: Path, tmp_path: Path) -> None:
    index_vectors(vectors, out=tmp_path / "again", recall=0.9, show_progress=False)
    for name in ("index.json", "lists.faiss"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_few_vectors_need_none(tmp_path: Path) -> None:
    np.save(tmp_path / "few.npy", np.ones((20, 4), dtype=np.float32))
    with pytest.raises(BertineError, match=r"few.npy: has 20 vectors; fewer than 10,000 are comp"):
        index_vectors(tmp_path / "few.npy", out=tmp_path / "i", show_progress=False)
    assert not (tmp_path / "i").exists()


def test_an_index_of_other_vectors_or_a_damaged_one(
    vectors: Path, folder: Path, tmp_path: Path
) -> None:
    table = np.load(vectors)
    with pytest.raises(BertineError, match=r"index: was made of other vectors than those of o.npy"):
        VectorIndex.read(folder, table[::-1], "o.npy")
    with pytest.raises(
        BertineError, match=r"is no index of vectors; make one with 'bertine index-"
    ):
        VectorIndex.read(tmp_path, table, vectors)
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("index.json", "lists.faiss"):
        (broken / name).write_bytes((folder / name).read_bytes())
    damaged = bytearray((broken / "lists.faiss").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (broken / "lists.faiss").write_bytes(damaged)
    with pytest.raises(BertineError, match=r"lists.faiss: is damaged; make the index again"):
        VectorIndex.read(broken, table, vectors)
    description: dict[str, Any] = json.loads((broken / "index.json").read_text())
    (broken / "index.json").write_text(json.dumps(description | {"read": "many"}))
    with pytest.raises(BertineError, match="does not describe an index"):
        VectorIndex.read(broken, table, vectors)
    (broken / "index.json").write_text(json.dumps(description | {"format": 99}))
    with pytest.raises(BertineError, match="is of another version"):
        VectorIndex.read(broken, table, vectors)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((0, 0x58), (4, 9), (9, 9), (36, 7), (37, 1), (41, 255), (53, 0x58), (57, 9)),
        *((94, 255), (-1, 255), (-1, 1), (-8 * 3, 3)),
    ],
)
def test_a_damaged_index_whose_checksum_fits(
    vectors: Path, folder: Path, tmp_path: Path, place: int, value: int
) -> None:
    raw = bytearray((folder / "lists.faiss").read_bytes())
    raw[place] = value
    (tmp_path / "lists.faiss").write_bytes(raw)
    description = json.loads((folder / "index.json").read_text())
    description["sha256"] = hashlib.sha256(raw).hexdigest()
    (tmp_path / "index.json").write_text(json.dumps(description))
    with pytest.raises(BertineError, match=r"^\S+lists.faiss: is damaged, cut .* again$"):
        VectorIndex.read(tmp_path, np.load(vectors), vectors)


def test_vectors_that_were_edited_since_are_other_vectors(vectors: Path, tmp_path: Path) -> None:
    own = tmp_path / "v.npy"
    own.write_bytes(vectors.read_bytes())
    index_vectors(own, out=tmp_path / "i", recall=0.5, show_progress=False)
    table = np.load(own, mmap_mode="r+")
    same = np.load(own)
    table[5_001] += 1
    table.flush()
    with pytest.raises(BertineError, match="was made of other vectors"):
        VectorIndex.read(tmp_path / "i", np.load(own, mmap_mode="r"), own)
    # Another file with the same size and time is another file; the same numbers at another time
    # are the same vectors.
    before = own.stat()
    np.save(own, same[::-1])
    os.utime(own, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(BertineError, match="was made of other vectors"):
        VectorIndex.read(tmp_path / "i", np.load(own, mmap_mode="r"), own)
    np.save(own, same)
    VectorIndex.read(tmp_path / "i", np.load(own, mmap_mode="r"), own)


def test_there_are_as_many_rows_as_were_asked_for(vectors: Path, folder: Path) -> None:
    table = np.load(vectors)
    index = VectorIndex.read(folder, table, vectors)
    asked = queries(table, 5)
    for top in (100, 3_000, ROWS + 5):
        near, truth = index.search(asked, top), exact(table, asked, top)
        for rows, scores in zip(near.rows, near.scores, strict=True):
            assert len(set(rows.tolist())) == len(rows) == min(top, ROWS)
            assert np.diff(scores).max() <= 8 * ROUNDING
        if top >= ROWS:
            assert [set(rows) for rows in near.rows] == [set(rows) for rows in truth.rows]
    assert "how many of 100 was not measured" in index.notes(100)[0]
    assert "not measured" not in index.notes(10)[0]


def test_a_folder_with_something_else_is_kept(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("years of work")
    with pytest.raises(BertineError, match="own"):
        index_vectors(vectors, out=tmp_path / "own", show_progress=False)
    assert (tmp_path / "own" / "thesis.txt").read_text() == "years of work"


def test_without_faiss_it_says_what_to_install(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertine.core.errors.find_spec", lambda name: None)
    with pytest.raises(BertineError, match="needs faiss-cpu; install what it needs with: pip inst"):
        index_vectors(vectors, out=tmp_path / "i", show_progress=False)


def test_similar_searches_by_it(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index_module, "LEAST_ROWS", 100)
    monkeypatch.setattr(vector_index_module, "_LISTS", 0.5)
    embedder = bertine.Embedder.load(pretrained, precision="fp32")
    words = ["cat", "dog", "mat", "sat", "ran", "hat", "big", "red", "old", "new", "the", "a"]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 6)) for _ in range(600)]
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{text}\n" for text in texts))
    bertine.embed(embedder, source, tmp_path / "v.npy", show_progress=False)
    bertine.index_vectors(tmp_path / "v.npy", out=tmp_path / "index", recall=1.0)
    given: dict[str, Any] = {"model": embedder, "texts": source, "top": 3, "show_progress": False}
    all_rows = bertine.similar(texts[5], tmp_path / "v.npy", **given)
    indexed = bertine.similar(texts[5], tmp_path / "v.npy", index=tmp_path / "index", **given)
    assert indexed.found[0] == all_rows.found[0]
    assert indexed.found[0].text == texts[indexed.found[0].row - 1]
    assert any("searched by an index, which finds" in note for note in indexed.notes)
    with pytest.raises(BertineError, match=r"is no \.npy; index"):
        bertine.similar(
            "a cat", source, model=embedder, index=tmp_path / "index", show_progress=False
        )
