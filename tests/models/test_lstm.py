"""The LSTM of our own gives what PyTorch's gives, forwards and backwards."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import bertine.models.recurrent as ours
from bertine.models.recurrent import run_lstm

LENGTHS = [[7, 3, 5], [1, 1], [4], [1, 6, 6, 2, 1]]


def made(lengths: list[int], layers: int = 2, units: int = 6) -> tuple[nn.LSTM, PackedSequence]:
    torch.manual_seed(len(lengths))
    lstm = nn.LSTM(5, units, layers, batch_first=True, bidirectional=True)
    x = torch.randn(len(lengths), max(lengths), 5, requires_grad=True)
    packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    return lstm, packed


def gradients(found: PackedSequence, lstm: nn.LSTM, packed: PackedSequence) -> list[Tensor]:
    found_at, _ = pad_packed_sequence(found, batch_first=True)
    weights = torch.randn(found_at.shape, generator=torch.Generator().manual_seed(5))
    loss = (found_at * weights).sum()
    return list(torch.autograd.grad(loss, [packed.data, *lstm.parameters()], retain_graph=True))


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("packed_weights", [True, False])
def test_it_is_pytorchs(
    lengths: list[int], layers: int, packed_weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not packed_weights:
        monkeypatch.setattr(ours, "has_packed", lambda dtype: False)
    lstm, packed = made(lengths, layers)
    expected, found = lstm(packed)[0], run_lstm(lstm, packed)
    assert torch.equal(found.batch_sizes, expected.batch_sizes)
    assert found.unsorted_indices is not None
    assert torch.equal(found.unsorted_indices, expected.unsorted_indices)
    torch.testing.assert_close(found.data, expected.data)
    first = gradients(found, lstm, packed)
    for mine, right in zip(first, gradients(expected, lstm, packed), strict=True):
        torch.testing.assert_close(mine, right, atol=1e-5, rtol=1e-4)
    # Nothing that was kept for the backward pass is written to.
    assert all(map(torch.equal, first, gradients(found, lstm, packed)))


@pytest.mark.parametrize("packed_weights", [True, False])
def test_in_bf16_it_is_nearly_that(packed_weights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not packed_weights:
        monkeypatch.setattr(ours, "has_packed", lambda dtype: False)
    lstm, packed = made([9, 30, 12, 1], units=64)
    expected = lstm(packed)[0]
    with torch.autocast("cpu", torch.bfloat16):
        found = run_lstm(lstm, packed)
    assert found.data.dtype == torch.float32
    assert (found.data - expected.data).abs().max() < 0.02
    for mine, right in zip(
        gradients(found, lstm, packed), gradients(expected, lstm, packed), strict=True
    ):
        assert mine.dtype == torch.float32
        assert (mine - right).norm() < 0.02 * right.norm()


def test_dropout_is_between_the_layers_and_in_training_alone() -> None:
    lstm, packed = made([6, 4])
    plain = run_lstm(lstm, packed).data
    dropping = copy.deepcopy(lstm)
    dropping.dropout = 0.5
    assert torch.equal(run_lstm(dropping.eval(), packed).data, plain)
    torch.manual_seed(3)
    first = run_lstm(dropping.train(), packed).data
    torch.manual_seed(3)
    assert torch.equal(run_lstm(dropping, packed).data, first)
    assert not torch.equal(first, plain)
    # Not on what comes out.
    assert (first != 0).all()


def test_without_gradients() -> None:
    lstm, packed = made([6, 4])
    with torch.inference_mode():
        torch.testing.assert_close(run_lstm(lstm, packed).data, lstm(packed)[0].data)
