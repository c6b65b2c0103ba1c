"""Time the matrix products of a model's weights on this machine.

The processor's flags are no measure: some that have bf16 instructions multiply fp32 faster, and
with a narrow product or busy neighbours one thread may be faster than two. So
:mod:`bertine.models.precision` chooses the precision and the number of threads by timing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from bertine.models.torch_private import has_packed, multiply

#: Tokens of a micro-batch, if the caller does not know.
TOKENS = 2048
#: Of each product, as many rows are computed as make about this many operations, within bounds, and
#: at most this many columns: more take longer, at about the same rate.
_OPERATIONS, _FEWEST, _ROWS, _COLUMNS = 1e8, 128, 1024, 8192
#: The least share of all operations that the timed products cover; the others are small.
_SHARE = 0.9
#: The fewest operations of the largest product: below that, arithmetic does not dominate the time.
_LEAST = 1e7
#: The rounds of timing, and the seconds after which no further round starts. The first round is
#: for oneDNN, which compiles each product.
_TURNS, _ENOUGH = 4, 0.3


class Product(NamedTuple):
    """A product of activations [rows, inputs] with weights [outputs, inputs].

    Attributes:
        times: how often a product of this size occurs in a forward pass; larger for one that is
            timed with fewer rows or columns than it has.
        casts: how often weights of this size are converted to the type of the product.
    """

    rows: int
    inputs: int
    outputs: int
    times: float
    casts: float

    @property
    def operations(self) -> float:
        """Multiplications and additions of all occurrences."""
        return 2.0 * self.rows * self.inputs * self.outputs * self.times


def products_of(model: nn.Module, tokens: int = TOKENS, words: int = 0) -> tuple[Product, ...]:
    """List the products that make up nearly all operations of a forward pass, the heaviest first.

    Args:
        model: its matrices that multiply every token count, but no tables for look-ups.
        tokens: of a micro-batch.
        words: how many of them have their word scored against the whole vocabulary.

    Returns:
        Nothing for a model so small that its products do not dominate the time.
    """
    tables = {id(part.weight): part for part in model.modules() if isinstance(part, nn.Embedding)}
    sizes = Counter(
        (tokens, parameter.shape[1], parameter.shape[0])
        for parameter in model.parameters()
        if parameter.dim() == 2 and id(parameter) not in tables
    )
    if words and tables:
        table = max(tables.values(), key=lambda table: table.num_embeddings)
        sizes[words, table.embedding_dim, table.num_embeddings] += 1
    products = []
    for (rows, inputs, outputs), count in sizes.items():
        width = min(outputs, _COLUMNS)
        height = int(_OPERATIONS / (2 * inputs * width))
        height = min(rows, max(_FEWEST, min(height, _ROWS)))
        casts = count * outputs / width
        products.append(Product(height, inputs, width, casts * rows / height, casts))
    products.sort(key=lambda product: -product.operations)
    if not products or products[0].operations / products[0].times < _LEAST:
        return ()
    whole, covered, kept = sum(product.operations for product in products), 0.0, []
    for product in products:
        if covered >= _SHARE * whole:
            break
        kept.append(product)
        covered += product.operations
    return tuple(kept)


@torch.no_grad()
def seconds_of(products: Sequence[Product], dtype: torch.dtype) -> float:
    """Time each of `products` once, on the CPU with fp32 weights and activations of `dtype`, as
    autocast computes them; return the seconds for all their occurrences."""
    total = 0.0
    for product in products:
        weights = torch.full((product.outputs, product.inputs), 0.01)
        activations = torch.full((product.rows, product.inputs), 0.5, dtype=dtype)
        began = time.perf_counter()
        cast = weights.to(dtype)
        between = time.perf_counter()
        multiply(activations, cast) if has_packed(dtype) else F.linear(activations, cast)
        ended = time.perf_counter()
        total += product.casts * (between - began) + product.times * (ended - between)
    return total


def best_of(measures: Sequence[Callable[[], float]]) -> list[float]:
    """Return the best of some measurements of each kind. The kinds alternate, so that other load on
    the machine affects all of them.

    Args:
        measures: each returns the seconds that it took.
    """
    best = [float("inf")] * len(measures)
    began = time.perf_counter()
    for turn in range(_TURNS):
        if turn > 1 and time.perf_counter() - began > _ENOUGH:
            break
        best = [min(before, measure()) for before, measure in zip(best, measures, strict=True)]
    return best
