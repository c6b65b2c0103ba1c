"""Batches by length: nothing lost, nothing twice, the budget held, the order a pure function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertine.core.errors import BertineError
from bertine.corpora.batch import (
    Batch,
    FeatureBatches,
    batches_per_epoch,
    epoch_and_batch,
    grouped_by_length,
    restore_order,
    token_budget_batches,
)

lengths_of = st.lists(st.integers(1, 60), max_size=80)


@given(lengths=lengths_of, budget=st.integers(1, 200))
def test_budget_batches_hold_every_index_once(lengths: list[int], budget: int) -> None:
    batches = token_budget_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert padded <= budget or len(batch) == 1
    longest = [max(lengths[index] for index in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


@given(lengths=lengths_of)
def test_results_come_back_in_the_order_of_the_inputs(lengths: list[int]) -> None:
    batches = token_budget_batches(lengths, 100)
    results = [[f"{index}:{lengths[index]}" for index in batch] for batch in batches]
    expected = [f"{index}:{length}" for index, length in enumerate(lengths)]
    assert restore_order(batches, results) == expected


def test_impossible_budgets_are_refused() -> None:
    with pytest.raises(BertineError, match="at least 1"):
        token_budget_batches([1], 0)
    with pytest.raises(BertineError, match="batch_size is 0"):
        grouped_by_length([1], 0, seed=0, epoch=0)


@given(
    lengths=lengths_of, size=st.integers(1, 9), window=st.integers(1, 4), epoch=st.integers(0, 3)
)
def test_an_epoch_sees_every_example_once(
    lengths: list[int], size: int, window: int, epoch: int
) -> None:
    batches = grouped_by_length(lengths, size, seed=7, epoch=epoch, window=window)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert len(batches) == batches_per_epoch(len(lengths), size)
    assert sum(len(batch) != size for batch in batches) <= 1
    assert batches == grouped_by_length(lengths, size, seed=7, epoch=epoch, window=window)


def test_epochs_and_seeds_differ_and_padding_is_small() -> None:
    draw = np.random.default_rng(0)
    lengths = draw.integers(5, 128, size=3200).tolist()
    batches = grouped_by_length(lengths, 32, seed=0, epoch=0)
    assert batches != grouped_by_length(lengths, 32, seed=0, epoch=1)
    assert batches != grouped_by_length(lengths, 32, seed=1, epoch=0)
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    assert padded / sum(lengths) < 1.15  # 1.9 in random order
    # The order of the batches is shuffled: short ones do not come first.
    means = [np.mean([lengths[i] for i in batch]) for batch in batches]
    half = len(means) // 2
    assert abs(np.mean(means[:half]) - np.mean(means[half:])) < 20


@given(step=st.integers(0, 500), count=st.integers(1, 60), size=st.integers(1, 10))
def test_steps_run_through_the_epochs(step: int, count: int, size: int) -> None:
    epoch, index = epoch_and_batch(step, count, size)
    per_epoch = batches_per_epoch(count, size)
    assert 0 <= index < per_epoch
    assert epoch * per_epoch + index == step


@dataclass
class Feature:
    input_ids: list[int]
    row: int


def _collate(features: object) -> Batch:
    assert isinstance(features, list)
    empty = torch.zeros(0)
    return Batch(empty, empty, empty, rows=[feature.row for feature in features])


def test_the_batch_of_a_step_does_not_depend_on_the_steps_before() -> None:
    features = [Feature([0] * (1 + row % 7), row) for row in range(25)]
    through = FeatureBatches(features, _collate, batch_size=4, seed=3)
    assert through.steps_per_epoch == 7
    rows = [through.batch(step).rows for step in range(21)]
    for epoch in range(3):
        seen = [row for step in rows[7 * epoch : 7 * epoch + 7] for row in step]
        assert sorted(seen) == list(range(25))
    for step in (20, 3, 8, 0):
        fresh = FeatureBatches(features, _collate, batch_size=4, seed=3)
        assert fresh.batch(step).rows == rows[step]
    with pytest.raises(BertineError, match="no examples"):
        FeatureBatches([], _collate, batch_size=4, seed=3)
