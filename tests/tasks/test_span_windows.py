"""Windows over a context, the view of a piece, and the way from characters to pieces and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.data.examples import Examples
from bertine.data.squad import Question, RawQuestion, SpanExamples, span_examples
from bertine.tasks.span_scores import answer_question
from bertine.tasks.span_windows import (
    SpanFeatures,
    encode_spans,
    pieces_of,
    unaligned_answers,
    widest_view,
    windows,
)
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

LETTERS = "abcdefghij"
#: Letters are pieces, at the begin of a word and inside it, so that any text of them has many.
TOKENIZER = Tokenizer.from_vocab(
    [
        *SPECIAL_TOKENS,
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
        *".,?",
        "##ab",
        "19",
        "##60",
    ]
)
LIMITS = {"max_length": 16, "max_question_length": 5, "doc_stride": 4}

sizes = st.tuples(st.integers(0, 200), st.integers(1, 40), st.integers(1, 50))


def questions(
    *rows: tuple[str, str, list[tuple[str, int | None]] | None], v2: bool = False
) -> SpanExamples:
    raws = [
        RawQuestion(f"q{line}", line, question, context, answers)
        for line, (question, context, answers) in enumerate(rows, 1)
    ]
    return span_examples("dev.json", ("question", "context"), "answers", raws, v2=v2)


def encoded(examples: Examples[Question], **changes: int) -> list[SpanFeatures]:
    return encode_spans(examples, TOKENIZER, **{**LIMITS, **changes})


@settings(max_examples=100, deadline=None)
@given(sizes)
def test_windows_cover_every_piece_and_are_a_stride_apart(size: tuple[int, int, int]) -> None:
    pieces, room, stride = size
    found = windows(pieces, room, stride)
    covered = {at for begin, length in found for at in range(begin, begin + length)}
    assert covered == set(range(pieces))
    assert all(length <= room for _, length in found)
    assert all(length == room for _, length in found[:-1])
    begins = [begin for begin, _ in found]
    assert begins == [number * min(stride, room) for number in range(len(found))]
    # The last is the first that reaches the end: no window is there in vain.
    assert all(begin + length < pieces for begin, length in found[:-1])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(sizes)
def test_every_piece_begins_an_answer_in_one_window_that_shows_most_around_it(
    size: tuple[int, int, int],
) -> None:
    pieces, room, stride = size
    spans = windows(pieces, room, stride)
    owner = widest_view(spans, pieces)
    for piece in range(pieces):
        views = {}
        for number, (begin, length) in enumerate(spans):
            if begin <= piece < begin + length:
                left, right = piece - begin, begin + length - 1 - piece
                views[number] = min(left, right) + 0.01 * length
        assert views[owner[piece]] == max(views.values())
        assert owner[piece] == min(n for n, view in views.items() if view == max(views.values()))


text = st.text(alphabet=LETTERS + "  .,?AÉe\u0301İß東\n\t\u200b", max_size=120)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(text, st.integers(0, 119), st.integers(1, 30))
def test_the_pieces_of_an_answer_cover_it_and_no_piece_more(
    context: str, begin: int, size: int
) -> None:
    begin = min(begin, len(context))
    end = min(begin + size, len(context))
    encoding = TOKENIZER.encode(context)
    offsets = np.array(encoding.offsets[1:-1], dtype=np.int32).reshape(-1, 2)
    found = pieces_of(offsets, begin, end)
    touched = [i for i, (a, b) in enumerate(offsets) if a < end and b > begin]
    if touched:
        assert found == (touched[0], touched[-1])
    elif len(offsets):
        assert found is not None
        assert found[0] == found[1]
        assert 0 <= found[0] < len(offsets)
    else:
        assert found is None


@settings(max_examples=100, deadline=None)
@given(text, st.data())
def test_features_are_the_question_and_windows_of_the_context(
    context: str, data: st.DataObject
) -> None:
    question = data.draw(st.text(alphabet=LETTERS + " ?", max_size=12))
    begin = data.draw(st.integers(0, max(0, len(context) - 1)))
    answer = context[begin : begin + data.draw(st.integers(1, 8))]
    features = encoded(questions((question, context, [(answer, begin)])))
    whole = TOKENIZER.encode(context).input_ids[1:-1]
    asked = TOKENIZER.encode(question).input_ids[1:-1]
    seen = np.zeros(len(whole), dtype=int)
    with_answer = 0
    for number, feature in enumerate(features):
        ids = feature.input_ids.tolist()
        m = len(feature.offsets)
        assert len(ids) <= LIMITS["max_length"]
        assert ids[: feature.first] == [
            TOKENIZER.cls_token_id,
            *asked[:5],
            TOKENIZER.sep_token_id,
        ]
        assert ids[feature.first + m :] == [TOKENIZER.sep_token_id]
        assert feature.token_type_ids.tolist() == [0] * feature.first + [1] * (m + 1)
        start = number * 4
        assert ids[feature.first : feature.first + m] == whole[start : start + m]
        seen[start : start + m] += feature.max_context
        assert feature.num_truncated == (max(0, len(asked) - 5) if number == 0 else 0)
        if answer.strip() and feature.span not in (None, (0, 0)):
            with_answer += 1
            first, last = (place - feature.first for place in feature.span)
            shown = context[feature.offsets[first, 0] : feature.offsets[last, 1]]
            assert answer.strip() in shown or feature.on_pieces or features[0].on_pieces
    assert (seen == 1).all()
    # Where the answer has a piece of its own, the first window that reaches its end holds it,
    # unless it is longer than what two windows share.
    if whole and answer.isascii() and answer.isalpha() and len(answer) <= 4:
        assert with_answer >= 1


@settings(max_examples=100, deadline=None)
@given(text, st.data())
def test_perfect_scores_give_the_gold_answer_back(context: str, data: st.DataObject) -> None:
    (whole,) = encoded(questions(("a", context, None)), max_length=400)
    if not len(whole.offsets):
        return
    first = data.draw(st.integers(0, len(whole.offsets) - 1))
    last = min(first + data.draw(st.integers(0, 2)), len(whole.offsets) - 1)
    begin, end = int(whole.offsets[first, 0]), int(whole.offsets[last, 1])
    features = encoded(questions(("a b c d e", context, [(context[begin:end], begin)])))
    tables = []
    for feature in features:
        assert feature.span is not None
        table = np.zeros((len(feature.input_ids), 2))
        table[feature.span[0], 0] = table[feature.span[1], 1] = 10.0
        tables.append(table)
    found = answer_question(
        tables, features, max_pieces=5, n_best=5, unanswerable=False, threshold=0.0
    )
    assert (found.answer, found.start) == (context[begin:end], begin)


def test_offsets_survive_accents_case_and_wide_characters() -> None:
    cased = "İ É e\u0301a 東 abc"
    features = encoded(questions(("a", cased, None)), max_length=32)
    texts = [cased[a:b] for a, b in features[0].offsets]
    # The accent that the normalization takes away stays with its letter.
    assert "e\u0301" in texts
    assert "É" in texts
    assert "".join(texts) == cased.replace(" ", "")


@pytest.mark.parametrize(
    ("word", "stripped"),
    [("हिन्दू", "हिनद"), ("กั", "ก"), ("e\u0301", "e")],  # Hindi, Thai: marks of class 0
)
def test_a_vowel_sign_at_the_end_of_an_answer_stays_with_it(word: str, stripped: str) -> None:
    words = Tokenizer.from_vocab([*SPECIAL_TOKENS, "who", stripped, "z"])
    features = encode_spans(
        questions(("who", f"{word} z", [(word, 0)])),
        words,
        max_length=16,
        max_question_length=4,
        doc_stride=4,
    )
    begin, end = features[0].offsets[0]
    assert f"{word} z"[begin:end] == word
    assert features[0].on_pieces is None


def test_an_answer_inside_a_piece_is_told_once_with_the_whole_piece() -> None:
    context = "a b 1960 c d e f g h i j a b c"
    examples = questions(("a", context, [("960", 5)]))
    features = encoded(examples)
    assert len(features) > 1
    told = [feature.on_pieces for feature in features if feature.on_pieces]
    assert told == [("960", "1960")]
    found = unaligned_answers(examples, features)
    assert [entry["found"] for entry in found] == ["in the pieces '1960'"]
    assert found[0]["id"] == "q1"
    assert found[0]["answer_start"] == 5


def test_a_window_without_the_answer_points_at_cls() -> None:
    context = " ".join(LETTERS) * 2
    features = encoded(questions(("a", context, [("b", 2)])))
    spans = [feature.span for feature in features]
    assert spans[0] == (features[0].first + 1, features[0].first + 1)
    assert spans[-1] == (0, 0)
    silent = encoded(questions(("a", context, []), v2=True))
    assert {feature.span for feature in silent} == {(0, 0)}
    unknown = encoded(questions(("a", context, None)))
    assert {feature.span for feature in unknown} == {None}


def test_an_empty_context_and_an_empty_question_have_a_feature() -> None:
    features = encoded(questions(("", "a b", None), ("a b", "", None), ("", " \n", None)))
    assert [feature.row for feature in features] == [0, 1, 2]
    assert [len(feature.input_ids) for feature in features] == [5, 5, 3]
    assert [len(feature.offsets) for feature in features] == [2, 0, 0]


def test_what_is_no_pair_names_its_line() -> None:
    lone = SpanExamples("in.csv", ("question", "context"), None, [Question(("a",), None, 7)])
    with pytest.raises(BertineError, match=r"in\.csv:7: 1 text, but the model takes 2"):
        encoded(lone)
