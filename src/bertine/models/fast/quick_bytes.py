"""Products of bytes for few rows: one call rounds fp32 numbers, multiplies and gives fp32 again.

oneDNN, which has the faster kernels for many rows, takes some twenty microseconds a product before
it begins: half of the time of one with 16 rows. FBGEMM, which PyTorch has for its quantized
modules, takes ten, and rounds the numbers on the way.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

#: Up to so many rows they are quicker; with more, the faster kernels make up for their late begin.
QUICK_ROWS = 24


class QuickLinear:
    """x W' for fp32 x, which are rounded first to the bytes round(x) + zero; without a bias, which
    FBGEMM would add without rounding before: oneDNN's products have other bits then.

    Only where :func:`has_quick_bytes`. The weights are copied.

    Args:
        weight: int8 [F, K].
        scales: fp32 [F]: an output's weights are its bytes times its scale.
        zero: the byte of 0.

    Attributes:
        weight: packed; an object of FBGEMM's, no tensor.
    """

    def __init__(self, weight: Tensor, scales: Tensor, zero: int) -> None:
        with warnings.catch_warnings():
            # Of the type of tensor, which a future version is to lose.
            warnings.simplefilter("ignore")
            zeros = torch.zeros(len(weight), dtype=torch.int64)
            quantized = torch._make_per_channel_quantized_tensor(weight, scales.double(), zeros, 0)
            self.weight: Any = torch.ops.quantized.linear_prepack(quantized, None)
        self._zero = zero
        self._product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default

    def __call__(self, x: Tensor) -> Tensor:
        """x fp32 [N, K] → fp32 [N, F]."""
        out: Tensor = self._product(x, 1.0, self._zero, self.weight)
        return out


@functools.cache
def has_quick_bytes() -> bool:
    """Whether PyTorch has these products here, and they are right for the largest bytes: without
    VNNI, FBGEMM adds pairs of products in 16 bits, which are too few."""
    try:
        weight = torch.full((32, 64), 127, dtype=torch.int8)
        product = QuickLinear(weight, torch.ones(32), 0)
        found = product(torch.full((3, 64), 255.0))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return bool((found == 255.0 * 127.0 * 64.0).all())
