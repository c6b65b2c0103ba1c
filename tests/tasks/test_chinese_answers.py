"""Scores of Chinese answers: the expected ones are those of CMRC 2018's own script (v5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertine.data.squad import Gold
from bertine.tasks.span_scores import (
    SpanPrediction,
    answer_scores,
    mostly_chinese,
    span_report,
    units,
)


@pytest.mark.parametrize(
    ("guess", "golds", "exact", "f1"),
    [
        ("1963年", ["1963年"], 1.0, 1.0),
        ("《红楼梦》。", ["红楼梦"], 1.0, 1.0),
        ("IBM公司", ["ibm公司"], 1.0, 1.0),
        ("范廷颂是越南枢机", ["范廷颂枢机", "范廷颂"], 0.0, 6 / 11),
        # The longest run counts, not all characters in common: 南 and 京 do not meet.
        ("南方之京", ["南京"], 0.0, 2 / 6),
        ("黄色", ["蓝天", "海"], 0.0, 0.0),
        # A run of Latin letters is one unit, as many letters as it has.
        ("Henry A. Walsh", ["建筑师Henry A. Walsh"], 0.0, 6 / 9),
        ("6.5万至8.5万人", ["6.5万至8.5万人次"], 0.0, 12 / 13),
        ("2328℃", ["23℃"], 0.0, 0.0),
        ("1,300人。", ["1,300人"], 1.0, 1.0),
        ("……", ["。"], 0.0, 0.0),
    ],
)
def test_scores_are_those_of_the_published_script(
    guess: str, golds: list[str], exact: float, f1: float
) -> None:
    scores = answer_scores(guess, golds, v2=False, in_chinese=True)
    assert scores == pytest.approx((exact, f1))


@given(
    st.text(alphabet="天地人。，ab1. -%", max_size=12), st.text(alphabet="天地人，ab1", max_size=12)
)
def test_scores_of_any_texts(guess: str, gold: str) -> None:
    exact, f1 = answer_scores(guess, [gold, gold], v2=False, in_chinese=True)
    assert 0 <= f1 <= 1
    same = answer_scores(gold, [gold], v2=False, in_chinese=True)
    assert same == ((1.0, 1.0) if units(gold) else (same[0], 0.0))
    if exact and units(gold):
        assert f1 == 1
    assert f1 == answer_scores(gold, [guess], v2=False, in_chinese=True)[1] or not guess


def test_a_question_without_an_answer_is_scored_as_in_squad() -> None:
    assert answer_scores("", [], v2=True, in_chinese=True) == (1.0, 1.0)
    assert answer_scores("天", [], v2=True, in_chinese=True) == (0.0, 0.0)
    assert answer_scores("", ["天"], v2=True, in_chinese=True) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("answers", "chinese"),
    [
        (["天", "地", "NBA"], True),
        (["天", "NBA"], False),
        (["oil"], False),
        ([], False),
        (["東京", "大阪です", "カレー", "1990年"], False),
        (["서울", "北京", "南京"], False),
    ],
)
def test_mostly_chinese(answers: list[str], chinese: bool) -> None:
    assert mostly_chinese(answers) is chinese


def test_the_report_says_which_rules_were_taken() -> None:
    def scored(answer: str, gold: str) -> tuple[float, str]:
        prediction = SpanPrediction(answer, 0, 1.0, None, ())
        report = span_report([prediction], [Gold((gold,))], unanswerable=False, null_threshold=None)
        return report.metrics["f1"], "\n".join(report.lines())

    f1, text = scored("南京大学", "南京")
    assert f1 == pytest.approx(2 / 3)
    assert "CMRC 2018" in text
    f1, text = scored("the oil crisis", "oil")
    assert f1 == pytest.approx(2 / 3)
    assert "CMRC 2018" not in text
