"""What a GPU needs of the training loop, as far as a CPU can tell."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bertine.core.errors import BertineError
from bertine.training.adamw import AdamW, device_clip
from bertine.training.parallel import Norms


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_on_a_device_is_looked_at_when_something_is_written(bad: float) -> None:
    norms = Norms(1e-3)
    for step, value in enumerate((1.0, 3.0, 2.0)):
        norms.add(torch.tensor(value), step + 1)
    assert norms.look(3) == 2.0
    norms.add(torch.tensor(bad), 4)
    norms.add(torch.tensor(1.0), 5)
    with pytest.raises(BertineError, match=r"step 5: the gradient is not finite; lower .*0\.001"):
        norms.look(5)


def model_with_gradients(scale: float) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * scale
    return model


@pytest.mark.parametrize("scale", [1e-3, 10.0])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5])
def test_clipping_without_a_look_is_clipping(scale: float, max_grad_norm: float) -> None:
    one, other = model_with_gradients(scale), model_with_gradients(scale)
    AdamW(one).clipped_step(1e-2, max_grad_norm)
    optimizer = AdamW(other)
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    norm = optimizer.grad_norm()
    optimizer.grad_scale, optimizer.found_inf = device_clip(norm, max_grad_norm)
    optimizer.step()
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone() -> None:
    model = model_with_gradients(math.inf)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = AdamW(model)
    for group in optimizer.param_groups:
        group["lr"] = 1e-2
    optimizer.grad_scale, optimizer.found_inf = device_clip(optimizer.grad_norm(), 1.0)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
