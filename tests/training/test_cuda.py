"""Training on a GPU; run only where there is one (``pytest -m cuda``)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import toys
from bertine import pretrain
from bertine.models.heads import Model
from bertine.models.layers import has_flash_attention, reference, varlen_attention
from bertine.objectives.losses import MlmNsp
from bertine.training.adamw import AdamW, row_gradients
from bertine.training.parallel import send
from bertine.training.step import accumulate, compile_parts

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpu_model(**changes: Any) -> Model:
    """Heads of 64, as BERT has, of a size that flash attention takes."""
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 256}
    return toys.pretraining_model(**{**sizes, **changes})


def test_flash_attention_is_the_reference() -> None:
    device = torch.device("cuda")
    assert has_flash_attention(device, torch.bfloat16, 64)
    torch.manual_seed(0)
    lengths = torch.tensor([0, 70, 70, 71, 256], dtype=torch.int32, device=device)
    q, k, v = torch.randn(3, 256, 2, 64, device=device, dtype=torch.bfloat16).unbind()
    found = []
    for attend in (varlen_attention, lambda q, k, v, ends, longest: reference(q, k, v, ends)):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = attend(*leaves, lengths, 192)
        out.float().square().sum().backward()
        found.append([out, *(leaf.grad for leaf in leaves)])
    for flash, plain in zip(*found, strict=True):
        torch.testing.assert_close(flash, plain, rtol=0.03, atol=0.03)


def test_dropout_in_flash_attention_has_the_rate_and_follows_the_seed() -> None:
    q = torch.randn(256, 2, 64, device="cuda", dtype=torch.bfloat16)
    v = torch.ones_like(q)
    ends = torch.tensor([0, 256], dtype=torch.int32, device="cuda")

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return varlen_attention(q, q, v, ends, 256, 0.5)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    mean = torch.stack([draw(seed).float().mean() for seed in range(50)]).mean()
    assert float(mean) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_on_the_gpu_is_the_step_on_the_cpu(store: Path, compiled: bool) -> None:
    batch = toys.pretraining_data(store, short_seq_prob=0.9).batch(0)
    found: list[dict[str, torch.Tensor]] = []
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        model = gpu_model(**NO_DROPOUT).to(device).train()
        if compiled and device == "cuda":
            compile_parts(model)
        accumulate(model, MlmNsp(), [batch], dtype=dtype, seeds=[0, 0])
        grads = {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}
        found.append(grads)
    assert found[0].keys() == found[1].keys()
    for name, grad in found[0].items():
        error = (found[1][name] - grad).norm() / grad.norm().clamp(min=1e-6)
        assert error < 0.1, name


@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_is_waited_for_in_a_step(store: Path, compiled: bool) -> None:
    data = toys.pretraining_data(store, short_seq_prob=0.5)
    model = gpu_model().to("cuda").train()
    if compiled:
        compile_parts(model)
    optimizer = AdamW(model)
    with row_gradients(model):
        for step in range(8):
            if step == 4:  # compiled, and memory taken
                torch.cuda.set_sync_debug_mode("error")
            try:
                accumulate(
                    model, MlmNsp(), [data.batch(step)], dtype=torch.bfloat16, seeds=[0, step]
                )
                norm = optimizer.clipped_step(1e-3, 1.0)
                optimizer.zero_grad(set_to_none=True)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    assert float(norm) > 0


def test_a_batch_is_sent_whole(store: Path) -> None:
    batch = toys.pretraining_data(store).batch(0)
    moved = send(batch, gpu_model().to("cuda"), torch.bfloat16)
    assert moved.packing is not None
    assert all(tensor.is_cuda for tensor in moved.tensors())
    assert torch.equal(moved.input_ids.cpu(), batch.input_ids)


@pytest.mark.parametrize("compiled", [False, True])
def test_pretrain_learns_and_resumes(store: Path, tmp_path: Path, compiled: bool) -> None:
    start = toys.write_model(
        tmp_path / "model", hidden_size=128, num_attention_heads=2, intermediate_size=256
    )
    train = partial(
        pretrain,
        store,
        model=start,
        out=tmp_path / "run",
        steps=150,
        max_seq_length=32,
        batch_size=16,
        learning_rate=2e-3,
        device="cuda",
        precision="bf16",
        compile=compiled,
        checkpoint_every=60,
    )
    result = train()
    assert result.final["mlm_loss"] < result.unigram_entropy
    again = train(resume=True)
    assert again.final == result.final
