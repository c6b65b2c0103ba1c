"""Where PyTorch has lost what it never promised, public functions give the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import toys
from bertine.models import torch_private
from bertine.training.step import compile_parts


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


def test_without_a_c_compiler_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch.compile would fail at the first step."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    model = toys.pretraining_model()
    compile_parts(model)
    assert all(layer._compiled_call_impl is None for layer in model.backbone.layers)
    assert "no C compiler" in capsys.readouterr().err
