"""Attention within windows: in blocks it is what products over whole sequences give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.families import modernbert_layers
from bertine.families.modernbert_layers import Blocks, band, band_bias, block_attention
from bertine.models.dropout import stream
from bertine.models.layers import reference, written_attention

B, A, D = 3, 2, 4


def inputs(length: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(B * A, length, D, dtype=torch.float64).requires_grad_() for _ in range(3)]


def lengths(length: int) -> Tensor:
    """Real tokens of three sequences: all, some on the left, some on the right."""
    places = torch.arange(length)
    return torch.stack([places >= 0, places < length - 5, places >= length // 2])


def expected(
    q: Tensor, k: Tensor, v: Tensor, length: int, window: int, real: Tensor | None
) -> Tensor:
    """By PyTorch's attention with a mask of all pairs."""
    seen = band(length, window)[None].expand(B, -1, -1)
    if real is not None:
        seen = (seen & real[:, None, :]) | torch.eye(length, dtype=torch.bool)
    shape = (B, A, length, D)
    q, k, v = (x.view(shape) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None]).view(-1, length, D)


@pytest.mark.parametrize("padded", [False, True], ids=["no padding", "padding"])
@pytest.mark.parametrize(("length", "window"), [(70, 3), (64, 16), (65, 16), (33, 20), (20, 40)])
def test_blocks_are_whole_sequences_with_a_band(length: int, window: int, padded: bool) -> None:
    real = lengths(length) if padded else None
    weights = torch.randn(B * A, length, D, dtype=torch.float64)
    found = []
    for blocked in (True, False):
        q, k, v = inputs(length)
        if blocked:
            blocks = Blocks.of(length, window, real, torch.float64)
            out = block_attention(q, k, v, blocks, 0.0)
        else:
            out = expected(q, k, v, length, window, real)
        # What is computed at padding nobody reads.
        read = out if real is None else out * real.repeat_interleave(A, 0)[..., None]
        (read * weights).sum().backward()
        found.append([read, q.grad, k.grad, v.grad])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_blocks_of_some_rows_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    real = lengths(50)
    blocks = Blocks.of(50, 8, real, torch.float64)
    whole = block_attention(*inputs(50), blocks, 0.0)
    monkeypatch.setattr(modernbert_layers, "_AT_ONCE", 1)
    assert torch.equal(block_attention(*inputs(50), blocks, 0.0), whole)


def test_a_band_over_whole_sequences() -> None:
    real = lengths(24)
    q, k, v = inputs(24)
    bias = band_bias(24, 3, real, torch.float64, q.device)
    out = written_attention(q, k, v, bias.expand(B, A, 24, 24).flatten(0, 1), 0.0)
    torch.testing.assert_close(out, expected(q, k, v, 24, 3, real))
    assert out.isfinite().all()


def test_dropped_probabilities_keep_the_mean_and_their_gradients() -> None:
    """Of ones as values, the output is what was kept of the probabilities."""
    length, window, p = 96, 8, 0.25
    blocks = Blocks.of(length, window, None, torch.float64)
    q, k, _ = inputs(length)
    v = torch.ones_like(q).requires_grad_()
    stream.seed(0, 0)
    out = block_attention(q, k, v, blocks, p)
    assert out.std() > 0.1
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)
    out.sum().backward()
    assert v.grad is not None
    # Each output's kept probabilities are the weights of the values: the same numbers in sum.
    assert v.grad.sum().item() == pytest.approx(out.sum().item())
    stream.seed(0, 0)
    assert torch.equal(block_attention(q, k, v, blocks, p), out)
    stream.seed(0, 1)
    assert not torch.equal(block_attention(q, k, v, blocks, p), out)


def test_gradients_with_dropout_are_those_of_the_function() -> None:
    """By differences, with the same mask each time."""
    blocks = Blocks.of(6, 2, None, torch.float64)
    q, k, v = (x.detach()[:2, :, :2].requires_grad_() for x in inputs(6))

    def function(*parts: Tensor) -> Tensor:
        stream.seed(3, 3)
        return block_attention(*parts, blocks, 0.2)

    assert torch.autograd.gradcheck(function, (q, k, v))


def test_the_reference_of_packed_rows_knows_windows() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 24, A, D)
    ends = torch.tensor([0, 7, 8, 24], dtype=torch.int32)
    found = reference(q, k, v, ends, window=2)
    for start, end in ((0, 7), (7, 8), (8, 24)):
        alone = F.scaled_dot_product_attention(
            *(x[start:end].transpose(0, 1) for x in (q, k, v)), attn_mask=band(end - start, 2)
        )
        torch.testing.assert_close(found[start:end], alone.transpose(0, 1))
