"""Initial weights as the published code of BERT draws them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


@torch.no_grad()
def init_weights(module: nn.Module, std: float) -> None:
    """Initialize as the published code does: matrices and embeddings from a normal of standard
    deviation `std` cut off at two deviations (not rescaled), biases 0, layer norms 1 and 0. What
    has other parameters or constants of its own sets them in its ``reset_parameters``, and a matrix
    may have a deviation of its own (:func:`set_initial_std`).

    Raises:
        TypeError: a part has parameters of its own and no ``reset_parameters``: read from a file
            without them, they would be what stands in memory.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            truncated_normal_(part.weight, getattr(part, "initial_std", std))
            if isinstance(part, nn.Linear) and part.bias is not None:
                part.bias.zero_()
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
            if part.bias is not None:
                part.bias.zero_()
        elif any(True for _ in part.parameters(recurse=False)):
            reset: Callable[[], None] | None = getattr(part, "reset_parameters", None)
            if reset is None:
                raise TypeError(f"{type(part).__name__} has no reset_parameters")
            reset()
        elif any(True for _ in part.buffers(recurse=False)):
            constants: Callable[[], None] | None = getattr(part, "reset_parameters", None)
            if constants is not None:
                constants()


def truncated_normal_(tensor: Tensor, std: float) -> None:
    """Fill `tensor` from a normal of deviation `std` cut off at two deviations.

    What falls beyond is drawn again: ten times as fast on a CPU as inverting the distribution
    function, which is what ``trunc_normal_`` does.
    """
    if tensor.is_meta:
        return
    flat = tensor.view(-1).normal_()
    while (outside := (flat.abs() > 2).nonzero()[:, 0]).numel():
        flat[outside] = torch.randn(outside.numel(), dtype=flat.dtype, device=flat.device)
    flat.mul_(std)


def set_initial_std(layer: nn.Linear | nn.Embedding, std: float) -> None:
    """Have :func:`init_weights` draw the matrix of `layer` with a deviation of its own."""
    layer.initial_std = std  # type: ignore[assignment]
