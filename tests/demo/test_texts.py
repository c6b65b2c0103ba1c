"""The bundled texts: honest splits, valid files, bounded size."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from importlib import resources
from itertools import combinations
from pathlib import Path

import pytest
import zstandard

from bertine.demo import texts
from bertine.errors import BertineError


def pretraining_rows() -> list[dict[str, str]]:
    with texts.pretraining_corpus() as path:
        assert path.name.endswith(".jsonl.zst"), "the corpus reader goes by the ending"
        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())).read()
    return [json.loads(line) for line in raw.decode("utf-8").splitlines()]


def test_no_book_is_in_two_parts() -> None:
    of = {split: {p.title for p in texts.passages(split)} for split in texts.SPLITS}
    of["pre-training"] = {row["title"] for row in pretraining_rows()}
    assert all(of.values())
    for one, other in combinations(of, 2):
        assert not of[one] & of[other], (one, other)


def runs(text: str, length: int = 15) -> set[int]:
    """Every run of `length` words of a text, as hashes."""
    words = text.split()
    return {hash(tuple(words[i : i + length])) for i in range(len(words) - length + 1)}


def test_no_fifteen_words_in_a_row_are_shared_by_two_parts() -> None:
    """The same text under two titles would slip through a comparison of titles."""
    of = {
        split: {run for p in texts.passages(split) for run in runs(p.text)}
        for split in texts.SPLITS
    }
    of["pre-training"] = {run for row in pretraining_rows() for run in runs(row["text"])}
    for one, other in combinations(of, 2):
        assert not of[one] & of[other], (one, other)


def test_passages_are_of_the_stated_length_and_do_not_name_their_author() -> None:
    for split in texts.SPLITS:
        for passage in texts.passages(split):
            assert 25 <= len(passage.text.split()) <= 40
            assert passage.author.split()[-1] not in passage.text


def test_every_author_has_the_same_number_of_passages_from_each_of_its_books() -> None:
    for split in texts.SPLITS:
        authors = Counter(p.author for p in texts.passages(split))
        assert len(authors) == 5
        assert len(set(authors.values())) == 1
        books = Counter((p.author, p.title) for p in texts.passages(split))
        assert len(set(books.values())) == 1


@pytest.mark.parametrize("number", [2, 20, 50, 100])
def test_a_small_training_set_is_balanced_over_authors_and_books(number: int) -> None:
    rows = texts.passages("train", per_author=number)
    assert set(Counter(p.author for p in rows).values()) == {number}
    assert set(Counter(p.title for p in rows).values()) == {number // 2}
    assert rows == texts.passages("train")[: len(rows)]


@pytest.mark.parametrize("number", [0, -1, 10_000])
def test_asking_for_more_passages_than_there_are_says_how_many_there_are(number: int) -> None:
    with pytest.raises(BertineError, match=r"between 1 and 300"):
        texts.passages("train", per_author=number)


def test_csv_files_read_back_as_written_and_are_the_same_every_time(tmp_path: Path) -> None:
    files = texts.write_labelled(tmp_path / "one", train_per_author=50)
    again = texts.write_labelled(tmp_path / "two", train_per_author=50)
    expected = {"train": 250, "validation": 300, "test": 2500}
    for split in texts.SPLITS:
        path = getattr(files, split)
        assert path.read_bytes() == getattr(again, split).read_bytes()
        with open(path, encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        passages = texts.passages(split, per_author=50 if split == "train" else None)
        assert [(r["text"], r["author"]) for r in rows] == [(p.text, p.author) for p in passages]
        assert len(rows) == expected[split]
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == [
        "test.csv",
        "train.csv",
        "validation.csv",
    ]


def test_the_typesetter_does_not_give_the_author_away() -> None:
    """Marks that differ between editions, not between authors, are the same in all texts."""
    everything = [row["text"] for row in pretraining_rows()]
    everything += [p.text for split in texts.SPLITS for p in texts.passages(split)]
    for mark in ("“", "”", "‘", "’", "--", "…", "  ", "\t", "\r", "* *", "\x00", "�"):
        assert not [text[:60] for text in everything if mark in text], mark


def test_facts_agree_with_the_files() -> None:
    facts = texts.facts()
    rows = pretraining_rows()
    assert facts.documents == len(rows)
    assert facts.characters == sum(len(row["text"]) for row in rows)
    assert facts.words == sum(len(row["text"].split()) for row in rows)
    assert facts.passages == {split: len(texts.passages(split)) for split in texts.SPLITS}
    assert "Persuasion (Jane Austen, 1818)" in facts.titles("test")
    assert all(book.year < 1926 for book in facts.books)


def test_the_licence_names_every_book() -> None:
    text = texts.licence()
    assert "public domain" in text
    for book in texts.facts().books:
        assert f"| {book.part} | {book.author} | {book.title} | {book.year} |" in text


def test_sizes_are_bounded() -> None:
    folder = resources.files("bertine.demo") / "data"
    packed = sum(len(file.read_bytes()) for file in folder.iterdir() if file.is_file())
    assert packed < 2_500_000
    assert 5_000_000 < texts.facts().characters < 8_000_000
    # Documents stay short enough that NSP has many to choose from.
    lengths = [len(row["text"]) for row in pretraining_rows()]
    assert min(lengths) > 200
    assert max(lengths) < 40_000
