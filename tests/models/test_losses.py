"""The summed cross-entropy equals PyTorch's, gradient included, whatever the number of targets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bertine.models.losses import focal, sum_cross_entropy


@pytest.mark.parametrize(("targets", "further"), [(1, 0), (31, 0), (32, 5), (33, 0), (100, 28)])
def test_sum_and_gradient_are_those_of_torch(targets: int, further: int) -> None:
    """Rows after those of the targets are ignored."""
    draw = torch.Generator().manual_seed(targets)
    ours = (torch.randn(targets + further, 77, generator=draw) * 4).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    labels = torch.randint(0, 77, (targets,), generator=draw)
    total, correct = sum_cross_entropy(ours * 1.0, labels)  # whose memory is used again
    expected = F.cross_entropy(theirs[:targets], labels, reduction="sum")
    (total * 0.3).backward()
    (expected * 0.3).backward()
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)
    assert int(correct) == int((theirs[:targets].argmax(-1) == labels).sum())


def test_bf16_logits_are_summed_in_fp32() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = (torch.randn(500, 300, generator=draw) * 3).bfloat16()
    labels = torch.randint(0, 300, (500,), generator=draw)
    total, _ = sum_cross_entropy(logits, labels)
    expected = F.cross_entropy(logits.float(), labels, reduction="sum")
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=0)


def test_large_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    total, correct = sum_cross_entropy(logits * 1.0, torch.tensor([0, 0]))
    total.backward()
    assert total.item() == pytest.approx(2e4)
    assert int(correct) == 1
    assert torch.isfinite(logits.grad).all()


def test_what_is_certain_has_no_focal_loss_and_a_finite_gradient() -> None:
    """The power of 1 - p has an infinite slope at p = 1 where gamma is below 1."""
    logits = torch.tensor([[90.0, -90.0], [-90.0, 90.0]], requires_grad=True)
    labels = torch.tensor([0, 0])
    for gamma in (0.5, 2.0):
        each = F.cross_entropy(logits, labels, reduction="none")
        total = focal(each, -each, gamma)
        (grad,) = torch.autograd.grad(total, logits)
        assert total.item() == pytest.approx(180.0)
        assert bool(grad.isfinite().all())
        assert float(grad[0].abs().max()) < 1e-6 < float(grad[1].abs().min())


def test_gamma_0_is_the_cross_entropy() -> None:
    each = torch.tensor([0.1, 2.0, 5.0])
    assert float(focal(each, -each, 0.0)) == pytest.approx(7.1)
