"""Accuracy estimated without labels, on drawn texts whose true accuracy is known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bertine.tasks.drift import Drift, Reader, Readings, Reference, Sketch, damaged
from bertine.tasks.familiarity import Familiarity

LABELS = ("a", "b", "c", "d")
Drawn = tuple[Readings, np.ndarray]


def drawn(
    seed: int, count: int, damage: float = 0.0, shares: tuple[float, ...] = (0.25,) * 4
) -> Drawn:
    """Readings of texts and their labels. Damage makes texts stranger, of more pieces and wrong,
    while the model is nearly as sure as before."""
    draw = np.random.default_rng(seed)
    truth = draw.choice(4, count, p=shares)
    odds = draw.normal(2.5, 1.5, count)
    hurt = damage * draw.random(count) * 2
    right = draw.random(count) < 1 / (1 + np.exp(3 * hurt - odds))
    answers = np.where(right, truth, (truth + draw.integers(1, 4, count)) % 4)
    strange = draw.normal(0, 1, count) + hurt
    marks = np.column_stack([odds - 0.5 * hurt, strange, draw.normal(-1.5, 0.1, count) + hurt / 2])
    familiar = 0.5 * (1 - np.tanh(0.8 * strange))
    return Readings(answers, marks, familiar, np.zeros((count, 2), np.float32)), truth


def reference(seed: int = 0) -> Reference:
    nothing = Familiarity(np.zeros(2), np.zeros((1, 2)), np.zeros(800))
    kinds = [drawn(seed, 800, damage)[0] for damage in (0.0, 1.0, 0.0)]
    _, truth = drawn(seed, 800)
    # The damage changes neither the texts that are drawn nor their labels.
    return Reference.of(Reader(nothing, LABELS, 2), kinds, truth)


def compared(held: Reference, *parts: Drawn) -> tuple[Drift, float]:
    """The comparison, and the true accuracy."""
    sketch = Sketch(held)
    for readings, _ in parts:
        sketch.add(readings)
    right = np.concatenate([readings.answers == truth for readings, truth in parts])
    return sketch.compare(), float(right.mean())


def test_without_a_change_nothing_is_reported_and_the_interval_holds() -> None:
    results = [compared(reference(seed), drawn(1000 + seed, 1_000)) for seed in range(40)]
    for alarms in (
        [drift.fallen for drift, _ in results],
        [bool(drift.changed) for drift, _ in results],
    ):
        assert sum(alarms) <= 2
    inside = [drift.interval[0] <= true <= drift.interval[1] for drift, true in results]
    assert sum(inside) >= 35


def test_a_loss_that_the_probabilities_hide_is_estimated() -> None:
    for seed in range(3):
        held = reference(seed)
        drift, true = compared(held, drawn(50 + seed, 600, 0.7), drawn(70 + seed, 600))
        assert held.accuracy - true > 0.1
        assert drift.accuracy == pytest.approx(true, abs=0.04)
        assert drift.fallen
        assert drift.kinds["typing errors"] > 0.25
        assert "texts with typing errors" in drift.lines()[1]


def test_labels_that_became_more_and_fewer_are_named() -> None:
    drift, _ = compared(reference(), drawn(5, 1_000, shares=(0.55, 0.2, 0.2, 0.05)))
    assert [(label.label, label.change) for label in drift.changed][:2] == [
        ("a", "more"),
        ("d", "fewer"),
    ]
    shares = {label.label: label.now for label in drift.labels}
    assert shares["a"] == pytest.approx(0.55, abs=0.05)
    assert shares["d"] == pytest.approx(0.05, abs=0.04)
    assert sum(shares.values()) == pytest.approx(1)


def test_counts_in_parts_are_those_of_all() -> None:
    held, one, other = reference(), drawn(1, 300), drawn(2, 200)
    both = tuple(
        np.concatenate([a, b])
        for a, b in zip(vars(one[0]).values(), vars(other[0]).values(), strict=True)
    )
    whole = Readings(*both), np.concatenate([one[1], other[1]])
    assert compared(held, one, other)[0].to_dict() == compared(held, whole)[0].to_dict()


def test_a_record_is_kept_and_a_damaged_one_is_none() -> None:
    held = reference()
    facts: Any = json.loads(json.dumps(held.to_dict()))
    again = Reference.from_facts(facts, held.reader)
    assert again is not None
    texts = drawn(3, 200, 0.3)
    assert compared(again, texts)[0].to_dict() == compared(held, texts)[0].to_dict()
    few = Reader(held.reader.familiarity, LABELS[:3], 2)
    assert Reference.from_facts(facts, few) is None
    broken: list[Any] = [None, [], {}, {"edges": 3}]
    for wrong in (*broken, facts | {"cells": "?"}, facts | {"labels": ""}):
        assert Reference.from_facts(wrong, held.reader) is None


def test_damaged_copies_are_of_the_same_script_and_the_same_in_every_call() -> None:
    texts = ["where is my parcel today", "我的包裹今天在哪里呢", "", "a"] * 20
    for kind in (1, 2):
        copies = damaged(texts, kind)
        assert copies == damaged(texts, kind)
        assert len(copies) == len(texts)
        assert copies != texts
    letters = set("".join(texts))
    assert set("".join(damaged(texts, 1))) <= letters
    left = damaged(texts, 2)
    assert all(set(copy.split()) <= set(texts[0].split()) for copy in left[::4])
    assert any(0 < len(copy) < len(texts[1]) for copy in left[1::4])
