"""Where PyTorch has lost what it never promised, public functions give the same."""

from __future__ import annotations

import pytest
import torch

from bertine.models.fast import torch_private


def test_what_is_missing_is_made_of_public_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(3, 7, generator=draw) for _ in range(2))

    def found() -> list[torch.Tensor]:
        probs = torch.softmax(x, -1)
        return [
            torch_private.softmax_backward(grad, probs),
            torch_private.gelu_backward(grad, x),
            *torch_private.norms([x, grad]),
        ]

    there = found()
    monkeypatch.setattr(torch_private, "hasattr", lambda *_: False, raising=False)
    torch.testing.assert_close(found(), there)
    assert not torch_private.has_byte_products()
    assert not torch_private.has_flash_forward()
