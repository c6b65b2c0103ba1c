"""Text that the vocabulary does not know is counted, said and flagged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import toys
from bertine.data.examples import Example, Examples
from bertine.tasks.answer import Answer
from bertine.tasks.base import Features, Task, values_of
from bertine.tasks.classification import Prediction, TextClassification
from bertine.tasks.multi_label import LabelSet, MultiLabel
from bertine.tasks.unknown_text import UnknownText, empty_rows, mostly_unknown, with_flags
from bertine.tasks.whole_text import Score, TextRegression
from bertine.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CHINESE = "我今天在店里买了一本书"


def tokenizer(more: Sequence[str] = ()) -> Tokenizer:
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    return Tokenizer.from_vocab([*SPECIAL_TOKENS, *letters, ".", *more])


def features_of(known: Tokenizer, texts: Sequence[str]) -> list[Features]:
    encoded = known.encode_arrays(texts)
    return [Features(ids, types, row) for row, (ids, types, _) in enumerate(encoded)]


def counted(known: Tokenizer, texts: Sequence[str]) -> UnknownText:
    unknown = UnknownText(known)
    unknown.count(features_of(known, texts), texts)
    return unknown


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (CHINESE, "a model that knows Chinese, such as bertine-zh"),
        ("この映画はとても面白いです", "knows Japanese: a multilingual one"),
        (
            "영화 가 아주 좋아요 다시 보고 싶은 정말 멋진 그런 것",
            "knows Korean: a multilingual one",
        ),
        ("ดี มาก ไป ที่ มี ใน ของ ได้ ให้ จะ", "knows Thai: a multilingual one"),
        ("هذا فيلم جيد جدا و قد اعجبني في كل شيء", "knows Arabic: a multilingual one"),
        ("это очень хороший фильм и он мне понравился вчера вечером", "knows Cyrillic"),
        ("😀 😁 😂 😃 😄 😅 😆 😇 😈 😉", "a vocabulary of bytes"),
    ],
)
def test_scripts_are_said_with_a_kind_of_model_that_knows_them(text: str, advice: str) -> None:
    unknown = counted(tokenizer(), ["a good text.", text])
    note = unknown.note()
    assert note is not None
    assert advice in note
    assert "of the pieces of the texts are unknown to the vocabulary (read as [UNK]; " in note
    assert unknown.mostly == 1
    assert (
        "1 of 2 texts is mostly unknown to the vocabulary (line 2)"
        in unknown.lines_for_answers()[1]
    )


def test_the_share_and_the_most_frequent_characters_are_said() -> None:
    unknown = counted(tokenizer(), ["no", "好的", *["好好"] * 5])
    assert (unknown.pieces, unknown.unknown) == (14, 12)
    assert "86% of the pieces" in str(unknown.note())
    assert "most often 好, 的" in str(unknown.note())
    # A vocabulary that knows Chinese lacks but some of it.
    other = counted(tokenizer(["的"]), ["好" * 20]).note()
    assert "knows Chinese: a multilingual one" in str(other)


@pytest.mark.parametrize(
    "texts",
    [
        ["a text of plain words." * 20],
        ["a text of plain words." * 20, "a 好"],  # a few characters among many
        ["one word 好"],  # one of a short text
        [""],
        [],
    ],
)
def test_nothing_is_said_of_text_that_is_known(texts: list[str]) -> None:
    assert counted(tokenizer(), texts).lines_for_answers() == []


def test_counts_go_on() -> None:
    first, second = counted(tokenizer(), ["好" * 20, "a"]), UnknownText(tokenizer())
    second.go_on(first.counts())
    second.read(["b"])
    assert (second.texts, second.pieces, second.unknown, second.mostly) == (3, 22, 20, 1)
    said = " ".join(second.lines_for_answers())  # what is no longer known is left out
    assert "(read as [UNK])" in said
    assert "take a model of their language" in said
    assert "1 of 3 texts is mostly unknown to the vocabulary;" in said


def test_answers_to_such_texts_are_flagged() -> None:
    known = tokenizer()
    answers = [toys.prediction("x", {"x": 0.9, "y": 0.1})] * 3
    texts = ["a b c", "好的", "好 a b"]
    features = features_of(known, texts)
    flagged = with_flags([*answers], [[text] for text in texts], features, known)
    assert [answer.unknown for answer in flagged] == [0.0, 1.0, 0.0]
    assert flagged[1].to_json(False) == {"label": "x", "probability": 0.9, "unknown": 1.0}
    assert "unknown" not in flagged[0].to_json(True)
    assert flagged[1].lines()[1] == "100% of the pieces of the text are unknown to the vocabulary"
    task: Task[Prediction] = TextClassification(("x", "y"))
    assert values_of(task.output_columns(False), flagged[1])["unknown"] == 1.0
    assert values_of(task.output_columns(False), flagged[0]) == {"label": "x", "probability": 0.9}


EMPTY = [
    ("", True),
    ("   ", True),
    ("\t\n", True),
    ("\u200b", True),
    ("\u00ad \x00", True),
    ("\u3000", True),
    ("a", False),
    (".", False),
    ("好", False),
    (" the cat ", False),
]


@pytest.mark.parametrize(("text", "empty"), EMPTY)
def test_empty_texts_are_found(text: str, empty: bool) -> None:
    known = toys.tokenizer()
    features = features_of(known, ["the cat", text])
    assert empty_rows([["the cat"], [text]], features, known) == ({1} if empty else set())


def test_of_pairs_and_choices_all_texts_are_empty() -> None:
    known = toys.tokenizer()
    task = TextClassification(("x", "y"), text_columns=("a", "b"))
    texts = [("", ""), ("", "the cat"), ("the cat", " "), ("\u200b", "\u200b")]
    examples = Examples("t", ("a", "b"), None, [Example(each) for each in texts])
    assert empty_rows(texts, task.featurize(examples, known), known) == {0, 3}


@pytest.mark.parametrize(
    ("answer", "written", "columns"),
    [
        (
            toys.prediction("x", {"x": 0.9, "y": 0.1}),
            {"label": None, "probability": None, "probabilities": None},
            TextClassification(("x", "y")),
        ),
        (
            LabelSet(("x",), all_labels=("x", "y"), numbers=(0.9, 0.1)),
            {"labels": None, "probabilities": None},
            MultiLabel(("x", "y")),
        ),
        (Score(3.5), {"score": None}, TextRegression()),
    ],
)
def test_of_an_empty_text_nothing_is_answered(
    answer: Answer, written: dict[str, None], columns: Task[Any]
) -> None:
    known = toys.tokenizer()
    (flagged,) = with_flags([answer], [[""]], features_of(known, [""]), known)
    assert flagged.empty
    assert flagged.to_json(True) == {**written, "empty": True}
    assert flagged.cells() == ("(no answer)", "")
    assert flagged.flag_lines() == ["the text is empty"]
    values = values_of(columns.output_columns(True), flagged)
    assert values.pop("empty") is True
    assert set(values.values()) == {None}
    assert columns.shown([""], flagged, True)[1] == []
    assert not answer.empty
    assert "empty" not in answer.to_json(True)


def test_pairs_are_one_text() -> None:
    known = toys.tokenizer()
    task = TextClassification(("x", "y"), text_columns=("a", "b"))
    examples = Examples("t", ("a", "b"), None, [Example(("the cat", "好 的 吗"))])
    assert mostly_unknown(task.featurize(examples, known), known) == {0: pytest.approx(3 / 5)}
    assert np.isclose(counted(known, ["the cat 好 的 吗"]).share, 3 / 5)
