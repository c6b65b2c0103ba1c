"""oneDNN's products over packed weights, as PyTorch has them for its compiler.

While something is recorded (:mod:`bertine.models.fast.recorded`), they are called from functions of
TorchScript: the recorder itself knows nothing of some types of their arguments.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: TorchScript's numbers of types.
_NUMBERS = {torch.uint8: 0, torch.float32: 6, torch.bfloat16: 15}


def linear(x: Tensor, weight: Tensor, bias: Tensor, act: str, algorithm: str) -> Tensor:
    """The activation of x W' + b; all of one type, `weight` packed."""
    if torch.jit.is_tracing():
        return _scripted(_linear)(x, weight, bias, act, algorithm)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, act, [], algorithm)
    return out


def linear_add(x: Tensor, other: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W' + b + other."""
    if torch.jit.is_tracing():
        return _scripted(_linear_add)(x, other, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, bias, "add")
    return out


def byte_linear(
    x: Tensor,
    zero: int,
    weight: tuple[Tensor, Tensor, Tensor],
    bias: Tensor,
    to: tuple[float, int, torch.dtype],
    act: str,
    algorithm: str,
) -> Tensor:
    """The activation of x W' + b.

    Args:
        x: uint8; stands for the numbers that are its bytes less `zero`.
        weight: packed bytes, fp32 scales, int64 zero points, of each output.
        bias: fp32.
        to: scale, zero point and type of the result.
    """
    if torch.jit.is_tracing():
        number = _NUMBERS[to[2]]
        return _scripted(_byte_linear)(x, zero, *weight, bias, to[0], to[1], number, act, algorithm)
    out: Tensor = torch.ops.onednn.qlinear_pointwise(
        x, 1.0, zero, *weight, bias, *to, act, [], algorithm
    )
    return out


def byte_linear_add(
    x: Tensor, zero: int, weight: tuple[Tensor, Tensor, Tensor], other: Tensor
) -> Tensor:
    """`other`, fp32, to which x W' is added in place; see :func:`byte_linear`."""
    if torch.jit.is_tracing():
        return _scripted(_byte_linear_add)(x, zero, *weight, other)
    out: Tensor = torch.ops.onednn.qlinear_pointwise.binary(
        *(x, 1.0, zero, *weight),
        *(other, None, 1.0, 0, torch.float32, 1.0, 0, "sum", 1.0, "none", [], ""),
    )
    return out


@functools.cache
def _scripted(function: Callable[..., Tensor]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.jit is no longer developed
        return torch.jit.script(function)


# In TorchScript's language, which has no packing and unpacking of arguments.


def _linear(x: Tensor, weight: Tensor, bias: Tensor, act: str, algorithm: str) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, act, [], algorithm)


def _linear_add(x: Tensor, other: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, other, weight, bias, "add")


def _byte_linear(
    x: Tensor,
    zero: int,
    weight: Tensor,
    scales: Tensor,
    zeros: Tensor,
    bias: Tensor,
    to_scale: float,
    to_zero: int,
    to: int,
    act: str,
    algorithm: str,
) -> Tensor:
    return torch.ops.onednn.qlinear_pointwise(
        x, 1.0, zero, weight, scales, zeros, bias, to_scale, to_zero, to, act, [], algorithm
    )


def _byte_linear_add(
    x: Tensor, zero: int, weight: Tensor, scales: Tensor, zeros: Tensor, other: Tensor
) -> Tensor:
    return torch.ops.onednn.qlinear_pointwise(
        x,
        1.0,
        zero,
        weight,
        scales,
        zeros,
        other,
        None,
        1.0,
        0,
        torch.float32,
        1.0,
        0,
        "sum",
        1.0,
        "none",
        [],
        "",
    )
