"""The bundled texts: honest splits, valid files, bounded size."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import resources
from itertools import combinations
from pathlib import Path

import pytest
import zstandard

from bertine.contrib.demo import texts
from bertine.core.errors import BertineError


def rows_of(corpus: Callable[[], AbstractContextManager[Path]]) -> list[dict[str, str]]:
    with corpus() as path:
        assert path.name.endswith(".jsonl.zst"), "the corpus reader goes by the ending"
        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())).read()
    return [json.loads(line) for line in raw.decode("utf-8").splitlines()]


def test_no_article_is_in_two_parts() -> None:
    of = {split: {p.article for p in texts.passages(split)} for split in texts.SPLITS}
    of["pre-training"] = {row["title"] for row in rows_of(texts.articles_corpus)}
    assert all(of.values())
    for one, other in combinations(of, 2):
        assert not of[one] & of[other], (one, other)


def runs(text: str, length: int = 15) -> set[int]:
    """Every run of `length` words of a text, as hashes."""
    words = text.split()
    return {hash(tuple(words[i : i + length])) for i in range(len(words) - length + 1)}


@pytest.mark.slow
def test_no_fifteen_words_in_a_row_are_shared_by_two_parts() -> None:
    """The same text under two titles would slip through a comparison of titles."""
    of = {
        split: {run for p in texts.passages(split) for run in runs(p.text)}
        for split in texts.SPLITS
    }
    of["pre-training"] = {
        run for row in rows_of(texts.articles_corpus) for run in runs(row["text"])
    }
    for one, other in combinations(of, 2):
        assert not of[one] & of[other], (one, other)


def test_passages_are_short_and_balanced() -> None:
    for split in texts.SPLITS:
        rows = texts.passages(split)
        assert all(25 <= len(passage.text.split()) <= 45 for passage in rows)
        assert len(set(Counter(passage.subject for passage in rows).values())) == 1
        # Subjects take turns, so that any beginning is balanced too.
        assert [p.subject for p in rows[:6]] == list(texts.count_texts().subjects)
    shown = Counter(passage.article for passage in texts.passages("train"))
    assert set(shown.values()) == {1}, "a label a passage should not come from one article"
    assert max(Counter(passage.article for passage in texts.passages("test")).values()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("per_subject", [1, 5, 10])
def test_draws_are_balanced_and_share_no_passage(per_subject: int) -> None:
    draws = [texts.draw(number, per_subject) for number in range(4)]
    for one in draws:
        assert Counter(p.subject for p in one) == dict.fromkeys(
            texts.count_texts().subjects, per_subject
        )
    for one, other in combinations(draws, 2):
        assert not {p.text for p in one} & {p.text for p in other}


@pytest.mark.parametrize(("number", "per_subject"), [(-1, 5), (0, 0), (0, 41), (8, 5)])
def test_asking_for_more_passages_than_there_are_says_how_many_there_are(
    number: int, per_subject: int
) -> None:
    with pytest.raises(BertineError, match="there are 40 of each"):
        texts.draw(number, per_subject)


def test_csv_files_read_back_as_written(tmp_path: Path) -> None:
    passages = texts.passages("test")
    texts.write_csv(tmp_path / "test.csv", passages)
    with open(tmp_path / "test.csv", encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [(r["text"], r["subject"]) for r in rows] == [(p.text, p.subject) for p in passages]


def test_facts_agree_with_the_files() -> None:
    facts = texts.count_texts()
    rows = rows_of(texts.articles_corpus)
    assert facts.articles == len(rows)
    assert facts.characters == sum(len(row["text"]) for row in rows)
    assert facts.words == sum(len(row["text"].split()) for row in rows)
    assert facts.passages == {split: len(texts.passages(split)) for split in texts.SPLITS}
    assert facts.labelled_articles["test"] == facts.passages["test"] / 3
    assert len(facts.subjects) == 6


def test_the_licences_name_every_article_and_every_book() -> None:
    text = texts.licence()
    assert "creativecommons.org/licenses/by-sa/4.0" in text
    for row in rows_of(texts.articles_corpus):
        assert row["title"] in text
    for split in texts.SPLITS:
        for passage in texts.passages(split):
            assert passage.article in text
    folder = resources.files("bertine.contrib.demo") / "data"
    books = (folder / "LICENSE.md").read_text(encoding="utf-8")
    assert "public domain" in books
    for row in rows_of(texts.pretraining_corpus):
        assert int(row["year"]) < 1926
        assert f"| {row['author']} | {row['title']} | {row['year']} |" in books
