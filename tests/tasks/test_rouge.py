"""ROUGE against the field's own program, where that is installed, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bertine.core.rng import generator
from bertine.tasks.seq2seq import rouge_l, rouge_n, rouge_words, text_scores


def texts(count: int) -> list[tuple[str, str]]:
    """Pairs of texts that have words in common, odd ones among them."""
    draw = generator(0, "rouge")
    words = np.array(["the", "cat", "Sat", "on", "it's", "3.5", "über", "mat.", "-", "a", "A"])
    pairs = [
        (
            " ".join(draw.choice(words, size=int(draw.integers(0, 30)))),
            " ".join(draw.choice(words, size=int(draw.integers(0, 30)))),
        )
        for _ in range(count)
    ]
    return [*pairs, ("", ""), ("a", ""), ("日本", "日本"), ("one two", "one two")]


def test_scores_are_those_of_rouge_score() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    theirs = scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    for ours, wanted in texts(200):
        expected = theirs.score(wanted, ours)
        first, second = rouge_words(ours), rouge_words(wanted)
        assert rouge_n(first, second, 1) == pytest.approx(expected["rouge1"].fmeasure)
        assert rouge_n(first, second, 2) == pytest.approx(expected["rouge2"].fmeasure)
        assert rouge_l(first, second) == pytest.approx(expected["rougeL"].fmeasure)


def test_other_alphabets_have_words_too() -> None:
    """Where most letters are theirs; each character where nothing parts words."""
    scores = text_scores(["я вижу дом", "BERT 很好"], ["Я вижу сад", "BERT 不好"])
    assert scores["rouge1"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert scores["rouge2"] == pytest.approx((1 / 2 + 0) / 2)
    assert rouge_words("ไทย 3.5 日本 ab_c", all_alphabets=True) == [
        *"ไทย",
        "3",
        "5",
        *"日本",
        "ab",
        "c",
    ]
    # Names in another alphabet change nothing of what the field's program counts.
    assert text_scores(["the cat 日本"], ["the cat 中国"])["rouge1"] == 1.0


def test_scores_by_hand() -> None:
    ours, wanted = rouge_words("The cat sat, the cat!"), rouge_words("the cat lay on the mat")
    assert ours == ["the", "cat", "sat", "the", "cat"]
    assert rouge_n(ours, wanted, 1) == pytest.approx(2 * 3 / 11)  # the, cat, the
    assert rouge_n(ours, wanted, 2) == pytest.approx(2 * 1 / 9)  # the cat
    assert rouge_l(ours, wanted) == pytest.approx(2 * 3 / 11)
    scores = text_scores(["a b", "c  d", "x"], ["a b", "c d", "y"])
    assert scores["exact_match"] == pytest.approx(2 / 3)
    assert scores["rougeL"] == pytest.approx(2 / 3)
    assert text_scores([""], [""]) == {"rouge1": 0, "rouge2": 0, "rougeL": 0, "exact_match": 1}
