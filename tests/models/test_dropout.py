"""Dropout: the rate, the scale, the gradient through attention, and that it can be repeated."""

from __future__ import annotations

import math

import pytest
import torch

from bertine.models.dropout import StreamDropout, dropout_add, stream
from bertine.models.heads import ClassificationHead, Model
from bertine.models.layers import EncoderLayer, RowLayout, SelfAttention
from family.parity import random_batch
from family.variants import VARIANTS, scramble


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masks_drop_at_the_rate_and_hold_0_and_1(p: float, dtype: torch.dtype) -> None:
    stream.seed(3, 0)
    mask = stream.keep_mask((1000, 1003), p, dtype)
    assert mask.dtype == dtype
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    kept = mask.float().mean().item()
    assert kept == pytest.approx(1 - p, abs=5 * math.sqrt(p * (1 - p) / mask.numel()) + 1 / 65536)


def test_masks_of_one_place_are_equal_and_of_others_are_not() -> None:
    def draw(*where: int) -> torch.Tensor:
        stream.seed(7, *where)
        return torch.stack([stream.keep_mask((4096,), 0.5, torch.float32) for _ in range(2)])

    first = draw(5, 0)
    assert torch.equal(first, draw(5, 0))
    for other in (draw(5, 1), draw(6, 0), first.flip(0)):
        # Independent halves agree in half of the places.
        assert (first == other).float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_masks_do_not_depend_on_the_number_of_threads() -> None:
    shape = (3, 1 << 20)  # more than one block of the stream
    masks = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            stream.seed(1, 2)
            masks.append(stream.keep_mask(shape, 0.1, torch.bfloat16))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*masks)


def test_dropout_keeps_the_mean_and_is_off_in_evaluation() -> None:
    stream.seed(0, 0)
    x, residual = torch.ones(400, 500), torch.full((400, 500), 2.0)
    layer = StreamDropout(0.1)
    dropped = layer(x)
    torch.testing.assert_close(
        dropped[dropped != 0], torch.full_like(dropped[dropped != 0], 1 / 0.9)
    )
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.005)
    assert dropout_add(x, residual, 0.1, training=True).mean().item() == pytest.approx(
        3.0, abs=0.005
    )
    assert torch.equal(layer.eval()(x), x)
    assert torch.equal(dropout_add(x, residual, 0.1, training=False), x + residual)


@pytest.mark.parametrize("p", [0.3, 0.0])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_in_training_has_the_plain_formula_s_output_and_gradients(
    padded: bool, p: float
) -> None:
    config = VARIANTS["bert"].tiny(0).replace(attention_probs_dropout_prob=p)
    attention = SelfAttention(config).double().train()
    scramble(attention, 0)
    draw = torch.Generator().manual_seed(1)
    b, t, h, a = 3, 7, config.hidden_size, config.num_attention_heads
    x = torch.randn(b * t, h, generator=draw, dtype=torch.float64)
    weight = torch.randn(b * t, h, generator=draw, dtype=torch.float64)
    bias = torch.zeros(b, 1, 1, t, dtype=torch.float64)
    if padded:
        bias[1, ..., 4:] = float("-inf")
    layout = RowLayout(b, t, bias=bias if padded else None)

    stream.seed(2, 0)
    ours = attention(x, layout)
    ours_grads = torch.autograd.grad((ours * weight).sum(), list(attention.parameters()))

    stream.seed(2, 0)
    mask = torch.ones(b, a, t, t, dtype=torch.float64)
    if p > 0.0:
        mask = stream.keep_mask((b * a, t, t), p, torch.float64).view(b, a, t, t)
    q, k, v = (
        part.view(b, t, a, h // a).transpose(1, 2) for part in attention.qkv(x).chunk(3, dim=-1)
    )
    probs = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(h // a) + bias, -1)
    mixed = (probs * mask / (1 - p)) @ v
    plain = attention.out(mixed.transpose(1, 2).reshape(b * t, h))
    plain_grads = torch.autograd.grad((plain * weight).sum(), list(attention.parameters()))

    torch.testing.assert_close(ours, plain)
    assert torch.allclose(ours, attention.eval()(x, layout)) == (p == 0.0)
    for one, other in zip(ours_grads, plain_grads, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("p", [0.2, 0.0])
def test_a_layer_in_training_has_the_plain_formula_s_output_and_gradients(p: float) -> None:
    """What the backward pass makes again (masks, GELU) is what the forward pass had."""
    config = VARIANTS["bert"].tiny(3).replace(hidden_dropout_prob=p, attention_probs_dropout_prob=p)
    assert config.hidden_act == "gelu"
    layer = EncoderLayer(config).double().train()
    scramble(layer, 3)
    draw = torch.Generator().manual_seed(4)
    b, t, h, a = 2, 5, config.hidden_size, config.num_attention_heads
    x = torch.randn(b * t, h, generator=draw, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(b * t, h, generator=draw, dtype=torch.float64)
    inputs = [x, *layer.parameters()]

    stream.seed(5, 0)
    ours = layer(x, RowLayout(b, t))
    # Another forward pass in between must not change what the backward pass makes again.
    layer(x, RowLayout(b, t))
    ours_grads = torch.autograd.grad((ours * weight).sum(), inputs)

    def mask(*shape: int) -> torch.Tensor:
        if p == 0.0:
            return torch.ones(shape, dtype=torch.float64)
        return stream.keep_mask(shape, p, torch.float64) / (1 - p)

    stream.seed(5, 0)
    attention = layer.attention
    q, k, v = (
        part.view(b, t, a, h // a).transpose(1, 2) for part in attention.qkv(x).chunk(3, dim=-1)
    )
    probs = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(h // a), -1)
    probs = probs * mask(b * a, t, t).view(b, a, t, t)
    mixed = attention.out((probs @ v).transpose(1, 2).reshape(b * t, h))
    middle = layer.attention_norm(x + mixed * mask(b * t, h))
    inner = layer.down(torch.nn.functional.gelu(layer.up(middle)))
    plain = layer.output_norm(middle + inner * mask(b * t, h))
    plain_grads = torch.autograd.grad((plain * weight).sum(), inputs)

    torch.testing.assert_close(ours, plain)
    for one, other in zip(ours_grads, plain_grads, strict=True):
        torch.testing.assert_close(one, other)


def test_a_training_step_can_be_repeated_bit_for_bit() -> None:
    config = VARIANTS["bert"].tiny(2)
    model = Model(config, {"classifier": ClassificationHead(config, 3)}).train()
    scramble(model, 2)
    batch = random_batch(config, 2)

    def logits(step: int) -> torch.Tensor:
        stream.seed(11, step, 0)
        output = model.backbone(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        return model.heads["classifier"](output.pooler_output)

    assert torch.equal(logits(4), logits(4))
    assert not torch.allclose(logits(4), logits(5))
