"""Where PyTorch has lost what it never promised, public functions give the same."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
from torch import nn

import toys
from bertine.models import layers, torch_private
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 37])
def test_products_of_training_are_those_of_pytorch(
    dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of columns of a wider tensor, and with the gradient of many outputs in parts."""
    monkeypatch.setattr(layers, "_OUTPUTS", 16)
    layer = nn.Linear(24, 50)
    found = []
    for faster in (False, True):
        torch.manual_seed(0)
        wide = torch.randn(rows, 40).requires_grad_()
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype, enabled=dtype != torch.float32))
            if faster:
                stack.enter_context(layers.faster_products(layer))
            out = layer(wide[:, 8:32])
        assert out.dtype == dtype
        (out.float().square().sum() / 100).backward()
        found.append([out, wide.grad, layer.weight.grad, layer.bias.grad])
        layer.zero_grad()
    assert type(layer) is nn.Linear
    rtol = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol)
