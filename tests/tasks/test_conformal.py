"""Sets of labels: they cover as often as is asked for, whatever the model is worth."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.tasks.calibration import COVERAGES, Conformal, Decisions, coverage_line, label_sets

LABELS = 6


def drawn(count: int, seed: int, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels; `sharpness` says how far the logits exaggerate what they know."""
    draw = np.random.default_rng(seed)
    true = draw.normal(size=(count, LABELS)) * 1.5
    labels = (true + draw.gumbel(size=true.shape)).argmax(1)  # drawn by the softmax of `true`
    return true * sharpness, labels


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_the_label_is_in_its_set_as_often_as_is_asked_for(
    coverage: float, sharpness: float
) -> None:
    """Over many draws of 199 examples the mean coverage is from c to c + 1 / 200, and higher where
    the best label is added; a bound by the spread of the mean."""
    covered, bare, size, rounds = 0, 0, 2000, 60
    for seed in range(rounds):
        logits, labels = drawn(199, 2 * seed, sharpness)
        conformal = Conformal.of(Decisions.of(list(logits), labels.tolist()))
        assert conformal is not None
        least = conformal.bound(coverage)
        logits, labels = drawn(size, 2 * seed + 1, sharpness)
        table = softmax(logits)
        inside = table[np.arange(size), labels] >= least
        bare += int(inside.sum())
        covered += int((inside | (table.argmax(1) == labels)).sum())
        sets = label_sets(table[:50], least)
        expected = inside | (table.argmax(1) == labels)
        assert [label in found for label, found in zip(labels, sets, strict=False)] == expected[
            :50
        ].tolist()
    # Of one draw the coverage is a beta variable of spread sqrt(c (1 - c) / 201).
    spread = math.sqrt(coverage * (1 - coverage) / 201 / rounds) + 0.001
    assert bare / (size * rounds) == pytest.approx(coverage + 0.0025, abs=3 * spread + 0.0025)
    assert covered >= bare


@pytest.mark.slow
def test_more_coverage_has_larger_sets_of_the_most_probable_labels() -> None:
    logits, labels = drawn(500, 0, 1.0)
    conformal = Conformal.of(Decisions.of(list(logits), labels.tolist()))
    assert conformal is not None
    table = softmax(drawn(300, 1, 1.0)[0])
    before = [[int(row.argmax())] for row in table]
    for coverage in COVERAGES:
        if coverage > max(conformal.least):
            break
        sets = label_sets(table, conformal.bound(coverage))
        for row, small, large in zip(table, before, sets, strict=True):
            assert large[: len(small)] == small
            assert large == np.argsort(-row, kind="stable")[: len(large)].tolist()
        before = sets


@settings(max_examples=20, deadline=None)
@given(st.integers(50, 400))
def test_the_bounds_are_those_of_the_rank(count: int) -> None:
    logits, labels = drawn(count, count, 1.0)
    conformal = Conformal.of(Decisions.of(list(logits), labels.tolist()))
    assert conformal is not None
    right = softmax(logits)[np.arange(count), labels]
    for coverage, bound in conformal.least.items():
        rank = math.ceil(round((count + 1) * coverage, 6))
        assert (right >= bound).sum() == pytest.approx(rank, abs=0)
    again = Conformal.from_facts(json.loads(json.dumps(conformal.to_dict())))
    assert again == conformal
    assert conformal.bound(0.8999999999999) == conformal.bound(0.9)
    assert conformal.bound(0.5017) == conformal.least[0.505]


def test_too_few_examples_are_told() -> None:
    logits, labels = drawn(60, 0, 1.0)
    conformal = Conformal.of(Decisions.of(list(logits), labels.tolist()))
    assert conformal is not None
    with pytest.raises(BertineError, match=r"60 validation examples .* enough for 0.98 at most"):
        conformal.bound(0.99)
    assert Conformal.of(Decisions.of(list(logits[:49]), labels[:49].tolist())) is None
    assert Conformal.of(None) is None
    for damaged in (None, [], {"least": 3}, {"num_examples": 60, "least": {"0.9": "high"}}):
        assert Conformal.from_facts(damaged) is None


def test_several_decisions_of_one_example_make_no_sets() -> None:
    logits, labels = drawn(100, 0, 1.0)
    assert Conformal.of(Decisions(logits, labels, np.arange(100) // 2)) is None


def test_what_a_report_says() -> None:
    metrics, line = coverage_line(0.9, [("a",), ("b", "a"), ("b",)], ["a", "a", "a"])
    assert metrics == {"coverage": pytest.approx(2 / 3), "mean_set_size": pytest.approx(4 / 3)}
    assert "in 66.7% of them" in line
    assert "1.33 labels on average; least often of 'a': 66.7% of 3" in line
