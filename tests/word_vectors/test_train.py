"""Training word2vec: what is learned, that it can be repeated, and what is refused."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from bertine import WordVectors, word2vec
from bertine.cli import main
from bertine.errors import BertineError
from bertine.names import WordVectorModel
from bertine.word_vectors.splitting import words_of

KITCHEN = ["pan", "pot", "stove", "oven", "knife", "plate", "spoon", "bowl"]
HARBOUR = ["ship", "mast", "sail", "anchor", "rope", "deck", "crew", "port"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents about a kitchen and about a harbour, with words that stand in both."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    documents = []
    for number in range(400):
        topic = KITCHEN if number % 2 else HARBOUR
        words = [draw.choice(topic if draw.random() < 0.7 else ["The", "a"]) for _ in range(40)]
        documents.append(" ".join(words))
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
def test_words_of_a_subject_come_together(
    corpus: Path, tmp_path: Path, method: WordVectorModel
) -> None:
    report = word2vec(corpus, tmp_path / "v", method=method, dimensions=16, epochs=10, seed=1)
    assert (report.words, report.total, report.covered) == (18, 16_000, 16_000)
    vectors = WordVectors.load(tmp_path / "v")
    assert vectors.counts is not None
    assert vectors.counts.sum() == 16_000
    assert vectors.words[0] in ("the", "a")
    for topic in (KITCHEN, HARBOUR):
        for word in topic:
            near = [each.word for each in vectors.nearest(word, top=5).nearest]
            assert len({*near} & {*topic}) >= 4


def test_the_same_seed_gives_the_same_bits(corpus: Path, tmp_path: Path) -> None:
    made = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        word2vec(corpus, tmp_path / name, dimensions=8, epochs=2, seed=seed)
        made.append(WordVectors.load(tmp_path / name).vectors.tobytes())
    assert made[0] == made[1] != made[2]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_corpora_of_all_kinds(corpus: Path, tmp_path: Path) -> None:
    text = corpus.read_text()
    rows = [json.dumps({"body": each}) for each in text.split("\n\n")]
    (tmp_path / "text.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    settings = {"dimensions": 8, "epochs": 1}
    word2vec(corpus, tmp_path / "a.bin", **settings)
    word2vec(tmp_path / "text.jsonl.gz", tmp_path / "b.bin", text_column="body", **settings)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_the_command(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "v")
    arguments = ["--dimensions", "8", "--epochs", "1", "--cased", "--max-words", "17"]
    assert main(["word2vec", str(corpus), "--out", out, *arguments]) == 0
    shown = capsys.readouterr().out
    assert "17 words with vectors of 8 numbers" in shown
    assert "1 rarer ones have none" in shown
    assert "The" in WordVectors.load(out).words


def test_mistakes(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="0 of 18 different words come 99999 times or more"):
        word2vec(corpus, tmp_path / "v", min_count=99_999)
    with pytest.raises(BertineError, match="grew beyond all numbers; give a lower learning_rate"):
        word2vec(corpus, tmp_path / "v", learning_rate=1e30)
    with pytest.raises(BertineError, match="is a file"):
        word2vec(corpus, corpus.with_suffix(".txt").rename(tmp_path / "odd.dat"))
    assert not (tmp_path / "v").exists()


def test_words() -> None:
    assert words_of("Don't stop — naïve_Bayes, 北京 Öl3!", lowercase=True) == [
        *("don't", "stop", "naïve_bayes", "北", "京", "öl3"),
    ]
    assert words_of("A b", lowercase=False) == ["A", "b"]


def test_a_text_of_two_words_stays_finite(tmp_path: Path) -> None:
    """Where the same two vectors move at every word, batches are small."""
    (tmp_path / "t.txt").write_text("yes no " * 3000)
    word2vec(tmp_path / "t.txt", tmp_path / "v", dimensions=8)
    vectors = WordVectors.load(tmp_path / "v").vectors
    assert np.abs(vectors).max() < 20
