"""Call the parts of PyTorch that may change, with fallbacks for versions that lack them.

Written for PyTorch 2.13.0. Each function names the operator that it calls, and either falls back on
public ones or has a probe (``has_...``) that its callers ask first.

oneDNN's products over packed weights exist in PyTorch for its compiler. While a call is recorded
(:mod:`bertine.fast.layers`), they are called from TorchScript functions, because the recorder does
not know some types of their arguments.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: TorchScript's numbers of the types.
_NUMBERS = {torch.uint8: 0, torch.float32: 6, torch.bfloat16: 15}


@functools.cache
def has_packed(dtype: torch.dtype) -> bool:
    """Return whether :func:`pack`, :func:`linear` and :func:`linear_add` exist for `dtype`. They
    do not in builds of PyTorch without oneDNN (macOS), nor in bf16 on every CPU (x86: AVX-512 or
    AVX-NE-CONVERT is needed); callers then use ``torch.nn.functional.linear``."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        weight = pack(torch.zeros(8, 8, dtype=dtype), 8)
        x = torch.zeros(8, 8, dtype=dtype)
        linear(x, weight, x[0], "gelu", "none")
    except (AttributeError, RuntimeError):
        return False
    return True


def pack(weight: Tensor, rows: int) -> Tensor:
    """Lay out `weight` [F, K], contiguous, for products of about `rows` rows
    (``mkldnn._reorder_linear_weight``)."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return packed


def linear(x: Tensor, weight: Tensor, bias: Tensor, act: str, algorithm: str) -> Tensor:
    """Return the activation of x W' + b; all of one type, `weight` packed
    (``mkldnn._linear_pointwise``)."""
    if torch.jit.is_tracing():
        return _scripted(_linear)(x, weight, bias, act, algorithm)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, act, [], algorithm)
    return out


def linear_add(x: Tensor, other: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W' + b + other (``mkldnn._linear_pointwise.binary``)."""
    if torch.jit.is_tracing():
        return _scripted(_linear_add)(x, other, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, bias, "add")
    return out


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W' (+ b) by oneDNN, all of one type (``mkldnn._linear_pointwise``); ask
    :func:`has_packed` first. `weight` is not packed, but contiguous, or the transpose of a
    contiguous matrix: for others oneDNN has only a reference of its own, a thousand times slower.

    PyTorch's own products add a bias in a pass of its own, and in fp32 they are MKL's, which uses
    half of the width of AVX-512 on a processor that is not Intel's.
    """
    if not x.numel():
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def has_byte_products() -> bool:
    """Return whether :func:`pack_bytes`, :func:`byte_linear` and :func:`byte_linear_add` exist and
    are exact; callers use bf16 or fp32 otherwise."""
    names = ("qlinear_prepack", "qlinear_pointwise")
    return all(hasattr(torch.ops.onednn, name) for name in names) and _bytes_are_exact()


@functools.cache
def _bytes_are_exact() -> bool:
    """Return whether the largest bytes multiply exactly. Without VNNI, or where
    ``ONEDNN_MAX_CPU_ISA`` excludes it, oneDNN adds two products in 16 bits and saturates."""
    x = torch.full((4, 64), 255, dtype=torch.uint8)
    packed = pack_bytes(torch.full((16, 64), 127, dtype=torch.int8))
    weight = packed, torch.ones(16), torch.zeros(16, dtype=torch.int64)
    product = byte_linear(x, 0, weight, torch.zeros(16), (1.0, 0, torch.float32), "none", "")
    return bool((product == 255 * 127 * 64).all())


def pack_bytes(weight: Tensor) -> Tensor:
    """Lay out `weight`, int8 [F, K], for products of bytes (``onednn.qlinear_prepack``)."""
    packed: Tensor = torch.ops.onednn.qlinear_prepack(weight, None)
    return packed


def byte_linear(
    x: Tensor,
    zero: int,
    weight: tuple[Tensor, Tensor, Tensor],
    bias: Tensor,
    to: tuple[float, int, torch.dtype],
    act: str,
    algorithm: str,
) -> Tensor:
    """Return the activation of x W' + b (``onednn.qlinear_pointwise``).

    Args:
        x: uint8; the numbers are its bytes minus `zero`.
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
    """Add x W' in place to `other`, fp32, and return it; see :func:`byte_linear`."""
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
        warnings.simplefilter("ignore")  # the notice that torch.jit is no longer developed
        return torch.jit.script(function)


# TorchScript functions: the language has no unpacking of arguments.


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


def softmax_backward(grad: Tensor, probs: Tensor) -> Tensor:
    """Return the gradient of the softmax's input, for a softmax over the last dimension that gave
    `probs` (``torch._softmax_backward_data``); all of one type."""
    if not hasattr(torch, "_softmax_backward_data"):
        return probs * (grad - (grad * probs).sum(-1, keepdim=True))
    return torch._softmax_backward_data(grad, probs, -1, probs.dtype)


def gelu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x from `grad`, the gradient of its GELU (``aten.gelu_backward``)."""
    if not hasattr(torch.ops.aten, "gelu_backward"):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(F.gelu(x), x, grad)[0]
    result: Tensor = torch.ops.aten.gelu_backward(grad, x)
    return result


def norms(tensors: list[Tensor]) -> list[Tensor]:
    """Return the Euclidean norm of each tensor (``torch._foreach_norm``, one kernel for all)."""
    if not hasattr(torch, "_foreach_norm"):
        return [torch.linalg.vector_norm(tensor) for tensor in tensors]
    return list(torch._foreach_norm(tensors))


def has_flash_forward() -> bool:
    """Return whether :func:`flash_attention` exists; callers attend in padded batches otherwise."""
    return hasattr(torch.ops.aten, "_flash_attention_forward")


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ends: Tensor,
    longest: int,
    p: float,
    window: int | None = None,
) -> Tensor:
    """Return the flash attention of concatenated sequences, with dropout; see
    :func:`bertine.models.layers.varlen_attention` (``aten._flash_attention_forward``)."""
    sides = {} if window is None else {"window_size_left": window, "window_size_right": window}
    out: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, ends, ends, longest, longest, p, False, False, **sides
    )[0]
    return out


def allow_recompilations(ways: int) -> None:
    """Allow a function to be compiled for at least `ways` different kinds of calls
    (``torch._dynamo.config.recompile_limit``); do nothing if PyTorch has no such setting."""
    config = torch._dynamo.config
    if hasattr(config, "recompile_limit"):
        config.recompile_limit = max(config.recompile_limit, ways)


def keep_eager() -> None:
    """Keep PyTorch's optimizers, which are never compiled here, from importing its compiler, which
    takes three seconds (``torch._compile._disable_dynamo``); do nothing if PyTorch has no such
    function."""
    for method in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.zero_grad):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            plain.__dynamo_disable = plain


def adam_step(optimizer: torch.optim.Adam) -> None:
    """Take a step of Adam; like :func:`keep_eager`."""
    step = torch.optim.Adam.step
    with torch.no_grad():
        getattr(step, "__wrapped__", step)(optimizer)
