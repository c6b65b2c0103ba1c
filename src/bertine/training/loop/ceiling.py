"""What part of the machine's ability a run gets: useful arithmetic against the rate at which the
machine does the model's own matrix products, with nothing around them.

Useful are the multiplications and additions of the matrix products that a step cannot do
without, for real tokens: each product forward, and two of its size backward; attention over each
sequence's own length; the MLM head at the masked positions. Padding, dropout, norms, activations,
lookups and the update are not counted, so that 100% is out of reach.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bertine.data.batch import Batch
from bertine.models.config import Config
from bertine.models.model import Model

#: A run that has less than this left (seconds) is not measured: it would cost more than 1% of it.
_WORTH = 240.0
#: For each pass over the products, of which there are three, about (seconds).
_PASS = 0.3


@dataclass(frozen=True)
class Product:
    """A matrix product [m, k] x [k, n], done `times` times a step, `batch` of them at once.

    `form` says how the factors lie in memory: n as they are, t transposed. A linear layer's
    forward product is "nt", its gradient of the input "nn", of the weight "tn".
    """

    m: int
    k: int
    n: int
    times: int = 1
    batch: int = 1
    form: str = "nt"

    @property
    def operations(self) -> int:
        """Multiplications and additions of all of them."""
        return 2 * self.m * self.k * self.n * self.times * self.batch


def step_products(config: Config, sequences: int, length: int, num_targets: int) -> list[Product]:
    """The matrix products of a training step over `sequences` of `length` real tokens each, of
    which `num_targets` in all go through the MLM head (0: there is none).

    Pooler and NSP head, a thousandth of the whole, are left out.
    """
    c, rows = config, sequences * length
    h, inner, layers = c.hidden_size, c.intermediate_size, c.num_hidden_layers
    maps = [(rows, h, 3 * h, layers), (rows, h, h, layers), (rows, h, inner, layers)]
    maps += [(rows, inner, h, layers)]
    if num_targets:
        maps += [(num_targets, h, h, 1), (num_targets, h, c.vocab_size, 1)]
    products = []
    for m, k, n, times in maps:
        products.append(Product(m, k, n, times, form="nt"))
        products.append(Product(m, n, k, times, form="nn"))
        products.append(Product(n, m, k, times, form="tn"))
    d, heads = c.head_size, sequences * c.num_attention_heads
    # q k' and the gradient of p; p v and the gradient of q; the gradients of k and v.
    products.append(Product(length, d, length, 2 * layers, heads, "nt"))
    products.append(Product(length, length, d, 2 * layers, heads, "nn"))
    products.append(Product(length, length, d, 2 * layers, heads, "tn"))
    return products


def useful_operations(config: Config, lengths: Tensor, num_targets: int) -> int:
    """Multiplications and additions of a training step over sequences of `lengths` real tokens
    (int64 [B]): the sum over :func:`step_products`, each sequence at its own length."""
    c = config
    tokens, squares = int(lengths.sum()), int((lengths * lengths).sum())
    layer = c.hidden_size * (4 * c.hidden_size + 2 * c.intermediate_size)
    head = c.hidden_size * (c.hidden_size + c.vocab_size)
    forward = c.num_hidden_layers * (tokens * layer + 2 * squares * c.hidden_size)
    return 6 * (forward + num_targets * head)


def time_products(
    products: Sequence[Product],
    repeats: int = 2,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
) -> list[float]:
    """Seconds a step that each of the products takes in `dtype` with nothing around it: the best
    of `repeats`, after one that does not count, into memory that is there already."""
    where = torch.device(device)
    draw = torch.Generator(where).manual_seed(0)

    def factor(batch: int, rows: int, columns: int, form: str) -> Tensor:
        shape = (batch, rows, columns) if form == "n" else (batch, columns, rows)
        values = torch.randn(shape, generator=draw, device=where).to(dtype)
        return values if form == "n" else values.transpose(1, 2)

    total = []
    for p in products:
        left = factor(p.batch, p.m, p.k, p.form[0])
        right = factor(p.batch, p.k, p.n, p.form[1])
        out = torch.empty(p.batch, p.m, p.n, dtype=dtype, device=where)

        def multiply(left: Tensor = left, right: Tensor = right, out: Tensor = out) -> None:
            if out.shape[0] == 1:
                torch.mm(left[0], right[0], out=out[0])
            else:
                torch.bmm(left, right, out=out)

        seconds = [_seconds(multiply, where) for _ in range(repeats + 1)]
        total.append(min(seconds[1:]) * p.times)
    return total


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Of one call; on a GPU of the mean of ten, so that starting them does not count."""
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(10):
        work()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e4


