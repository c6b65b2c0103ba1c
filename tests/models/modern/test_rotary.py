"""Rotary positions."""

from __future__ import annotations

import math

import torch

from bertine.families.modernbert_layers import angles, first_angles, turn, turned_parts


def test_products_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 16, dtype=torch.float64)
    by = angles(torch.arange(60), 16, 100.0)
    turned_q, turned_k = (turn(x.expand(60, 16), by) for x in (q, k))
    products = turned_q @ turned_k.t()
    for distance in (0, 3, -17):
        diagonal = products.diagonal(distance)
        # The angles are fp32.
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-5, atol=1e-5)
    assert not math.isclose(products[0, 0], products[0, 5], rel_tol=1e-3)


def test_the_formula_of_the_paper() -> None:
    """Section 3.2.2, with the two numbers of a pair half a head apart, at one place."""
    x = torch.arange(1.0, 5.0)[None]
    turned = turn(x, angles(torch.tensor([3]), 4, 10_000.0))[0]
    for pair, rate in ((0, 1.0), (1, 0.01)):
        angle, first, second = 3 * rate, x[0, pair].item(), x[0, pair + 2].item()
        assert math.isclose(
            turned[pair], first * math.cos(angle) - second * math.sin(angle), rel_tol=1e-5
        )
        assert math.isclose(
            turned[pair + 2], second * math.cos(angle) + first * math.sin(angle), rel_tol=1e-5
        )


def test_turning_while_laying_out_is_the_same_with_its_gradients() -> None:
    torch.manual_seed(0)
    b, t, a, d = 2, 5, 3, 4
    by = first_angles(t, d, 10.0, torch.float64)
    weights = torch.randn(3, b * a, t, d, dtype=torch.float64)
    found = []
    for fused in (True, False):
        torch.manual_seed(1)
        qkv = torch.randn(b, t, 3, a, d, dtype=torch.float64).requires_grad_()
        if fused:
            parts = torch.stack(turned_parts(qkv, by))
        else:
            q, k = turn(qkv[:, :, :2].transpose(0, 1), by).transpose(0, 1).unbind(2)
            parts = torch.stack([x.transpose(1, 2).flatten(0, 1) for x in (q, k, qkv[:, :, 2])])
        (parts * weights).sum().backward()
        found.append((parts, qkv.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_angles_are_the_same_in_longer_texts_and_after_inference() -> None:
    with torch.inference_mode():
        short = first_angles(7, 8, 10_000.0, torch.float32)
    long = first_angles(700, 8, 10_000.0, torch.float32)
    assert torch.equal(short[0], long[0][:7])
    assert torch.equal(short[1], long[1][:7])
    assert not short[0].is_inference()
