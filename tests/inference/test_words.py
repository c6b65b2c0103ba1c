"""Search by words (BM25)."""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertine
import toys
from bertine.core.errors import BertineError
from bertine.inference.embedding.words import WordIndex, joined, words_of

_TEXTS = ["the cat sat", "the dog", "", "a cat and a cat", "the dog", "!?"]


def _lucene(query: list[str], texts: list[list[str]]) -> list[float]:
    """Compute BM25 as Lucene does, with exact lengths of texts (Kamphuis et al. 2020, "Which BM25
    do you mean?", table 1, "Lucene (accurate)")."""
    counts, scores = [Counter(words) for words in texts], []
    mean = sum(map(len, texts)) / len(texts)
    for words, count in zip(texts, counts, strict=True):
        score = 0.0
        for word in query:
            having = sum(word in other for other in counts)
            idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            long = 1 - 0.75 + 0.75 * len(words) / mean if mean else 1.0
            score += idf * count[word] / (count[word] + 1.5 * long)
        scores.append(score)
    return scores


@given(
    texts=st.lists(st.lists(st.sampled_from("abcde"), max_size=6), max_size=8),
    query=st.lists(st.sampled_from("abcdef"), max_size=4),
    top=st.integers(1, 9),
)
def test_scores_are_those_of_the_formula(
    texts: list[list[str]], query: list[str], top: int
) -> None:
    expected = _lucene(query, texts) if texts else []
    order = sorted(range(len(texts)), key=lambda row: (-round(expected[row], 5), row))
    found = WordIndex(map(" ".join, texts)).search(" ".join(query), top)
    assert [row for row, _ in found] == [row for row in order if expected[row] > 0][:top]
    assert [score for _, score in found] == pytest.approx(
        [expected[row] for row, _ in found], rel=1e-5
    )


def test_equal_texts_are_in_the_order_of_their_rows() -> None:
    assert [row for row, _ in WordIndex(_TEXTS).search("Dog!", 9)] == [1, 4]


def test_only_the_rows_that_are_allowed_are_found_with_unchanged_scores() -> None:
    index = WordIndex(_TEXTS)
    everywhere = dict(index.search("the cat", 9))
    found = index.search("the cat", 2, np.array([4, 3, 2]))
    assert found == [(row, everywhere[row]) for row in (3, 4)]
    assert index.search("the cat", 9, np.array([], dtype=np.int64)) == []


@pytest.mark.parametrize("texts", [[], [""], ["…", "  "]])
def test_a_collection_without_words_has_no_answer(texts: list[str]) -> None:
    assert WordIndex(texts).search("cat", 3) == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("北京大学", "他在北京的大学读书"),
        ("大阪", "大阪に行きました"),
        ("ガス", "ｶﾞｽ会社"),
        ("ภาษา", "เขาพูดภาษาไทย"),
        ("서울", "서울에서 왔다"),
        ("STRASSE", "Eine Straße"),
        ("cafe\u0301", "Café Müller"),
        ("refunded", "Refunds, please"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
        ("2019", "２０１９年"),
        ("\U00020bb7野家", "\U00020bb7野家で"),
    ],
)
def test_words_of_all_scripts_are_found(query: str, text: str) -> None:
    others = ["上海的小学", "東の海", "quite another text", "хлеб", "ไม่", "안녕"]
    assert WordIndex([*others, text]).search(query, 1)[0][0] == len(others)


def test_neighbouring_characters_weigh_more_than_the_same_ones_apart() -> None:
    texts = ["学大中国人", "中国的京北市", "中国北京市"]
    assert [row for row, _ in WordIndex(texts).search("北京", 3)] == [2, 1]


def test_a_vowel_sign_does_not_end_a_word() -> None:
    assert words_of("हिन्दी में") == ["हिन्दी", "हिन्द", "में"]


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertine.core.errors.find_spec", lambda name: None)
    with pytest.raises(BertineError, match=r"pip install bm25s$"):
        WordIndex([])


def test_rankings_are_joined_by_reciprocal_ranks() -> None:
    rows, sums = joined([7, 3, 5], [5, 9])
    assert rows.tolist() == [5, 7, 3, 9]
    assert sums == pytest.approx([1 / 63 + 1 / 61, 1 / 61, 1 / 62, 1 / 62])


def test_evaluate_scores_the_search_by_words_beside_the_vectors(tmp_path: Path) -> None:
    """One word among many others is little of a vector, but the only one that is asked for."""
    rows = [
        [f"a {topic}", f"{8 * f'the {toys.ADJECTIVES[at % 4]} '}{topic} in the {place}"]
        for at, (topic, (_, place)) in enumerate(toys.TOPICS.items())
    ]
    pairs, scored = tmp_path / "pairs.csv", tmp_path / "scored.csv"
    for file, table in (
        (pairs, [["query", "match"], *rows]),
        (scored, [["query", "match", "score"], *([*row, len(row[1])] for row in rows)]),
    ):
        with open(file, "w", encoding="utf-8", newline="") as handle:
            csv.writer(handle).writerows(table)
    with toys.one_thread():
        model = toys.write_model(tmp_path / "model")
        report = bertine.evaluate(model, pairs, baselines=True, show_progress=False)
        without = bertine.evaluate(model, scored, baselines=True, show_progress=False)
    table_of = {line.split("  ")[0]: line.split()[-5:] for line in report.notes}
    assert table_of["BM25"] == ["100.00%"] * 5
    assert table_of["this model"] == [f"{report.metrics[name]:.2%}" for name in table_of[""]]
    own, joint = (float(table_of[name][1].rstrip("%")) for name in ("this model", "hybrid"))
    assert own < joint <= 100
    assert "no baselines: pairs with a score are not searched" in without.notes
