"""The best answers from scores: rules by hand, and against a search of all spans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.tasks.span_scores import NO_SPAN, SpanPrediction, answer_question, window_spans
from bertine.tasks.span_windows import SpanFeatures, widest_view, windows

QUESTION = 3  # [CLS] a question [SEP] takes so many places


def features_of(words: list[str], room: int, stride: int) -> list[SpanFeatures]:
    """The windows over a context of `words`, each of them one piece."""
    context = " ".join(words)
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    offsets = np.stack([ends - [len(word) for word in words], ends], 1).astype(np.int32)
    spans = windows(len(words), room, stride)
    owner = widest_view(spans, len(words))
    return [
        SpanFeatures(
            np.zeros(QUESTION + length + 1, dtype=np.int32),
            np.zeros(QUESTION + length + 1, dtype=np.int8),
            0,
            context=context,
            first=QUESTION,
            offsets=offsets[begin : begin + length],
            max_context=owner[begin : begin + length] == number,
            span=None,
            on_pieces=None,
            windows=len(spans),
        )
        for number, (begin, length) in enumerate(spans)
    ]


def logits(feature: SpanFeatures, **scores: float) -> np.ndarray:
    """Zeros but for ``s2=1.5`` (start of the window's third piece) and ``e0=…``; ``null=…`` is
    shared by both scores of [CLS]."""
    table = np.zeros((len(feature.input_ids) + 2, 2), dtype=np.float32)  # with padding
    table[-2:] = 99.0
    table[0] = scores.pop("null", 0.0) / 2
    for name, value in scores.items():
        table[feature.first + int(name[1:]), "se".index(name[0])] = value
    return table


def answer(
    tables: list[np.ndarray], features: list[SpanFeatures], **changes: float
) -> SpanPrediction:
    rules = {"max_pieces": 30, "n_best": 20, "unanswerable": False, "threshold": 0.0, **changes}
    return answer_question(tables, features, **rules)


WORDS = ["in", "October", "1973", "the", "oil", "crisis", "began", "there"]


def test_a_start_counts_in_the_window_that_shows_most_around_it() -> None:
    features = features_of(WORDS, 4, 2)
    assert len(features) == 3
    # "the" is the last piece of the first window, and the second of the second.
    tables = [logits(features[0], s3=9), logits(features[1], s1=2, e2=2), logits(features[2])]
    found = answer(tables, features)
    assert found.answer == "the oil"
    assert found.n_best[0].score == pytest.approx(4)


def test_no_answer_is_given_where_the_null_odds_exceed_the_threshold() -> None:
    (feature,) = features_of(WORDS, 20, 10)
    table = logits(feature, null=6, s4=2, e5=2)
    found = answer([table], [feature], unanswerable=True, threshold=2.5)
    assert found.null_odds == pytest.approx(2)
    assert found.answer == "oil crisis"
    silent = answer([table], [feature], unanswerable=True, threshold=1.5)
    assert (silent.answer, silent.start) == ("", None)
    assert silent.n_best == found.n_best
    assert [entry.text for entry in found.n_best[:2]] == ["", "oil crisis"]
    # At the threshold itself there is an answer, as in the official script.
    assert found.decided(2.0).answer == "oil crisis"
    always = answer([table], [feature], threshold=-99)
    assert always.answer == "oil crisis"
    assert all(entry.text for entry in always.n_best)


def test_of_several_windows_the_lowest_null_score_counts() -> None:
    features = features_of(WORDS, 4, 2)
    tables = [logits(feature, null=null) for feature, null in zip(features, (7, 3, 5), strict=True)]
    found = answer(tables, features, unanswerable=True)
    assert found.null_odds == pytest.approx(3)


def test_the_n_best_have_no_text_twice_and_sum_to_one() -> None:
    words = ["oil", "in", "oil", "at", "oil"]
    (feature,) = features_of(words, 20, 10)
    table = logits(feature, s0=1, s2=5, s4=3, e0=1, e2=5, e4=3)
    found = answer([table], [feature], n_best=4, unanswerable=True)
    texts = [entry.text for entry in found.n_best]
    assert len(texts) == len(set(texts)) == 5  # four, and none
    best = found.n_best[0]
    assert (best.text, best.start) == ("oil", 7)  # the second, which is the best of them
    assert sum(entry.probability for entry in found.n_best) == pytest.approx(1)
    scores = np.array([entry.score for entry in found.n_best])
    assert (np.diff(scores) <= 0).all()
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    assert [entry.probability for entry in found.n_best] == pytest.approx(expected.tolist())


def test_a_context_with_nothing_in_it_has_no_answer() -> None:
    (feature,) = features_of([], 20, 10)
    always = answer([logits(feature)], [feature])
    assert (always.answer, always.n_best, always.null_odds) == ("", (), None)
    maybe = answer([logits(feature)], [feature], unanswerable=True, threshold=5.0)
    assert (maybe.answer, maybe.null_odds) == ("", NO_SPAN)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 14),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
)
def test_all_spans_are_looked_at(
    count: int, room: int, stride: int, max_pieces: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    features = features_of([f"w{i}" for i in range(count)], room, stride)
    tables = [
        draw.integers(-3, 4, (len(feature.input_ids), 2)).astype(np.float32) for feature in features
    ]
    every = []
    for table, feature in zip(tables, features, strict=True):
        places = range(len(feature.offsets))
        scores = {
            (i, j): table[QUESTION + i, 0] + table[QUESTION + j, 1]
            for i in places
            for j in places
            if i <= j < i + max_pieces and feature.max_context[i]
        }
        for best in (1, 3, 100):
            found = window_spans(table.astype(np.float64), feature, max_pieces, best)
            assert [score for score, _, _ in found] == sorted(scores.values(), reverse=True)[:best]
            assert all(scores[i, j] == score for score, i, j in found)
            assert len({(i, j) for _, i, j in found}) == len(found)
        every += scores.values()
    found = answer(tables, features, max_pieces=max_pieces)
    assert found.n_best[0].score == max(every)
    assert found.answer in features[0].context
    assert features[0].context[found.start :].startswith(found.answer)
