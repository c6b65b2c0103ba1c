"""Measure how efficiently a run uses the machine: its useful arithmetic against the possible rate.

The possible rate is the rate at which the machine computes the model's own matrix products, with
nothing else around them. Useful are the multiplications and additions of the matrix products that a
step needs, for real tokens: each product forward, and two of its size backward; attention over each
sequence's own length; heads that read single tokens, such as the MLM head, at those tokens.
Padding, dropout, norms, activations, lookups and the update are not counted, so that 100% is out of
reach.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from bertine.core.loss_names import TERMS
from bertine.corpora.batch import Batch
from bertine.models.config import Config
from bertine.models.encoder import TextInputs
from bertine.models.heads import Model
from bertine.models.torch_private import has_packed, multiply

aten = torch.ops.aten

#: A run with less time left than this (seconds) is not measured: it would cost more than 1% of the
#: time.
_WORTH = 240.0
#: The time for each pass over the products, approximately (seconds); there are three passes.
_PASS = 0.3


@dataclass(frozen=True)
class Product:
    """A matrix product [m, k] x [k, n], computed `times` times a step, `batch` of them at once.

    `form` gives the layout of the factors in memory: n as they are, t transposed. A linear layer's
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
        """The multiplications and additions of all of them."""
        return 2 * self.m * self.k * self.n * self.times * self.batch

    def gradients(self) -> tuple[Product, Product]:
        """Return the products that give the gradients of the two factors, each with the memory
        layout of its factor."""
        m, k, n = self.m, self.k, self.n
        turned = self.form == "nt"
        return (
            Product(m, n, k, self.times, self.batch, "nn" if turned else "nt"),
            Product(*((n, m, k) if turned else (k, m, n)), self.times, self.batch, "tn"),
        )


def step_products(
    model: Model, sequences: int, length: int, targets: Mapping[str, int] | None = None
) -> list[Product]:
    """List the matrix products of a training step, including those of a generator.

    Takes less than a tenth of a second. The products of a pooler are included, those of heads that
    read it are not; both are less than a thousandth.

    Args:
        sequences: how many, of `length` real tokens each.
        targets: term → how many tokens its head reads; those of heads that do not read single
            tokens are left out.
    """
    ids = torch.zeros(sequences, length, dtype=torch.int64)
    products = _forward(model.backbone, ids)
    for name in model.heads:
        if model.family.heads[name].reads == "inputs":
            products += _forward(_Layers(model, name), ids)
    return products + _head_products(model, targets or {})


class _Layers(nn.Module):
    """The layers of a head that reads inputs, applied to the embeddings of the model."""

    def __init__(self, model: Model, name: str) -> None:
        super().__init__()
        self.embeddings, self.head = model.backbone.embeddings, model.heads[name]

    def forward(self, input_ids: Tensor) -> Tensor:
        states: Tensor = self.head.states(self.embeddings, TextInputs(input_ids))  # type: ignore[operator]
        return states


def _head_products(model: Model, targets: Mapping[str, int]) -> list[Product]:
    """List the products of the heads that read single tokens."""
    products = []
    heads = _token_heads(model)
    for name, count in targets.items():
        if name in heads and count:
            head, width, tied = heads[name]
            weights = [model.backbone.word_weights] if tied else []
            products += _forward(head, torch.zeros(count, width), *weights)
    return products


def _token_heads(model: Model) -> dict[str, tuple[nn.Module, int, bool]]:
    """Return the heads that read the states of tokens by the names of their terms: the module, the
    width of its input, whether it multiplies with the word embeddings."""
    heads: dict[str, tuple[nn.Module, int, bool]] = {}
    named = {name: term.head or name for name, term in TERMS.items()}
    for name, head in named.items():
        if head not in model.heads:
            continue
        module, kind = model.heads[head], model.family.heads[head]
        if kind.reads in ("rows", "tokens"):
            heads[name] = (module, model.config.hidden_size, kind.tied)
        elif kind.reads == "inputs":  # a separate masked language model
            assert isinstance(module.head, nn.Module)
            assert isinstance(module.config, Config)
            heads[name] = (module.head, module.config.hidden_size, True)
    return heads


