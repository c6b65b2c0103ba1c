"""Training word2vec: what is learned, that it can be repeated, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertine import WordVectors, word2vec
from bertine.cli import main
from bertine.contrib.options import WordVectorModel
from bertine.contrib.word2vec import train
from bertine.contrib.word2vec.vectors import words_of
from bertine.core.errors import BertineError

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_mistakes(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match="0 of 18 different words come 99999 times or more"):
        word2vec(corpus, tmp_path / "v", min_count=99_999)
    with pytest.raises(BertineError, match="grew beyond all numbers; give a lower learning_rate"):
        word2vec(corpus, tmp_path / "v", learning_rate=1e9)
    with pytest.raises(BertineError, match="is a file"):
        word2vec(corpus, shutil.copy(corpus, tmp_path / "odd.dat"))
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


class Stopped(Exception):
    """In place of a signal."""


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(
    corpus: Path, tmp_path: Path, method: WordVectorModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped twice, right after a checkpoint in the middle of an epoch; the first time by SIGKILL,
    of one method."""
    monkeypatch.setattr(train, "BLOCK", 3000)  # 6 blocks an epoch
    monkeypatch.setattr(train, "EVERY", 0.0)
    settings: dict[str, Any] = {"dimensions": 8, "epochs": 4, "seed": 3, "method": method}
    save = train.save_checkpoint

    def stop(saves: int, signal_number: int = 0) -> None:
        def saving(*arguments: Any) -> None:
            nonlocal saves
            save(*arguments)
            saves -= 1
            if not saves and signal_number:
                os.kill(os.getpid(), signal_number)
            if not saves:
                raise Stopped

        monkeypatch.setattr(train, "save_checkpoint", saving)

    word2vec(corpus, tmp_path / "whole", **settings)
    kill = method == "cbow"
    child = os.fork() if kill else 0
    if not child:
        stop(8, signal.SIGKILL if kill else 0)
        with pytest.raises(Stopped):
            word2vec(corpus, tmp_path / "v", **settings)
    else:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [path.name for path in tmp_path.glob("*v*")] == [".v.unfinished"]
    with pytest.raises(BertineError, match="was started with dimensions = 8, not 9; resume"):
        word2vec(corpus, tmp_path / "v", **{**settings, "dimensions": 9}, resume=True)
    stop(5)
    with pytest.raises(Stopped):
        word2vec(corpus, tmp_path / "v", **settings, resume=True)
    monkeypatch.setattr(train, "save_checkpoint", save)
    word2vec(corpus, tmp_path / "v", **settings, resume=True)
    for name in ("vectors.safetensors", "words.txt"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "v" / name).read_bytes() == whole
    assert not list(tmp_path.glob(".*"))


def test_a_checkpoint_that_lies(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"dimensions": 8, "epochs": 1}
    (tmp_path / ".v.unfinished").write_bytes(b"x" * 99)
    with pytest.raises(BertineError, match=r"is damaged, .* remove it, and begin anew"):
        word2vec(corpus, tmp_path / "v", resume=True, **settings)
    word2vec(corpus, tmp_path / "v", **settings)
    assert "a run that was stopped; beginning anew" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
    # Without a run that was stopped, one begins.
    word2vec(corpus, tmp_path / "w", resume=True, **settings)
    assert (tmp_path / "w" / "vectors.safetensors").read_bytes() == (
        tmp_path / "v" / "vectors.safetensors"
    ).read_bytes()
