"""Two phases of pre-training are one sequence of batches."""

from __future__ import annotations

import pytest
import torch

import toys
from bertine.core.errors import BertineError
from bertine.corpora.pretraining_data import (
    PhasedData,
    PretrainingData,
    steps_for_tokens,
)
from bertine.corpora.store import TokenStore


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> list[PretrainingData]:
    store = TokenStore.open(toys.write_store(tmp_path_factory.mktemp("phases") / "store"))
    return [
        toys.instances_of(store, toys.tokenizer(), batch_size=4, max_seq_length=length)
        for length in (16, 32)
    ]


def test_each_phase_begins_at_its_beginning(phases: list[PretrainingData]) -> None:
    data = PhasedData(phases, [0.9, 0.1], 30)
    assert data.starts == [0, 27]
    assert [data.counts(done) for done in (0, 26, 28, 30)] == [[0, 0], [26, 0], [27, 1], [27, 3]]
    for step in range(30):
        phase, within = (0, step) if step < 27 else (1, step - 27)
        expected = phases[phase].batch(within)
        assert torch.equal(data.batch(step).input_ids, expected.input_ids)
        assert torch.equal(data.batch(step).attention_mask, expected.attention_mask)
    assert max(data.batch(step).input_ids.shape[1] for step in range(27)) == 16
    assert max(data.batch(step).input_ids.shape[1] for step in range(27, 30)) > 16


def test_the_facts_name_the_phases(phases: list[PretrainingData]) -> None:
    one, two = PhasedData(phases[:1], [1.0], 30), PhasedData(phases, [0.5, 0.5], 30)
    assert "phase_starts" not in one.describe()
    assert two.describe()["phase_starts"] == [15]
    assert two.describe()["phase_lengths"] == [16, 32]
    assert one.epochs == 30 * 4 / phases[0].instances_per_epoch
    assert two.epochs > one.epochs


def test_a_phase_without_steps_is_told(phases: list[PretrainingData]) -> None:
    assert not any("none is left" in line for line in PhasedData(phases, [0.9, 0.1], 10).warnings())
    (line,) = [w for w in PhasedData(phases, [0.9, 0.1], 4).warnings() if "none is left" in w]
    assert "of 4 steps" in line
    assert "32 tokens" in line


def test_tokens_become_steps(phases: list[PretrainingData]) -> None:
    steps = steps_for_tokens(20_000, phases, [0.9, 0.1])
    data = PhasedData(phases, [0.9, 0.1], steps)
    assert sum(data.batch(step).num_tokens for step in range(steps)) == pytest.approx(
        20_000, rel=0.05
    )


def test_no_steps_are_refused(phases: list[PretrainingData]) -> None:
    with pytest.raises(BertineError, match="steps is 0"):
        PhasedData(phases, [0.9, 0.1], 0)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4])
def test_tokens_become_steps_for_small_batches_of_uneven_lengths(
    phases: list[PretrainingData], batch_size: int
) -> None:
    found = []
    for seed in range(6):
        data = toys.instances_of(
            phases[0].store,
            toys.tokenizer(),
            batch_size=batch_size,
            max_seq_length=64,
            short_seq_prob=1.0,
            seed=seed,
        )
        found.append(steps_for_tokens(100_000, [data], [1.0]))
    assert max(found) < 1.1 * min(found)
