"""A step computed in parts is the step computed at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import toys
from bertine.corpora.batch import Batch, split
from bertine.models.heads import Model
from bertine.objectives.losses import MlmNsp, Objective
from bertine.tasks.classification import TextClassification
from bertine.training.step import accumulate

#: (ids, segments, next_sentence_label, {(position, label)}) of one sequence, without padding.
Sequence = tuple[tuple[int, ...], tuple[int, ...], int, frozenset[tuple[int, int]]]


def make_batch(lengths: list[int], masked: list[int], vocab_size: int = 33) -> Batch:
    """Sequence i has ``lengths[i]`` random ids, of which the first ``masked[i]`` that a random
    order names are to be predicted."""
    draw = torch.Generator().manual_seed(sum(lengths) + 7 * sum(masked))
    count, width = len(lengths), max(lengths)
    real = torch.arange(width) < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, vocab_size, (count, width), generator=draw) * real
    places = [
        row * width + int(position)
        for row, (length, chosen) in enumerate(zip(lengths, masked, strict=True))
        for position in torch.randperm(length, generator=draw)[:chosen].sort().values
    ]
    return Batch(
        ids,
        real,
        torch.randint(0, 2, (count, width), generator=draw) * real,
        {
            "mlm_positions": torch.tensor(places, dtype=torch.int64),
            "mlm_labels": torch.randint(5, vocab_size, (len(places),), generator=draw),
            "next_sentence_label": torch.randint(0, 2, (count,), generator=draw),
        },
        list(range(100, 100 + count)),
    )


def sequences(batch: Batch) -> dict[int, Sequence]:
    """What each row of `batch` says, by the number of its example."""
    width = batch.input_ids.shape[1]
    found = {}
    for at, row in enumerate(batch.rows):
        length = int(batch.attention_mask[at].sum())
        mine = batch.targets["mlm_positions"] // width == at
        positions = (batch.targets["mlm_positions"][mine] % width).tolist()
        labels = batch.targets["mlm_labels"][mine].tolist()
        assert len(set(positions)) == len(positions)
        found[row] = (
            tuple(batch.input_ids[at, :length].tolist()),
            tuple(batch.token_type_ids[at, :length].tolist()),
            int(batch.targets["next_sentence_label"][at]),
            frozenset(zip(positions, labels, strict=True)),
        )
    return found


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=9))
    return make_batch(lengths, [draw(st.integers(0, length)) for length in lengths])


@given(batches(), st.integers(1, 60))
def test_the_parts_are_the_batch(batch: Batch, max_tokens: int) -> None:
    parts = split(batch, max_tokens)
    found: dict[int, Sequence] = {}
    for part in parts:
        found.update(sequences(part))
        shape = part.input_ids.shape
        assert part.attention_mask.shape == part.token_type_ids.shape == shape
        longest = int(part.attention_mask.sum(1).max())
        if len(parts) > 1:
            assert shape[1] == longest  # no column of padding only
        assert part.input_ids.numel() <= max_tokens or shape[0] == 1
        positions = part.targets["mlm_positions"]
        assert torch.equal(positions, positions.sort().values)
    assert sum(part.num_sequences for part in parts) == batch.num_sequences
    assert found == sequences(batch)
    again = split(batch, max_tokens)
    assert [part.rows for part in again] == [part.rows for part in parts]


def test_a_batch_within_the_budget_is_not_touched() -> None:
    batch = make_batch([4, 6], [1, 2])
    assert split(batch, 12) == [batch]
    assert len(split(batch, 11)) == 2


def gradients(model: Model, objective: Objective, parts: list[Batch]) -> dict[str, Tensor]:
    model.zero_grad()
    terms = accumulate(model, objective, parts, dtype=torch.float32, seeds=[0, 0])
    assert len(terms) == len(parts)
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # Absolute: a rounding in fp32 of the largest gradient of this parameter.
        atol = 2e-6 * float(value.abs().max()) + 1e-9
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=atol, msg=name)


#: Sequences of one length but with 10, 0, 1 and 0 masked tokens; and very different ones.
UNEVEN = [
    ([12, 12, 12, 12], [10, 0, 1, 0], 12),
    ([12, 11, 3, 2, 2, 1], [9, 1, 1, 0, 2, 0], 13),
    ([9, 9, 9, 9, 9], [4, 0, 0, 0, 0], 18),
]


@pytest.mark.parametrize(("lengths", "masked", "max_tokens"), UNEVEN)
def test_pretraining_gradients_are_those_of_the_large_batch(
    lengths: list[int], masked: list[int], max_tokens: int
) -> None:
    model = toys.pretraining_model(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2
    ).train()
    batch = make_batch(lengths, masked, model.config.vocab_size)
    whole = gradients(model, MlmNsp(), [batch])
    parts = split(batch, max_tokens)
    assert len(parts) >= 3
    assert_close(gradients(model, MlmNsp(), parts), whole)
    # The means of the parts averaged, as is done elsewhere, are something else.
    averaged: dict[str, Tensor] = {}
    for part in parts:
        for name, value in gradients(model, MlmNsp(), [part]).items():
            averaged[name] = averaged.get(name, torch.zeros(())) + value / len(parts)
    name = "heads.mlm.bias"
    assert (averaged[name] - whole[name]).norm() > 0.1 * whole[name].norm()


def test_the_loss_is_the_mean_over_all_targets() -> None:
    """Against cross-entropy written out, over the whole batch."""
    model = toys.pretraining_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    batch = make_batch([7, 5, 6], [3, 0, 1], model.config.vocab_size)
    mlm, nsp = toys.pretraining_logits(model, batch)
    loss = torch.nn.functional.cross_entropy(mlm, batch.targets["mlm_labels"])
    loss += torch.nn.functional.cross_entropy(nsp, batch.targets["next_sentence_label"])
    loss.backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    assert_close(gradients(model, MlmNsp(), split(batch, 7)), expected)


def test_classification_gradients_are_those_of_the_large_batch() -> None:
    task = TextClassification(("a", "b", "c"), max_length=16)
    settings = toys.config(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2
    )
    torch.manual_seed(1)
    model = Model(settings, task.heads(settings)).train()
    batch = make_batch([12, 3, 5, 4, 12, 1, 2], [0] * 7, settings.vocab_size)
    batch.targets = {"labels": torch.tensor([0, 2, 1, 1, 0, 2, 2])}
    parts = split(batch, 24)
    assert [part.num_sequences for part in parts] == [2, 4, 1]
    labels = [label for part in parts for label in part.targets["labels"].tolist()]
    assert labels == [0, 0, 2, 1, 1, 2, 2]
    assert_close(gradients(model, task, parts), gradients(model, task, [batch]))


def test_dropout_differs_between_parts_and_steps(store: Path) -> None:
    model = toys.pretraining_model(hidden_dropout_prob=0.3).train()
    batch = toys.pretraining_data(store).batch(0)

    def loss(step: int, parts: int) -> list[float]:
        found = accumulate(model, MlmNsp(), [batch] * parts, dtype=torch.float32, seeds=[4, step])
        return [float(terms["mlm"].total.detach()) for terms in found]

    assert loss(0, 2) == loss(0, 2)
    assert len({*loss(0, 2), *loss(1, 2)}) == 4