@torch.no_grad()
def _forward(module: nn.Module, *inputs: Tensor) -> list[Product]:
    """List the products of `module` on inputs of these shapes, and those of the gradients of their
    factors. PyTorch counts them while it runs the module on tensors without values."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    empty = {name: torch.empty_like(value, device="meta") for name, value in named.items()}
    counts: Counter[Product] = Counter()

    def note(*shapes: torch.Size, **_: Any) -> int:
        left, right = shapes[-2:]  # for a fused addition, the addend comes before them
        square = len(left) == 3 and left[1] == left[2]
        # Weights are transposed in memory, and so are keys, but not the values, which the attention
        # probabilities weight.
        (m, k), n, batch = left[-2:], right[-1], left[0] if len(left) == 3 else 1
        product = Product(m, k, n, 1, batch, "nn" if square else "nt")
        counts[product] += 1
        return product.operations

    formulas = dict.fromkeys((aten.mm, aten.bmm, aten.addmm, aten.baddbmm), note)
    with (
        FlopCounterMode(display=False, custom_mapping=formulas),
        torch.compiler.set_stance("force_eager"),
    ):
        functional_call(module, empty, tuple(torch.empty_like(i, device="meta") for i in inputs))
    return [
        dataclasses.replace(one, times=times)
        for product, times in counts.items()
        for one in (product, *product.gradients())
    ]


@dataclass(frozen=True)
class Cost:
    """The multiplications and additions of a training step, including the backward pass.

    Attributes:
        token: for each real token.
        pair: for each pair of tokens of a sequence: the cost of attention.
        targets: term → for each token that its head reads.
    """

    token: float
    pair: float
    targets: Mapping[str, float]

    def of(self, lengths: Tensor, targets: Mapping[str, int]) -> float:
        """Compute the cost of a step over sequences of `lengths` real tokens (int64 [B]); the heads
        read `targets`, as for :func:`step_products`."""
        tokens, pairs = int(lengths.sum()), int((lengths * lengths).sum())
        read = sum(cost * targets.get(name, 0) for name, cost in self.targets.items())
        return self.token * tokens + self.pair * pairs + read


def step_cost(model: Model, length: int) -> Cost:
    """Derive the costs of tokens, pairs and targets in sequences of up to about `length` tokens,
    from runs of that length and of half of it."""
    longer = max(length, 2)
    shorter = longer // 2
    per_token = [operations(step_products(model, 1, n)) / n for n in (longer, shorter)]
    pair = (per_token[0] - per_token[1]) / (longer - shorter)
    targets = {name: operations(_head_products(model, {name: 1})) for name in _token_heads(model)}
    return Cost(per_token[0] - pair * longer, pair, targets)


def operations(products: Sequence[Product]) -> int:
    """Add up the multiplications and additions of `products`."""
    return sum(product.operations for product in products)


def time_products(
    products: Sequence[Product],
    repeats: int = 2,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
) -> list[float]:
    """Measure the seconds a step that each of the products takes in `dtype`, with nothing around
    it: the best of `repeats` after a warm-up, with the output in allocated memory."""
    where = torch.device(device)
    draw = torch.Generator(where).manual_seed(0)

    def factor(batch: int, rows: int, columns: int, form: str) -> Tensor:
        shape = (batch, rows, columns) if form == "n" else (batch, columns, rows)
        values = torch.randn(shape, generator=draw, device=where).to(dtype)
        return values if form == "n" else values.transpose(1, 2)

    # In fp32 the products of training are not PyTorch's own.
    ours = where.type == "cpu" and dtype == torch.float32 and has_packed(dtype)
    total = []
    for p in products:
        left = factor(p.batch, p.m, p.k, p.form[0])
        right = factor(p.batch, p.k, p.n, p.form[1])
        out = torch.empty(p.batch, p.m, p.n, dtype=dtype, device=where)

        def compute(left: Tensor = left, right: Tensor = right, out: Tensor = out) -> None:
            if out.shape[0] == 1 and ours:
                multiply(left[0], right[0].t())
            elif out.shape[0] == 1:
                torch.mm(left[0], right[0], out=out[0])
            else:
                torch.bmm(left, right, out=out)

        seconds = [_seconds(compute, where) for _ in range(repeats + 1)]
        total.append(min(seconds[1:]) * p.times)
    return total


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Return the seconds of one call; on a GPU the mean of ten, so that launch time does not
    count."""
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


#: The rates measured in this process, by everything that they depend on.
_rates: dict[tuple[Config, int, int, tuple[tuple[str, int], ...], torch.dtype, str], float] = {}


