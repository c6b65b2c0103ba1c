"""ELMo's LSTM against the same written out word by word."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bertine.contrib.elmo.model import ProjectedLstm

SIZES = [4, 4, 3, 1, 1]


def layer(clip: float = 0.3) -> ProjectedLstm:
    torch.manual_seed(3)
    lstm = ProjectedLstm(5, 7, 3, cell_clip=clip, projection_clip=clip / 2)
    for weight in lstm.parameters():
        torch.nn.init.normal_(weight, 0, 0.7)
    return lstm


def word_by_word(
    lstm: ProjectedLstm, x: Tensor, sizes: list[int], state: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, dict[str, float]]:
    """The recurrence by PyTorch's own operations, and how often each bound was met."""
    states, cells = list(state[0]), list(state[1])
    out, cut = [], {"cell": 0.0, "state": 0.0}
    at = 0
    for size in sizes:
        for row in range(size):
            gates = lstm.weight_ih @ x[at] + lstm.weight_hh @ states[row] + lstm.bias
            enter, keep, new, show = gates.chunk(4)
            raw = keep.sigmoid() * cells[row] + enter.sigmoid() * new.tanh()
            cells[row] = raw.clamp(-lstm.cell_clip, lstm.cell_clip)
            projected = lstm.weight_hr @ (show.sigmoid() * cells[row].tanh())
            states[row] = projected.clamp(-lstm.projection_clip, lstm.projection_clip)
            cut["cell"] += float((raw.abs() > lstm.cell_clip).sum())
            cut["state"] += float((projected.abs() > lstm.projection_clip).sum())
            out.append(states[row])
            at += 1
    return torch.stack(out), torch.stack(states), torch.stack(cells), cut


def begin() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    # A fifth sequence has no words in this batch, and keeps what it has.
    return torch.randn(5, 3) * 0.1, torch.randn(5, 7) * 0.2


@pytest.mark.parametrize("clip", [0.3, 100.0])
def test_states_and_gradients_are_those_of_the_formula(clip: float) -> None:
    lstm = layer(clip)
    x = torch.randn(sum(SIZES), 5, requires_grad=True)
    grad = torch.randn(sum(SIZES), 3)
    out, (last, cells) = lstm(x, SIZES, begin())
    out.backward(grad)
    ours = [x.grad, *(p.grad for p in lstm.parameters())]
    x.grad = None
    lstm.zero_grad()
    expected, last_expected, cells_expected, cut = word_by_word(lstm, x, SIZES, begin())
    expected.backward(grad)
    assert (cut["cell"] > 3 and cut["state"] > 3) == (clip < 1), "the bounds are not tried"
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(last, last_expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(cells, cells_expected, atol=1e-6, rtol=1e-5)
    for mine, theirs in zip(ours, [x.grad, *(p.grad for p in lstm.parameters())], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_two_batches_with_the_state_carried_are_one() -> None:
    lstm = layer()
    x = torch.randn(12, 5)
    whole, end = lstm(x, [3] * 4, (torch.zeros(3, 3), torch.zeros(3, 7)))
    first, middle = lstm(x[:6], [3] * 2, (torch.zeros(3, 3), torch.zeros(3, 7)))
    second, last = lstm(x[6:], [3] * 2, middle)
    torch.testing.assert_close(torch.cat([first, second]), whole, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(last[1], end[1], atol=1e-6, rtol=1e-5)


def test_bf16_is_close_to_fp32() -> None:
    lstm, x = layer(), torch.randn(sum(SIZES), 5)
    exact, _ = lstm(x, SIZES, begin())
    with torch.autocast("cpu", torch.bfloat16):
        close, _ = lstm(x, SIZES, begin())
    assert close.dtype == torch.float32
    assert 0 < (exact - close).abs().max() < 0.02
