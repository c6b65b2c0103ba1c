"""Exact match, F1 and the threshold: by hand, and equal to the official scripts on thousands of
answers, right, wrong and odd."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.rng import generator
from bertine.tasks.span_scores import answer_scores, best_threshold, normalized
from squad_scorers import scorer

#: Words, marks and odd characters that the rules treat differently.
PARTS = [
    *("the", "The", "a", "AN", "an", "and", "theory", "1973", "3.5", "U.S.", "it's", "o'clock"),
    *("Straße", "STRASSE", "İstanbul", "café", "cafe\u0301", "東京", "—", "“quoted”", "…", "½"),
    *(",", ".", "!", "$12", "(sic)", "a.b", "a-b", "the-end", "\u00a0", "\t", "\n", "  ", "", "_"),
    *("oil", "Oil", "crisis", "shock", "nearly", "in", "of", "\u200b", "-", "'", "`"),
]


def random_answer(draw: np.random.Generator) -> str:
    words = draw.choice(PARTS, size=int(draw.integers(0, 6))).tolist()
    return draw.choice(["", " "]).join(words)


def random_golds(draw: np.random.Generator, least: int) -> list[str]:
    return [random_answer(draw) for _ in range(int(draw.integers(least, 4)))]


def guess_for(golds: list[str], draw: np.random.Generator) -> str:
    """An answer that is often nearly right."""
    kind = draw.integers(0, 5)
    if not golds or kind == 0:
        return random_answer(draw)
    gold = str(draw.choice(np.array(golds, dtype=object)))
    if kind == 1:
        return gold
    if kind == 2:
        return f"the {gold.upper()}!"
    if kind == 3:
        return " ".join(gold.split()[:-1])
    return f"{gold} {random_answer(draw)}"


def dataset(golds: dict[str, list[str]]) -> list[dict[str, Any]]:
    questions = [
        {"id": name, "answers": [{"text": text} for text in texts]} for name, texts in golds.items()
    ]
    return [{"paragraphs": [{"qas": questions}]}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  oil-crisis, 1973!", "oilcrisis 1973"),
        ("a theory of the an", "theory of"),
        ("a.b", "ab"),
        ("“The”", "“ ”"),
        (" \t\n", ""),
        ("The", ""),
    ],
)
def test_normalized(text: str, expected: str) -> None:
    assert normalized(text) == expected


@pytest.mark.parametrize(
    ("guess", "golds", "v2", "expected"),
    [
        ("Oil crisis", ["the oil crisis!"], False, (1.0, 1.0)),
        ("oil", ["the oil crisis", "shock"], False, (0.0, 2 / 3)),
        ("oil oil", ["oil"], False, (0.0, 2 / 3)),  # each word as often as it occurs
        ("a", ["the"], False, (1.0, 0.0)),  # nothing is left of both
        ("a", ["the"], True, (1.0, 1.0)),
        ("", [], True, (1.0, 1.0)),
        ("oil", [], True, (0.0, 0.0)),
        ("the", [], True, (1.0, 1.0)),
        ("", ["oil"], True, (0.0, 0.0)),
        ("", ["the", "oil"], True, (0.0, 0.0)),  # "the" is no gold answer
    ],
)
def test_scores_by_hand(
    guess: str, golds: list[str], v2: bool, expected: tuple[float, float]
) -> None:
    assert answer_scores(guess, golds, v2=v2) == pytest.approx(expected)


def test_v1_needs_a_gold_answer() -> None:
    with pytest.raises(ValueError, match="has a gold answer"):
        answer_scores("oil", [], v2=False)


@pytest.mark.slow
def test_equal_to_the_official_script_of_v1_on_10_000_answers() -> None:
    official = scorer("1.1")
    draw = generator(1, "answers v1.1")
    golds = {f"q{i}": random_golds(draw, 1) for i in range(10_000)}
    guesses = {name: guess_for(texts, draw) for name, texts in golds.items()}
    theirs = official.evaluate(dataset(golds), guesses)
    ours = np.array([answer_scores(guesses[name], golds[name], v2=False) for name in golds])
    assert 100 * ours.mean(0) == pytest.approx([theirs["exact_match"], theirs["f1"]], abs=1e-9)
    assert 0.1 < ours[:, 0].mean() < 0.9
    for name in list(golds)[:3000]:
        alone = official.evaluate(dataset({name: golds[name]}), guesses)
        own = answer_scores(guesses[name], golds[name], v2=False)
        assert own == (alone["exact_match"] / 100, pytest.approx(alone["f1"] / 100, abs=1e-12))


@pytest.mark.slow
def test_equal_to_the_official_script_of_v2_on_10_000_answers() -> None:
    official = scorer("2.0")
    draw = generator(2, "answers v2.0")
    golds = {f"q{i}": [] if i % 3 == 0 else random_golds(draw, 1) for i in range(10_000)}
    guesses = {
        name: "" if draw.random() < 0.3 else guess_for(texts, draw) for name, texts in golds.items()
    }
    exact, f1 = official.get_raw_scores(dataset(golds), guesses)
    ours = {name: answer_scores(guesses[name], golds[name], v2=True) for name in golds}
    assert {name: scores[0] for name, scores in ours.items()} == exact
    assert {name: scores[1] for name, scores in ours.items()} == pytest.approx(f1, abs=1e-12)


def test_the_threshold_is_as_good_as_the_official_one() -> None:
    official = scorer("2.0")
    for seed in range(20):
        draw = generator(seed, "thresholds")
        answerable = draw.random(300) < 0.5
        odds = np.where(answerable, -1.0, 1.0) + draw.normal(0, 2, 300)
        f1 = np.where(answerable, draw.choice([0, 0.5, 1.0], 300), 0.0)
        names = [str(i) for i in range(300)]
        best, threshold = official.find_best_thresh(
            dict.fromkeys(names, "some answer"),
            dict(zip(names, f1.tolist(), strict=True)),
            dict(zip(names, odds.tolist(), strict=True)),
            dict(zip(names, answerable.tolist(), strict=True)),
        )
        ours, score = best_threshold(odds.tolist(), f1.tolist(), (~answerable).astype(float))
        assert 100 * score == pytest.approx(best)
        assert 100 * np.where(odds > ours, ~answerable, f1).mean() == pytest.approx(best)
        assert np.array_equal(odds > ours, odds > threshold)


odds_and_scores = st.lists(
    st.tuples(st.integers(-4, 4).map(float), st.sampled_from([0.0, 0.5, 1.0]), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(rows=odds_and_scores)
def test_no_threshold_is_better(rows: list[tuple[float, float, bool]]) -> None:
    odds = np.array([row[0] for row in rows])
    answered = np.array([row[1] for row in rows])
    silent = np.array([float(row[2]) for row in rows])
    threshold, score = best_threshold(odds.tolist(), answered.tolist(), silent.tolist())
    reached = np.where(odds > threshold, silent, answered).mean()
    assert reached == pytest.approx(score)
    for other in (-9.0, *(odds + 0.5)):
        assert np.where(odds > other, silent, answered).mean() <= score + 1e-12


def test_a_threshold_lies_between_two_questions() -> None:
    assert best_threshold([0.0, 1.0], [1, 0], [0, 1]) == (0.5, 1.0)
    assert best_threshold([0.0, 1e9], [1, 0], [0, 1]) == (1.0, 1.0)
    assert best_threshold([3.0], [1], [0]) == (4.0, 1.0)
    assert best_threshold([3.0], [0], [1]) == (2.0, 1.0)
    near = float(np.nextafter(1.0, 2.0))
    assert best_threshold([1.0, near], [1, 0], [0, 1]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="needs questions"):
        best_threshold([], [], [])


def test_the_official_main_agrees_on_both_kinds() -> None:
    """HasAns and NoAns of the script's own summary."""
    official = scorer("2.0")
    draw = generator(3, "kinds")
    golds = {f"q{i}": [] if i % 2 else ["oil crisis"] for i in range(200)}
    guesses = {name: str(draw.choice(["", "oil", "the oil crisis"])) for name in golds}
    with contextlib.redirect_stdout(io.StringIO()):
        exact, f1 = official.get_raw_scores(dataset(golds), guesses)
    for has in (True, False):
        kind = [name for name, texts in golds.items() if bool(texts) == has]
        theirs = official.make_eval_dict(exact, f1, qid_list=kind)
        ours = np.array([answer_scores(guesses[name], golds[name], v2=True) for name in kind])
        assert 100 * ours.mean(0) == pytest.approx([theirs["exact"], theirs["f1"]])