@dataclass(frozen=True)
class _Shape:
    """What the rate depends on, for one model."""

    config: Config
    sequences: int
    length: int
    num_targets: int
    dtype: torch.dtype
    device: str


#: Measured in this process.
_rates: dict[_Shape, float] = {}


def matrix_rate(
    config: Config,
    *,
    sequences: int,
    length: int,
    num_targets: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> float:
    """Operations a second that this machine does on the matrix products of a step, at the shapes
    of a micro-batch of `sequences` times `length` tokens, `num_targets` of them for the MLM head.

    Takes about a second, the first time; on a slow machine fewer sequences are measured than
    asked for. Draws from no generator that training uses.
    """
    shape = _Shape(config, sequences, length, num_targets, dtype, str(device))
    if shape not in _rates:
        probe = Product(512, config.hidden_size, 512)
        rate = probe.operations / time_products([probe], dtype=dtype, device=device)[0]
        work = sum(p.operations // p.times for p in _products(shape, sequences))
        fits = max(1, min(sequences, int(sequences * rate * _PASS / work)))
        products = _products(shape, fits)
        took = sum(time_products(products, dtype=dtype, device=device))
        _rates[shape] = sum(p.operations for p in products) / took
    return _rates[shape]


def _products(shape: _Shape, sequences: int) -> list[Product]:
    targets = -(-shape.num_targets * sequences // shape.sequences)
    return step_products(shape.config, sequences, shape.length, targets)


class Gauge:
    """Adds up the useful arithmetic of a run and compares it with what the machine could do.

    The rate is measured when a line of the log is due and the run has long enough to go to be
    worth it. Nothing here touches what is computed.

    Args:
        model: whose products count.
        dtype: that they are computed in.
        max_tokens: of a micro-batch, padding counted.
        processes: that compute each step together, each on a device or on cores of its own.
    """

    def __init__(
        self, model: Model, *, dtype: torch.dtype, max_tokens: int, processes: int = 1
    ) -> None:
        self._config, self._dtype, self._max_tokens = model.config, dtype, max_tokens
        self._processes = processes
        self._device = next(model.parameters()).device
        self._has_mlm = "mlm" in model.heads
        # By the number of bits of the length: a second phase has other shapes, and the lengths of
        # fine-tuning's batches differ, but not each of them is worth a measurement.
        self._rates: dict[int, float] = {}
        self._operations, self._seconds, self._steps = 0, 0.0, 0
        self._batch: Batch | None = None

    def add(self, batch: Batch, seconds: float) -> None:
        """A step over `batch`, which is on the host, took `seconds`."""
        lengths = batch.attention_mask.sum(1)
        self._operations += useful_operations(self._config, lengths, self._targets(batch))
        self._seconds += seconds
        self._steps += 1
        self._batch = batch

    def facts(self, steps_left: int) -> dict[str, float]:
        """For a line of the log: ``share_of_ceiling``, of the steps since the last line; nothing
        for a run that is not worth the measurement."""
        if self._batch is None or self._seconds <= 0.0:
            return {}
        sequences, length = self._batch.input_ids.shape
        bits = length.bit_length()
        if bits not in self._rates:
            if self._seconds / self._steps * steps_left < _WORTH:
                return self._reset({})
            part = max(1, min(sequences // self._processes, self._max_tokens // length))
            self._rates[bits] = matrix_rate(
                self._config,
                sequences=part,
                length=length,
                num_targets=-(-self._targets(self._batch) * part // sequences),
                dtype=self._dtype,
                device=self._device,
            )
        share = self._operations / self._seconds / (self._rates[bits] * self._processes)
        if share > 1.0:
            # Something else had the cores when the rate was measured: measured anew next time.
            del self._rates[bits]
            _rates.clear()
            return self._reset({})
        return self._reset({"share_of_ceiling": share})

    def _targets(self, batch: Batch) -> int:
        return batch.targets["mlm_labels"].numel() if self._has_mlm else 0

    def _reset(self, found: dict[str, float]) -> dict[str, float]:
        self._operations, self._seconds, self._steps = 0, 0.0, 0
        return found
