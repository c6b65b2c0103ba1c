"""Draw dropout masks that are cheap on a CPU and a pure function of (seed, step).

PyTorch's CPU dropout draws every decision with a Bernoulli generator, at about 4 ns each; a
training step of a small BERT spends more time there than in its matrix products. Here each
decision takes 16 bits of an SFC64 stream (NumPy's fastest; O'Neill's and Doty-Humphrey's tests
pass it), drawn by one thread per core: about 0.2 ns. The drop rate is therefore a multiple of
1/65536: 0.1 becomes 6554/65536 = 0.100006.

The mask holds 0 and 1. The caller applies the factor 1/(1-p) in fp32, inside an operation that it
does anyway: in bf16, 1/0.9 would round to 1.109, a bias of 0.16%.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertine.core import rng
from bertine.models.precision import torch_seed

#: The integer with the bits of 1.0, for the 16-bit float types.
_ONE_BITS = {torch.bfloat16: 0x3F80, torch.float16: 0x3C00}


#: The stream is divided into blocks so that its content does not depend on the number of threads.
_BLOCK = 1 << 19


class DropoutStream:
    """The random bits of all dropout layers of this process, in the order of their requests.

    `seed` puts the stream at the beginning of one micro-batch of one step. The order in which a
    model's layers draw is fixed, so a resumed run drops the same as an uninterrupted one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._where: tuple[int, ...] = ()
        self._seed = 0
        self._count = 0

    def seed(self, seed: int, *where: int) -> None:
        """Start the stream of the position `where` (step, micro-batch) under `seed`."""
        with self._lock:
            self._seed, self._where, self._count = seed, where, 0
        # Dropout on other devices, and layers that draw from PyTorch's own generator.
        torch.manual_seed(torch_seed(seed, "torch", *where))

    @property
    def position(self) -> tuple[int, ...]:
        """The seed and the position of the last start of the stream."""
        return (self._seed, *self._where)

    def ticket(self) -> int:
        """Return the key of the next mask; :meth:`mask` gives the same mask for it each time."""
        with self._lock:
            key = rng.key(self._seed, "dropout", *self._where, self._count)
            self._count += 1
        return key

    def _bits(self, ticket: int, count: int) -> np.ndarray:
        """Draw `count` uniform int16 values."""
        key = np.frombuffer(ticket.to_bytes(16, "little"), dtype=np.uint32).tolist()
        words = -(-count // 4)
        blocks = -(-words // _BLOCK)
        sizes = [min(_BLOCK, words - i * _BLOCK) for i in range(blocks)]
        generators = [np.random.SFC64([*key, block]) for block in range(blocks)]
        if blocks == 1:
            return generators[0].random_raw(words).view(np.int16)[:count]
        out = np.empty(words, dtype=np.uint64)

        def fill(i: int) -> None:
            out[i * _BLOCK : i * _BLOCK + sizes[i]] = generators[i].random_raw(sizes[i])

        if self._pool is None:
            self._pool = ThreadPoolExecutor(torch.get_num_threads(), "dropout")
        list(self._pool.map(fill, range(blocks)))
        return out.view(np.int16)[:count]

    def keep_mask(
        self, shape: torch.Size | tuple[int, ...], p: float, dtype: torch.dtype
    ) -> Tensor:
        """Draw the next mask: see :meth:`mask`."""
        return self.mask(self.ticket(), shape, p, dtype)

    def mask(
        self, ticket: int, shape: torch.Size | tuple[int, ...], p: float, dtype: torch.dtype
    ) -> Tensor:
        """Draw a CPU mask [shape] of `dtype`: 0 with probability `p`, else 1 (unscaled)."""
        count = math.prod(shape)
        raw = torch.from_numpy(self._bits(ticket, count))
        # Values below `cut` are dropped. In place the comparison gives 0 or 1 without a boolean
        # tensor, whose conversion to a float type is ten times slower.
        keep = raw.ge_(min(max(round(p * 65536), 1), 65535) - 32768)
        if dtype in _ONE_BITS:
            return keep.mul_(_ONE_BITS[dtype]).view(dtype).view(shape)
        return keep.to(dtype).view(shape)


#: The stream of this process. A training step seeds it at every micro-batch
#: (:func:`bertine.training.step.accumulate`).
stream = DropoutStream()


class _DropoutAdd(torch.autograd.Function):
    """``residual + x * mask / (1 - p)``. The backward pass draws the mask again, which is cheaper
    than keeping the masks of all layers in memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, p: float) -> Tensor:
        ctx.ticket, ctx.shape, ctx.p = stream.ticket(), x.shape, p
        mask = stream.mask(ctx.ticket, x.shape, p, x.dtype)
        return torch.addcmul(residual, x, mask, value=1.0 / (1.0 - p))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        mask = stream.mask(ctx.ticket, ctx.shape, ctx.p, grad.dtype)
        scaled = torch.addcmul(grad.new_zeros(1), grad, mask, value=1.0 / (1.0 - ctx.p))
        return scaled, grad, None


def dropout_add(x: Tensor, residual: Tensor, p: float, training: bool) -> Tensor:
    """Compute ``residual + dropout(x)``, both [..., H]; one pass over memory plus the mask's."""
    if not training or p == 0.0:
        return residual + x
    if x.device.type != "cpu":
        return residual + nn.functional.dropout(x, p)
    summed: Tensor = _DropoutAdd.apply(x, residual, p)
    return summed


class StreamDropout(nn.Module):
    """Dropout with rate `p` drawn from :data:`stream` on a CPU, from PyTorch's elsewhere."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        return x * stream.keep_mask(x.shape, self.p, x.dtype) * (1.0 / (1.0 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"
