"""How far two computations of one number may be apart, as follows from their arithmetic.

A sum of n terms, computed in floating point, is off by at most ``CERTAIN`` √n u times the largest
number on the way, u being half a machine epsilon, but for one case in tens of millions (the
roundings are as good as independent: Higham and Mary, "A new approach to probabilistic rounding
error analysis", 2019). Which order a processor's kernels sum in does not matter. Two computations
may be off to both sides, so u becomes the epsilon.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

#: λ of the paper: a rounding error is larger with a probability of 2 exp(-λ² / 2).
CERTAIN = 6.0


def tolerance(
    expected: Any, *, terms: int, dtype: torch.dtype = torch.float32, size: float = 0.0
) -> float:
    """Bound the absolute difference of two computations of the numbers `expected`.

    Args:
        expected: numbers of any shape; those that are not finite do not count.
        terms: of how many terms, one after another, a number is the sum: of a network, the terms
            of the products that follow each other.
        dtype: what it is computed in.
        size: the largest number that is added on the way, if none of `expected` is as large.
    """
    numbers = _numbers(expected)
    largest = np.abs(numbers[np.isfinite(numbers)]).max(initial=size)
    return CERTAIN * math.sqrt(terms) * torch.finfo(dtype).eps * float(largest)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    terms: int,
    dtype: torch.dtype = torch.float32,
    size: float = 0.0,
    what: str = "",
) -> None:
    """Assert that `actual` has the shape of `expected`, and its numbers within :func:`tolerance`.

    Args:
        what: named in the message if not.
    """
    ours, theirs = _numbers(actual), _numbers(expected)
    assert ours.shape == theirs.shape, f"{what}: {ours.shape}, expected {theirs.shape}"
    allowed = tolerance(theirs, terms=terms, dtype=dtype, size=size)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=allowed, err_msg=what)


def network_terms(layers: int, width: int, *, gradients: bool = False) -> int:
    """Count the terms of the sums that follow each other in a Transformer, from its inputs to a
    number of its output: ten times its width a layer, four of them in the wider product.

    Args:
        gradients: whether the number is a gradient: there and back, and a product over the batch.
    """
    return 10 * layers * width * (3 if gradients else 1)


def _numbers(values: Any) -> np.ndarray:
    """Return `values` as float64."""
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)
