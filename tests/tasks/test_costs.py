"""Costs: the label of least expected cost, by hand and by trying all; mistakes in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.tasks.calibration import Costs
from bertine.tasks.classification import TextClassification

LABELS = ("ham", "spam")
FILE = "true,ham,spam\nham,0,10\nspam,1,0\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "costs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_dear_mistake_needs_a_high_probability(tmp_path: Path) -> None:
    costs = Costs.read(write(tmp_path, FILE), LABELS)
    # Taking ham for spam costs ten times as much: spam from 10 / 11 on.
    chances = np.array([[0.4, 0.6], [0.1, 0.9], [0.08, 0.92]])
    answers, left_open = costs.decide(chances)
    assert [LABELS[at] for at in answers] == ["ham", "ham", "spam"]
    assert not left_open.any()
    assert costs.mean(np.array([0, 1, 0]), answers, left_open) == pytest.approx((0 + 1 + 10) / 3)


def test_no_answer_has_a_cost_of_its_own(tmp_path: Path) -> None:
    text = "true,spam,(no answer),ham\nspam,0,0.5,1\nham,10,0.5,0\n"  # in any order
    costs = Costs.read(write(tmp_path, text), LABELS)
    chances = np.array([[0.6, 0.4], [0.4, 0.6], [0.04, 0.96]])
    answers, left_open = costs.decide(chances)
    assert [LABELS[at] for at in answers] == ["ham", "ham", "spam"]
    assert left_open.tolist() == [False, True, False]
    assert costs.mean(np.array([0, 1, 1]), answers, left_open) == pytest.approx(0.5 / 3)


@given(
    st.integers(2, 5).flatmap(
        lambda k: st.tuples(
            st.lists(st.lists(st.integers(0, 9), min_size=k, max_size=k), min_size=k, max_size=k),
            st.lists(st.integers(1, 9), min_size=k, max_size=k),
        )
    )
)
def test_no_label_has_a_lower_expected_cost(drawn: tuple[list[list[int]], list[int]]) -> None:
    table, weights = drawn
    chances = np.array([weights]) / sum(weights)
    costs = Costs(tuple(tuple(map(float, row)) for row in table))
    (answer,), _ = costs.decide(chances)
    expected = [
        sum(chances[0, true] * table[true][guess] for true in range(len(table)))
        for guess in range(len(table))
    ]
    assert expected[answer] == pytest.approx(min(expected))


def test_equal_costs_for_all_mistakes_change_nothing(tmp_path: Path) -> None:
    plain = TextClassification(("a", "b", "c"), ("text",))
    costs = Costs(((0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)))
    by_cost = TextClassification(("a", "b", "c"), ("text",), costs=costs)
    features = plain.featurize(plain.examples_of(["a cat"] * 20), toys_tokenizer())
    logits = list(np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32))
    assert plain.decode(logits, features) == by_cost.decode(logits, features)


def toys_tokenizer():  # type: ignore[no-untyped-def]
    import toys

    return toys.tokenizer()


def test_the_report_has_the_mean_cost_with_and_without(tmp_path: Path) -> None:
    costs = Costs.read(write(tmp_path, FILE), LABELS)
    task = TextClassification(LABELS, ("text",), costs=costs)
    features = task.featurize(task.examples_of(["a", "b", "c"]), toys_tokenizer())
    logits = [np.log(np.array(row)) for row in ([0.4, 0.6], [0.3, 0.7], [0.9, 0.1])]
    report = task.report(task.decode(logits, features), ["ham", "spam", "ham"])
    assert report.metrics["mean_cost"] == pytest.approx(1 / 3)
    assert report.metrics["most_probable_mean_cost"] == pytest.approx(10 / 3)
    assert any("mean cost 0.3333 with the answers" in line for line in report.lines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("true,ham\nham,0\nspam,1\n", "no column for the label 'spam'"),
        ("true,ham,spam\nham,0,1\n", "no row for the label 'spam'"),
        ("true,ham,spam,eggs\nham,0,1,1\n", "the column 'eggs' is not one of the labels"),
        ("true,ham,spam\nham,0,1\neggs,1,0\n", "the row 'eggs' is not one of the labels"),
        ("true,ham,spam\nham,0,1\nham,1,0\n", "csv:3: a second row of the label 'ham'"),
        ("true,ham,spam\nham,0,much\nspam,1,0\n", "csv:2: the cost under 'spam' is 'much'"),
        ("true,ham,spam\nham,0,nan\nspam,1,0\n", "must be a number"),
        ("true\nham\n", "one column"),
    ],
)
def test_mistakes_are_told(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BertineError, match=r"costs\.csv") as caught:
        Costs.read(write(tmp_path, text), LABELS)
    assert message in str(caught.value)
