"""``embed`` and ``similar`` with vectors of words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bertine
from bertine.cli import main
from bertine.core.errors import BertineError

WORDS = ["bank", "river", "money", "loan"]
TABLE = np.array([[1, 1], [1, 0], [0, 1], [0, 2]], dtype=np.float32)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    bertine.WordVectors(WORDS, TABLE, lowercase=True).save(tmp_path / "v")
    return tmp_path / "v"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("The River, the bank.\nmoney money loan\nnothing known\n")
    return path


def test_a_text_is_the_mean_of_its_words(vectors: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.npy"
    report = bertine.embed(vectors, texts, out)
    assert np.load(out).tolist() == pytest.approx(np.array([[1, 0.5], [0, 4 / 3], [0, 0]]))
    assert "1 text without any word that has a vector: zeros" in report.lines()
    bertine.embed(vectors, texts, out, normalize=True)
    assert np.linalg.norm(np.load(out), axis=1).tolist() == pytest.approx([1, 1, 0])


def test_similar_texts_and_words(
    vectors: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = bertine.similar("a loan", texts, model=vectors, top=2)
    assert isinstance(found, bertine.inference.embedding.similar.Neighbours)
    assert [row.row for row in found.found] == [2, 1]
    bertine.embed(vectors, texts, tmp_path / "t.npy")
    ready = bertine.similar("a loan", tmp_path / "t.npy", model=vectors, texts=texts, top=2)
    assert ready.lines() == [line for line in found.lines() if "without any" not in line]
    bertine.WordVectors(WORDS, TABLE[::-1]).save(tmp_path / "w.bin")
    with pytest.raises(BertineError, match="made with another model"):
        bertine.similar("loan", tmp_path / "t.npy", model=tmp_path / "w.bin")
    assert main(["similar", "bank", "--model", str(vectors), "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [" 0.7071  river", " 0.7071  money"]


def test_mistakes(
    vectors: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BertineError, match="takes no layer=-1; leave it out"):
        bertine.embed(vectors, texts, tmp_path / "t.npy", layer=-1)
    with pytest.raises(BertineError, match="takes no pooling='tokens'"):
        bertine.embed(vectors, texts, tmp_path / "t.npy", pooling="tokens")
    with pytest.raises(BertineError, match="takes no dimensions=1"):
        bertine.embed(vectors, texts, tmp_path / "t.npy", dimensions=1)
    with pytest.raises(BertineError, match="none of its words has a vector"):
        bertine.similar("unheard", texts, model=vectors)
    capsys.readouterr()
    with pytest.raises(BertineError, match="nothing to compare with"):
        bertine.similar("loan", model="bertine-en")
    assert not capsys.readouterr().err  # it is not loaded for that
    for option in ({"text_column": "x"}, {"index": tmp_path}):
        with pytest.raises(BertineError, match="is for a file of texts"):
            bertine.similar("loan", model=vectors, **option)


def test_a_word_has_one_vector_and_two_in_bert(vectors: Path) -> None:
    """What the guide shows: "bank" in two sentences."""
    two = ["He sat on the bank of the river.", "He took money from the bank."]
    static = bertine.WordVectors.load(vectors)
    assert np.array_equal(static["bank"], static["Bank"])
    bert = bertine.Embedder.load("bertine-en", pooling="tokens", precision="fp32")
    states = []
    for text in two:
        tokens = bert.embed_tokens(text)
        at = text.index("bank")
        states += [
            v for v, (a, b) in zip(tokens.vectors, tokens.offsets, strict=True) if a == at < b
        ]
    assert len(states) == 2
    cosine = states[0] @ states[1] / np.linalg.norm(states[0]) / np.linalg.norm(states[1])
    assert cosine < 0.95


def test_the_origin_is_written(vectors: Path, texts: Path, tmp_path: Path) -> None:
    bertine.embed(vectors, texts, tmp_path / "t.npy")
    origin = json.loads((tmp_path / "t.npy.json").read_text())
    assert (origin["pooling"], origin["layer"], origin["dimensions"]) == (["mean"], 0, 2)


def test_a_word_has_the_same_vector_in_each_text(tmp_path: Path) -> None:
    eye = np.eye(3, dtype=np.float32)
    bertine.WordVectors(["bank", "river", "money"], eye, lowercase=True).save(tmp_path / "v")
    texts = tmp_path / "in.txt"
    texts.write_text("Bank of the river\nmoney in the bank\nno such word\n")
    settings = {"model": tmp_path / "v", "show_progress": False}
    found = bertine.similar("a river bank", texts, word="bank", **settings)
    assert [each.score for each in found.found] == [1.0, 1.0]
    assert found.notes == ["1 text without the word 'bank', left out"]
    whole = bertine.similar("a river bank", texts, **settings)
    assert whole.found[1].score < 0.9