def matrix_rate(
    model: Model,
    *,
    sequences: int,
    length: int,
    targets: Mapping[str, int],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> float:
    """Measure the operations per second of this machine on the matrix products of a step, at the
    shapes of a micro-batch of `sequences` times `length` tokens; the heads read `targets`.

    Takes about a second, the first time; on a slow machine fewer sequences are measured than
    requested. Does not use the random generators of training.
    """
    shape = (model.config, sequences, length, tuple(targets.items()), dtype, str(device))
    if shape not in _rates:
        probe = Product(512, model.config.hidden_size, 512)
        rate = probe.operations / time_products([probe], dtype=dtype, device=device)[0]
        products = step_products(model, sequences, length, targets)
        work = sum(p.operations // p.times for p in products)
        fits = max(1, min(sequences, int(sequences * rate * _PASS / work)))
        if fits < sequences:
            products = step_products(model, fits, length, share_of(targets, fits, sequences))
        took = sum(time_products(products, dtype=dtype, device=device))
        _rates[shape] = operations(products) / took
    return _rates[shape]


def share_of(targets: Mapping[str, int], part: int, whole: int) -> dict[str, int]:
    """Return the targets of `part` of `whole` sequences, rounded up."""
    return {name: -(-count * part // whole) for name, count in targets.items()}


class MfuMeter:
    """A meter that adds up the useful arithmetic of a run and compares it with the machine's rate.

    The rate is measured when a line of the log is due and enough of the run is left to make the
    measurement worth its time. The computation of the run is not affected.

    Args:
        model: the model whose products count; with shards, the complete one.
        counts: the targets of a batch by head (:meth:`bertine.objectives.losses.Loss.counts`).
        dtype: of the computation.
        max_tokens: of a micro-batch, padding counted.
        processes: the number that compute each step together, each on its own device or cores.
        device: of this process.
    """

    def __init__(
        self,
        model: Model,
        counts: Callable[[Batch], Mapping[str, int]],
        *,
        dtype: torch.dtype,
        max_tokens: int,
        processes: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        self._model, self._dtype, self._max_tokens = model, dtype, max_tokens
        self._processes, self._device = processes, device
        self._counts = counts
        # By the number of bits of the length: a second phase has other shapes, and the lengths of
        # fine-tuning's batches differ, but a measurement for each of them is not worth its time.
        self._measured: dict[int, tuple[Cost, float]] = {}
        self._lengths: list[Tensor] = []
        self._targets: Counter[str] = Counter()
        self._seconds = 0.0
        self._batch: Batch | None = None

    def add(self, batch: Batch, seconds: float) -> None:
        """Record that a step over `batch`, which is on the host, took `seconds`."""
        self._lengths.append(batch.attention_mask.sum(1))
        self._targets.update(self._counts(batch))
        self._seconds += seconds
        self._batch = batch

    def facts(self, steps_left: int) -> dict[str, float]:
        """Return the fields for a line of the log: ``share_of_ceiling`` of the steps since the last
        line; nothing for a run that is not worth the measurement."""
        lengths, targets, seconds = self._lengths, self._targets, self._seconds
        self._lengths, self._targets, self._seconds = [], Counter(), 0.0
        if self._batch is None or seconds <= 0.0:
            return {}
        bits = self._batch.input_ids.shape[1].bit_length()
        if bits not in self._measured:
            if seconds / len(lengths) * steps_left < _WORTH:
                return {}
            self._measured[bits] = self._measure(self._batch)
        cost, rate = self._measured[bits]
        share = cost.of(torch.cat(lengths), targets) / seconds / (rate * self._processes)
        if share > 1.0:
            # Something else used the cores when the rate was measured: measure again next time.
            del self._measured[bits]
            _rates.clear()
            return {}
        return {"share_of_ceiling": share}

    def _measure(self, batch: Batch) -> tuple[Cost, float]:
        """Return the cost of a step at the length of `batch`, and the rate at its shapes."""
        sequences, length = batch.input_ids.shape
        part = max(1, min(sequences // self._processes, self._max_tokens // length))
        rate = matrix_rate(
            self._model,
            sequences=part,
            length=length,
            targets=share_of(self._counts(batch), part, sequences),
            dtype=self._dtype,
            device=self._device,
        )
        return step_cost(self._model, length), rate
