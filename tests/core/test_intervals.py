"""Intervals of scores: sound where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bertine.core.scores import jackknife_interval


def without_each_part(values: np.ndarray) -> list[float]:
    parts = np.arange(len(values)) % 20
    return [float(values[parts != part].mean()) for part in range(20)]


def test_the_jackknife_of_a_mean_is_students_interval_of_the_means_of_the_parts() -> None:
    values = np.random.default_rng(0).normal(size=400)
    means = values.reshape(-1, 20).mean(0)
    expected = stats.t.interval(0.95, 19, loc=means.mean(), scale=stats.sem(means))
    found = jackknife_interval(float(values.mean()), without_each_part(values))
    assert found == pytest.approx(expected)


def test_the_jackknife_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        # Of 300 answers a model has right, some are lost and some won: differences of -1, 0, 1.
        values = draw.choice([-1.0, 0.0, 1.0], size=300, p=[0.05, 0.92, 0.03])
        low, high = jackknife_interval(float(values.mean()), without_each_part(values))
        held += low <= -0.02 <= high
    assert 0.92 <= held / 400 <= 0.98


def test_as_many_parts_as_it_is_made_for() -> None:
    with pytest.raises(ValueError, match="19 scores"):
        jackknife_interval(0.5, [0.5] * 19)
